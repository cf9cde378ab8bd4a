#include "twinloft/lmtpd/spool/data_first.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

namespace twinloft::lmtpd {
namespace {

MountFacts ext4(std::string options, bool internal_journal = true) {
  return {"ext4", "rw", std::move(options), internal_journal};
}

TEST(DataFirst, Ext4NeedsAJournalOfItsOwnBarriersAndOrderedData) {
  EXPECT_EQ(judge_data_first(ext4("rw\nbarrier\ndata=ordered\n")),
            (DataFirstVerdict{true, "ext4, data=ordered"}));
  EXPECT_TRUE(judge_data_first(ext4("barrier\ndata=journal\n")).allowed);
  for (const MountFacts& wrong :
       {ext4(""), ext4("nobarrier\ndata=ordered\n"), ext4("barrier\ndata=writeback\n"), ext4("barrier\n"),
        ext4("barrier\ndata=ordered\n", false), ext4("xbarrier\ndata=ordered\n")}) {
    EXPECT_FALSE(judge_data_first(wrong).allowed) << wrong.ext4_options;
    EXPECT_NE(judge_data_first(wrong).why, "");
  }
}

TEST(DataFirst, XfsNeedsItsLogOnTheSameDevice) {
  EXPECT_TRUE(judge_data_first({"xfs", "rw,inode64,logbufs=8", {}, false}).allowed);
  for (const char* options : {"rw,logdev=/dev/sdb1", "rw,rtdev=/dev/sdb1", "rw,nobarrier"})
    EXPECT_FALSE(judge_data_first({"xfs", options, {}, false}).allowed) << options;
}

TEST(DataFirst, OtherFileSystemsAreNotKnown) {
  for (const char* type : {"btrfs", "tmpfs", "nfs4", "ext3", ""})
    EXPECT_FALSE(judge_data_first({type, "rw", "barrier\ndata=ordered\n", true}).allowed) << type;
}

TEST(DataFirst, AMountIsFoundByItsDevice) {
  const std::string_view mounts =
      "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
      "36 22 7:0 / /srv/mail\\040x rw master:2 shared:3 - xfs /dev/loop0 rw,inode64\n"
      "37 22 0:45 / /run rw - tmpfs tmpfs rw\n"
      "malformed\n38 22 x:y / /m rw - ext4 /dev/x rw\n39 22 9:9 /\n";
  EXPECT_EQ(find_mount(mounts, ::makedev(254, 0)).type, "ext4");
  MountFacts xfs = find_mount(mounts, ::makedev(7, 0));
  EXPECT_EQ(xfs.type, "xfs");
  EXPECT_EQ(xfs.super_options, "rw,inode64");
  EXPECT_EQ(find_mount(mounts, ::makedev(0, 45)).type, "tmpfs");
  EXPECT_EQ(find_mount(mounts, ::makedev(9, 9)).type, "");
  EXPECT_EQ(find_mount("", 1).type, "");
}

}  // namespace
}  // namespace twinloft::lmtpd
