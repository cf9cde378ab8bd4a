#include "twinloft/spool-state/spool_state.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "../support/temporary_directory.h"

namespace twinloft::spool_state {
namespace {

SpoolState suspended() {
  return {.volume = "mail",
          .uuid = "0f0e0d0c-0b0a-0908-0706-050403020100",
          .state = "suspended",
          .role = "primary",
          .reason = "waits for replica 2",
          .since = {5'000'000'000},
          .time = "2026-11-26T05:00:00Z"};
}

struct SpoolStateTest : testing::Test {
  TemporaryDirectory directory;
  std::string path = directory / "mail.state";
  void put(std::string_view text) const { std::ofstream(path) << text; }
  std::string content(const std::string& of) const {
    std::ifstream in(of);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_F(SpoolStateTest, GoldenText) {
  SpoolState s = suspended();
  s.number = 3;
  s.pid = 17;
  s.boot_id = "b";
  std::string text = encode(s);
  EXPECT_EQ(text,
            "{\n"
            "  \"format\": 1,\n"
            "  \"volume\": \"mail\",\n"
            "  \"uuid\": \"0f0e0d0c-0b0a-0908-0706-050403020100\",\n"
            "  \"state\": \"suspended\",\n"
            "  \"role\": \"primary\",\n"
            "  \"reason\": \"waits for replica 2\",\n"
            "  \"since\": \"2026-11-26T05:00:00Z\",\n"
            "  \"since_boottime_ms\": 5000,\n"
            "  \"number\": 3,\n"
            "  \"pid\": 17,\n"
            "  \"boot_id\": \"b\"\n"
            "}\n");
  EXPECT_EQ(decode(text).value(), s);
}

TEST_F(SpoolStateTest, TheStateOfALivingWriterIsRead) {
  StateFile file(path);
  ASSERT_TRUE(file.write(suspended()));
  auto read = read_state(path);
  ASSERT_TRUE(read && *read) << (read ? "unknown" : read.error().message);
  EXPECT_EQ((*read)->state, "suspended");
  EXPECT_EQ((*read)->number, 1u);
  EXPECT_EQ((*read)->pid, static_cast<std::uint64_t>(::getpid()));
  SpoolState ok = suspended();
  ok.state = "ok";
  ASSERT_TRUE(file.write(ok));
  read = read_state(path);
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->state, "ok");
  EXPECT_EQ((*read)->number, 2u);
}

TEST_F(SpoolStateTest, WithoutAFileItIsUnknown) {
  auto read = read_state(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_FALSE(*read);
}

TEST_F(SpoolStateTest, AnOrderlyEndRemovesTheFile) {
  {
    ASSERT_TRUE(StateFile(path).write(suspended()));
  }
  struct stat st{};
  EXPECT_NE(::stat(path.c_str(), &st), 0);
}

TEST_F(SpoolStateTest, TheFileOfAKilledWriterIsUnknown) {
  pid_t child = ::fork();
  if (child == 0) {
    StateFile file(path);
    bool written = file.write(suspended()).has_value() && read_state(path).value_or(std::nullopt).has_value();
    ::_exit(written ? 0 : 1);  // without the destructor
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  auto read = read_state(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_FALSE(*read);
  EXPECT_NE(content(path), "") << "the file is still there";
}

// The next writer takes the place of one that was killed.
TEST_F(SpoolStateTest, AFileThatIsLeftIsReplaced) {
  put("left");
  std::ofstream(path + ".new") << "left";
  StateFile file(path);
  ASSERT_TRUE(file.write(suspended()));
  EXPECT_TRUE(read_state(path).value());
}

TEST_F(SpoolStateTest, TheFileOfALaterWriterIsLeft) {
  StateFile later(path);
  {
    StateFile first(path);
    ASSERT_TRUE(first.write(suspended()));
    ASSERT_TRUE(later.write(suspended()));
  }
  EXPECT_TRUE(read_state(path).value());
}

TEST_F(SpoolStateTest, AReaderSeesEveryStateAsAWhole) {
  StateFile file(path);
  SpoolState first = suspended();
  first.reason = "r";
  ASSERT_TRUE(file.write(first));
  pid_t child = ::fork();
  if (child == 0) {
    for (int i = 0; i < 2000; ++i) {
      auto read = read_state(path);
      if (!read || !*read || (*read)->reason.find_first_not_of('r') != std::string::npos) ::_exit(1);
      if ((*read)->number == 500) break;
    }
    ::_exit(0);
  }
  // Between two states, the reader finds the old one, with its lock, or the new one.
  for (std::size_t i = 1; i < 500; ++i) {
    SpoolState s = suspended();
    s.reason = std::string(i % 200, 'r');
    ASSERT_TRUE(file.write(s));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(SpoolStateTest, OthersMayRead) {
  StateFile file(path);
  const mode_t before = ::umask(077);
  auto written = file.write(suspended());
  ::umask(before);
  ASSERT_TRUE(written);
  struct stat st{};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0644u);
}

TEST_F(SpoolStateTest, ADirectoryThatIsMissingIsSaid) {
  StateFile file(directory / "missing/mail.state");
  auto written = file.write(suspended());
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, directory / "missing/mail.state.new" + ": No such file or directory");
}

TEST_F(SpoolStateTest, MalformedTextIsAnError) {
  EXPECT_EQ(decode("").error().code, Errc::corrupt);
  EXPECT_EQ(decode("{}").error().message, "the member \"format\" is missing, or is no number");
  EXPECT_EQ(decode("{\"format\": 2}").error().message, "format 2 is not supported");
  EXPECT_EQ(decode("{\"format\": 1, \"volume\": 3}").error().message,
            "the member \"volume\" is missing, or is no text");
  std::string text = encode(suspended());
  text.replace(text.find("5000"), 4, "99999999999999");
  EXPECT_EQ(decode(text).error().message, "\"since_boottime_ms\" is too large");
}

TEST_F(SpoolStateTest, AnotherBootIsUnknown) {
  StateFile file(path);
  ASSERT_TRUE(file.write(suspended()));
  // The lock is still held: only the text is of another boot.
  std::string text = content(path);
  std::string boot = this_boot_id().value();
  text.replace(text.find(boot), boot.size(), std::string(boot.size(), '0'));
  put(text);
  auto read = read_state(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_FALSE(*read);
}

}  // namespace
}  // namespace twinloft::spool_state
