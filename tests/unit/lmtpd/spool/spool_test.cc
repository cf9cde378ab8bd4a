// The spool's marker: no mail is delivered into an unmounted or exchanged spool.
#include "twinloft/lmtpd/spool/spool.h"

#include "../support/fixture.h"

namespace twinloft::lmtpd {
namespace {

const Uuid volume = Uuid::parse("0b6ff95a-3b2a-4b5c-9d5e-0e6b0a1c2d3e").value();
const Uuid other = Uuid::parse("11111111-2222-4333-8444-555555555555").value();

class SpoolTest : public test::DirTest {
 protected:
  std::unique_ptr<Spool> spool_at(const std::string& root) {
    return Spool::create({root, volume}, ops_).value();
  }
  OsFileOps ops_;
};

TEST_F(SpoolTest, OpensWithItsMarker) {
  ASSERT_TRUE(write_spool_marker(dir_, volume).has_value());
  EXPECT_EQ(read_spool_marker(dir_).value(), volume);
  EXPECT_TRUE(write_spool_marker(dir_, volume).has_value());  // the second call does nothing
  auto spool = spool_at(dir_);
  auto first = spool->open();
  auto second = spool->open();
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_LT(first->order, second->order);
  EXPECT_EQ(first->device, second->device);
}

TEST_F(SpoolTest, RefusesWithoutMarkerOrWithAnother) {
  auto spool = spool_at(dir_);
  EXPECT_EQ(spool->open().error().code, Errc::unavailable);
  ASSERT_TRUE(write_spool_marker(dir_, other).has_value());
  auto wrong = spool->open();
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, Errc::unavailable);
  EXPECT_NE(wrong.error().message.find(other.text()), std::string::npos);
  EXPECT_EQ(write_spool_marker(dir_, volume).error().code, Errc::conflict);
}

TEST_F(SpoolTest, RefusesAMarkerThatIsNone) {
  for (std::string text : {"", "hello", "0b6ff95a-3b2a-4b5c-9d5e-0e6b0a1c2d3e and more"}) {
    std::ofstream(path(spool_marker_name)) << text;
    EXPECT_FALSE(spool_at(dir_)->open().has_value()) << text;
  }
}

TEST_F(SpoolTest, RefusesAMarkerThatIsALink) {
  std::filesystem::create_directory(path("root"));
  ASSERT_TRUE(write_spool_marker(dir_, volume).has_value());
  std::filesystem::create_symlink("../" + std::string(spool_marker_name), path("root/") + spool_marker_name);
  EXPECT_FALSE(spool_at(path("root"))->open().has_value());
}

TEST_F(SpoolTest, NoticesThatItIsUnmountedOrExchanged) {
  ASSERT_TRUE(test::is_root()) << "mounting needs root";
  std::string at = path("mnt");
  mount_tmpfs(at);
  ASSERT_TRUE(write_spool_marker(at, volume).has_value());
  auto spool = spool_at(at);
  {
    ASSERT_TRUE(spool->open().has_value());
  }
  unmount(at);  // works because no file stays open between deliveries
  EXPECT_EQ(spool->open().error().code, Errc::unavailable);
  mount_tmpfs(at);
  ASSERT_TRUE(write_spool_marker(at, other).has_value());
  EXPECT_EQ(spool->open().error().code, Errc::unavailable);
}

TEST_F(SpoolTest, PathsLieBeneathTheRoot) {
  auto spool = spool_at("/srv//mail/");
  EXPECT_EQ(spool->root(), "/srv/mail");
  EXPECT_EQ(spool->relative("/srv/mail/a//b/").value(), "a/b");
  for (const char* bad : {"/srv/mail", "/srv/mail/", "/srv/mailbox/a", "/srv", "srv/mail/a", "",
                          "/srv/mail/../x", "/srv/mail/a/..", "/srv/mail/./a"})
    EXPECT_EQ(spool->relative(bad).error().code, Errc::denied) << bad;
  // Names that a sender could choose if homes are SPOOL/%user%.
  EXPECT_EQ(spool->relative("/srv/mail/.twinloft-salvage/Maildir").error().code, Errc::denied);
  EXPECT_EQ(spool->relative("/srv/mail/a/.twinloft-salvage").value(), "a/.twinloft-salvage");
  for (const char* bad : {"", "srv", "/srv/../x"})
    EXPECT_FALSE(Spool::create({bad, volume}, ops_).has_value()) << bad;
}

}  // namespace
}  // namespace twinloft::lmtpd
