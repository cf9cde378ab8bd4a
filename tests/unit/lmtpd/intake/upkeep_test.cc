#include "twinloft/lmtpd/intake/upkeep.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "../support/fixture.h"

namespace twinloft::lmtpd {
namespace {

namespace fs = std::filesystem;

class UpkeepTest : public test::DirTest {
 protected:
  UpkeepTest() { root_ = Fd(::open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
  void create() {
    OsRandom random;
    Status made = create_log(root_.get(), 8 * log_block_bytes, random);
    ASSERT_TRUE(made.has_value()) << made.error().message;
  }
  std::string in_log(const std::string& name) { return path(std::string(log_directory_name) + "/" + name); }
  Fd root_;
};

TEST_F(UpkeepTest, ARemovedLogCanBeMadeAgain) {
  for (int i = 0; i < 2; ++i) {
    create();
    auto log = LogDirectory::open(root_.get());
    ASSERT_TRUE(log.has_value()) << log.error().message;
    Status removed = remove_log(*std::move(log), root_.get());
    ASSERT_TRUE(removed.has_value()) << removed.error().message;
    EXPECT_FALSE(fs::exists(path(log_directory_name)));
  }
}

TEST_F(UpkeepTest, ARemovedLogLeavesWhatIsStuck) {
  create();
  fs::create_directory(in_log("stuck"));
  std::ofstream(in_log("stuck/1.eml")) << "mail";
  ASSERT_TRUE(remove_log(*LogDirectory::open(root_.get()), root_.get()).has_value());
  EXPECT_EQ(test::list(path(log_directory_name)), std::vector<std::string>{"stuck"});
  create();
  EXPECT_TRUE(LogDirectory::open(root_.get()).has_value());
  EXPECT_TRUE(fs::exists(in_log("stuck/1.eml")));
}

// Also a log that nobody can open.
TEST_F(UpkeepTest, ALogIsSetAsideUnderAFreeName) {
  create();
  fs::remove(in_log("segment-01"));
  fs::create_directory(path(".twinloft-intake.set-aside-1"));
  EXPECT_EQ(set_log_aside(root_.get()).value(), ".twinloft-intake.set-aside-2");
  EXPECT_FALSE(fs::exists(path(log_directory_name)));
  EXPECT_TRUE(fs::exists(path(".twinloft-intake.set-aside-2/segment-00")));
  EXPECT_EQ(set_log_aside(root_.get()).error().code, Errc::not_found);
}

TEST_F(UpkeepTest, ALogInUseIsNotSetAside) {
  create();
  auto log = LogDirectory::open(root_.get());
  ASSERT_TRUE(log->lock().value());
  EXPECT_EQ(set_log_aside(root_.get()).error().code, Errc::conflict);
  EXPECT_TRUE(fs::exists(path(log_directory_name)));
}

}  // namespace
}  // namespace twinloft::lmtpd
