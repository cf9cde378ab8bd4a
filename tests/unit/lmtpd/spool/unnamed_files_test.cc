// Files without a name: what the system calls do, and which errors end their use.
#include "twinloft/lmtpd/spool/unnamed_files.h"

#include <sys/stat.h>

#include <cerrno>

#include "../support/fixture.h"
#include "twinloft/lmtpd/spool/file_ops.h"

namespace twinloft::lmtpd {
namespace {

Error error_of(int sys) {
  return Error{Errc::io, "injected", sys};
}

class UnnamedFilesTest : public test::DirTest {
 protected:
  OsFileOps os_;
  Fd root_ = os_.open_root(dir_).value();
};

TEST_F(UnnamedFilesTest, TheFileAppearsWholeWithItsName) {
  Fd file = os_.create_unnamed(root_.get()).value();
  ASSERT_TRUE(os_.write(file.get(), as_bytes(std::string_view("whole"))).has_value());
  EXPECT_TRUE(test::list(dir_).empty());
  ASSERT_TRUE(os_.link_unnamed(file.get(), root_.get(), "name").has_value());
  EXPECT_EQ(test::slurp(path("name")), "whole");
  struct stat about{};
  ASSERT_EQ(::stat(path("name").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  EXPECT_EQ(about.st_nlink, 1u);
}

// The kernel refuses an empty path to another user than the one that opened the file, like kernels before
// Linux 6.10 to every user without CAP_DAC_READ_SEARCH.
TEST_F(UnnamedFilesTest, WithoutTheRightToAnEmptyPathItIsLinkedByProc) {
  ASSERT_TRUE(test::is_root());
  Fd file = os_.create_unnamed(root_.get()).value();
  ASSERT_EQ(::fchown(file.get(), test::mail_uid, test::mail_uid), 0);
  ASSERT_EQ(::chmod(dir_.c_str(), 0777), 0);
  become_mail_user();
  ASSERT_EQ(::linkat(file.get(), "", root_.get(), "name", AT_EMPTY_PATH), -1);
  ASSERT_EQ(errno, ENOENT);
  for (const char* name : {"name", "another"}) {
    Status linked = os_.link_unnamed(file.get(), root_.get(), name);
    EXPECT_TRUE(linked.has_value()) << linked.error().message;
  }
  EXPECT_EQ(test::list(dir_).size(), 2u);
}

TEST_F(UnnamedFilesTest, TheLinkNeverReplacesAMessage) {
  std::ofstream(path("name")) << "old";
  Fd file = os_.create_unnamed(root_.get()).value();
  Status linked = os_.link_unnamed(file.get(), root_.get(), "name");
  ASSERT_FALSE(linked.has_value());
  EXPECT_EQ(linked.error().sys, EEXIST);
  EXPECT_EQ(test::slurp(path("name")), "old");
}

TEST_F(UnnamedFilesTest, ADirectoryThatWasRemovedTakesNoFile) {
  std::filesystem::create_directory(path("new"));
  Fd directory = os_.open_directory(root_.get(), "new").value();
  Fd file = os_.create_unnamed(directory.get()).value();
  std::filesystem::remove(path("new"));
  Status linked = os_.link_unnamed(file.get(), directory.get(), "name");
  ASSERT_FALSE(linked.has_value());
  EXPECT_EQ(linked.error().sys, ENOENT);
}

TEST_F(UnnamedFilesTest, AnErrorOfTheFileSystemEndsTheirUseThere) {
  for (auto [step, sys] : {std::pair{UnnamedStep::create, EOPNOTSUPP},
                           {UnnamedStep::create, EISDIR},
                           {UnnamedStep::create, EINVAL},
                           {UnnamedStep::link, EOPNOTSUPP},
                           {UnnamedStep::link, EPERM},
                           {UnnamedStep::link, EACCES},
                           {UnnamedStep::link, EXDEV}}) {
    UnnamedFiles files;
    EXPECT_TRUE(files.may_try(1));
    EXPECT_TRUE(files.give_up(1, step, error_of(sys))) << sys;
    EXPECT_FALSE(files.may_try(1)) << sys;
    EXPECT_TRUE(files.may_try(2)) << "another file system";
  }
}

TEST_F(UnnamedFilesTest, AnErrorOfOneMessageDoesNot) {
  UnnamedFiles files;
  for (int sys : {ENOSPC, EDQUOT, EIO, ENOENT, EMFILE, EEXIST})
    for (UnnamedStep step : {UnnamedStep::create, UnnamedStep::link})
      EXPECT_FALSE(files.give_up(1, step, error_of(sys))) << sys;
  EXPECT_FALSE(files.give_up(1, UnnamedStep::create, error_of(EACCES))) << "the directory's mode";
  EXPECT_TRUE(files.may_try(1));
}

}  // namespace
}  // namespace twinloft::lmtpd
