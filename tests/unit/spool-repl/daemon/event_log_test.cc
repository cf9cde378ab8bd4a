#include "event_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "../../support/temporary_directory.h"

namespace twinloft::repl::daemon {
namespace {

class SetClock final : public Clock {
 public:
  Instant now() const override { return at; }
  WallTime wall() const override { return {1'700'000'000 + at.ns / 1'000'000'000, 123}; }
  Instant at;
};

struct EventLogTest : testing::Test {
  static Event event(std::string kind, std::string text) {
    return {0, {}, std::move(kind), true, 2, 7, std::move(text)};
  }
  std::unique_ptr<EventLog> open() { return std::make_unique<EventLog>(path, "mail", clock); }

  SetClock clock;
  TemporaryDirectory directory;
  std::string path = directory / "mail.events";
};

TEST_F(EventLogTest, IsKnownAfterARestart) {
  auto log = open();
  EXPECT_EQ(log->list(0, false), "0\n");
  log->add(event("split-brain", "replicas 1 and 2 both continued as primary"));
  clock.at.ns += 1'000'000'000;
  log->add(event("archived", "records 5 to 9 are kept in \"/a/b\""));
  log.reset();
  struct stat st{};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);

  std::vector<Event> stored = load_events(path);
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(
      stored[0],
      (Event{
          1, {1'700'000'000, 123}, "split-brain", true, 2, 7, "replicas 1 and 2 both continued as primary"}));
  EXPECT_EQ(stored[1].text, "records 5 to 9 are kept in \"/a/b\"");

  log = open();
  EXPECT_EQ(log->last_number(), 2u);
  log->add(event("role", "replica 1 is Primary"));
  EXPECT_EQ(log->list(1, false),
            "3\n    2  2023-11-14T22:13:21Z  ! archived             records 5 to 9 are kept in \"/a/b\"\n"
            "    3  2023-11-14T22:13:21Z  ! role                 replica 1 is Primary\n");
  EXPECT_EQ(log->list(2, true),
            "3\n{\"n\":3,\"time\":\"2023-11-14T22:13:21.000123Z\",\"volume\":\"mail\",\"kind\":\"role\","
            "\"serious\":true,"
            "\"peer\":2,\"epoch\":7,\"text\":\"replica 1 is Primary\"}\n");
}

TEST_F(EventLogTest, ATornLineIsLeftOutAndTheNextOneCanBeRead) {
  open()->add(event("role", "first"));
  std::ofstream(path, std::ios::app) << "{\"n\":2,\"time\":\"2023-11-";
  ASSERT_EQ(load_events(path).size(), 1u);
  auto log = open();
  EXPECT_EQ(log->last_number(), 1u);
  log->add(event("role", "second"));
  log.reset();
  std::vector<Event> stored = load_events(path);
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(stored[1].number, 2u);
  EXPECT_EQ(stored[1].text, "second");
}

TEST_F(EventLogTest, NonsenseInTheFileIsLeftOut) {
  std::ofstream(path) << "null\n[]\n{\"n\":-1}\n{\"n\":\"x\",\"time\":5}\n\n{\"n\":1e400,\"time\":\"2023-11-"
                         "14T22:13:20.000000Z\"}\n"
                      << std::string(100'000, '[')
                      << "\n{\"n\":4,\"time\":\"2023-11-14T22:13:20.000000Z\",\"text\":\"good\"}\n";
  std::vector<Event> stored = load_events(path);
  ASSERT_EQ(stored.size(), 1u);
  EXPECT_EQ(stored[0].text, "good");
}

TEST_F(EventLogTest, WhatIsSaidAgainAndAgainIsTakenOnceInAWhile) {
  auto log = open();
  EXPECT_TRUE(log->add(event("refused", "a wrong secret"), true));
  EXPECT_FALSE(log->add(event("refused", "a wrong secret"), true));
  EXPECT_TRUE(log->add(event("refused", "another volume"), true));
  EXPECT_TRUE(log->add(event("connected", "a wrong secret")));
  clock.at = clock.at + std::chrono::minutes(6);
  EXPECT_TRUE(log->add(event("refused", "a wrong secret"), true));
  EXPECT_EQ(log->last_number(), 4u);
}

TEST_F(EventLogTest, TheFilesAndTheMemoryAreBounded) {
  constexpr int count = 5000;
  for (int i = 0; i < count;) {
    auto log = open();  // its end waits for the file, because the queue of writes is limited too
    for (int k = 0; k < 500; ++k, ++i) log->add(event("notice", std::string(600, 'x')));
  }
  std::uint64_t old = std::filesystem::file_size(path + ".1"), now = std::filesystem::file_size(path);
  EXPECT_LE(old, event_file_bytes_max);
  EXPECT_LE(now, event_file_bytes_max);
  EXPECT_GT(old + now, event_file_bytes_max);
  std::vector<Event> stored = load_events(path);
  EXPECT_EQ(stored.size(), events_kept_max);
  EXPECT_EQ(stored.back().number, std::uint64_t{count});
  auto log = open();
  std::string all = log->list(0, true);
  EXPECT_EQ(static_cast<std::size_t>(std::count(all.begin(), all.end(), '\n')), events_kept_max + 1);
}

TEST_F(EventLogTest, ATextCanNotForgeALine) {
  auto log = open();
  log->add(event("refused", "it said\n    9  2023 \033[2J"));
  std::string text = log->list(0, false);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

// The directory is missing. The volume continues, and the events in memory can still be read.
TEST_F(EventLogTest, WorksWithoutAFile) {
  EventLog log(directory / "missing/mail.events", "mail", clock);
  EXPECT_TRUE(log.add(event("role", "replica 1 is Primary")));
  EXPECT_EQ(log.last_number(), 1u);
}

TEST(StateDirectory, IsWhereTheConfigurationSays) {
  VolumeSettings s;
  s.name = "mail";
  s.journal = "/var/lib/twinloft/mail.journal";
  EXPECT_EQ(events_path(s), "/var/lib/twinloft/mail.events");
  s.archive = "/srv/archive";
  EXPECT_EQ(events_path(s), "/srv/archive/mail.events");
}

}  // namespace
}  // namespace twinloft::repl::daemon
