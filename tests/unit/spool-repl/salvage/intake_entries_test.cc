// Messages of the losing side's intake log.
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "spool.h"
#include "twinloft/intake_log/group.h"
#include "twinloft/intake_log/mark.h"
#include "twinloft/spool-repl/salvage/extract.h"

namespace twinloft::repl::salvage {
namespace {

namespace fs = std::filesystem;

const Uuid logged_incarnation = Uuid::parse("2a64ab35-4699-4b8c-8bd4-683fee16b378").value();
constexpr std::size_t block = intake_log::block_bytes;

// A log of one segment, with one group in each block.
class SalvagedLog : public testing::Test {
 protected:
  SalvagedLog() {
    loser_.put(".twinloft-intake/lock",
               fmt::format("twinloft intake log 1\nincarnation {}\n", logged_incarnation.text()));
    segment_.resize(4 * block);
    mark({});
  }
  void mark(std::initializer_list<std::uint64_t> settled) {
    intake_log::Mark out(logged_incarnation);
    for (std::uint64_t entry : settled) out.settle(entry);
    const auto bytes = out.encode();
    ASSERT_EQ(::setxattr((loser_ / ".twinloft-intake").c_str(), intake_log::mark_attribute, bytes.data(),
                         bytes.size(), 0),
              0);
  }
  void write(const std::vector<std::string>& names, std::optional<std::uint64_t> cancel = {},
             const std::string& maildir = ann) {
    intake_log::GroupBuilder builder(MutableByteSpan(segment_).subspan(next_group_ * block, block));
    for (const std::string& name : names) {
      const intake_log::EntryName entry{maildir, "", name};
      ASSERT_TRUE(builder.add_message({&entry, 1}, late(name)).has_value());
    }
    if (cancel) {
      ASSERT_TRUE(builder.add_cancel(*cancel).has_value());
    }
    intake_log::GroupHeader header;
    header.incarnation = logged_incarnation;
    header.number = next_group_;
    header.first_entry = next_entry_;
    header.at = {0, next_group_ * block};
    next_entry_ += builder.entries();
    ++next_group_;
    (void)builder.finish(header);
    std::ofstream(loser_ / ".twinloft-intake/segment-00", std::ios::binary)
        .write(reinterpret_cast<const char*>(segment_.data()), static_cast<std::streamsize>(segment_.size()));
  }
  // Groups from this one on are of after the split.
  ExtractReport run(std::uint64_t first_group = 0) {
    ExtractOptions options = options_for(bundle_);
    options.log_written = [first_group](int, std::uint64_t offset, std::uint64_t) -> Result<bool> {
      return offset >= first_group * block;
    };
    auto done = extract(loser_.open().get(), options, written_after, {});
    EXPECT_TRUE(done) << done.error().message;
    return done.value_or(ExtractReport{});
  }
  std::vector<std::string> taken() {
    std::vector<std::string> out;
    Bundle bundle = open_bundle(bundle_);
    for (const Message& m : bundle.manifest().messages) {
      EXPECT_TRUE(bundle.verify(m));
      out.push_back(fmt::format("{} {}/{}", m.user, m.in_new ? "new" : "cur", m.name));
    }
    return out;
  }

  Spool loser_;
  TemporaryDirectory beside_;
  std::string bundle_ = beside_ / "bundle";
  std::vector<std::byte> segment_;
  std::uint64_t next_group_ = 0, next_entry_ = 0;
};

using Names = std::vector<std::string>;

TEST_F(SalvagedLog, WhatAReplayWouldPlaceIsTaken) {
  write({"1.host", "2.host", "3.host", "4.host"});
  write({}, 3);
  mark({1});
  loser_.put(ann + "/cur/3.host:2,S", late("3.host"));
  ExtractReport report = run();
  EXPECT_EQ(taken(), (Names{"ann@example.org cur/3.host:2,S", "ann@example.org new/1.host"}));
  EXPECT_EQ(report.from_log, 1u);
  EXPECT_EQ(report.after, 2u);
  EXPECT_EQ(text_of(report.problems), "");
  Bundle bundle = open_bundle(bundle_);
  EXPECT_EQ(read(fmt::format("{}/messages/{}", bundle_, bundle.manifest().messages[1].number)),
            late("1.host"));
}

TEST_F(SalvagedLog, GroupsOfBeforeTheSplitAreLeft) {
  write({"1.host"});
  write({"2.host"});
  EXPECT_EQ(run(1).from_log, 1u);
  EXPECT_EQ(taken(), Names{"ann@example.org new/2.host"});
}

TEST_F(SalvagedLog, AForeignMaildirIsReported) {
  write({"1.host"}, {}, "elsewhere/Maildir");
  ExtractReport report = run();
  EXPECT_EQ(report.from_log, 0u);
  EXPECT_EQ(text_of(report.problems),
            "elsewhere/Maildir/new/1.host: in the intake log, and not taken: no Maildir there matches the "
            "layout\n");
}

TEST_F(SalvagedLog, ALogWithoutItsMarkIsReported) {
  write({"1.host"});
  ASSERT_EQ(::removexattr((loser_ / ".twinloft-intake").c_str(), intake_log::mark_attribute), 0);
  ExtractReport report = run();
  EXPECT_EQ(report.from_log, 0u);
  EXPECT_NE(text_of(report.problems).find("the intake log cannot be used, mail may be missing"),
            std::string::npos);
}

TEST_F(SalvagedLog, NoLogIsNoProblem) {
  fs::remove_all(loser_ / ".twinloft-intake");
  EXPECT_EQ(text_of(run().problems), "");
}

}  // namespace
}  // namespace twinloft::repl::salvage
