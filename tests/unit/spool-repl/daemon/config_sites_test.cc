// The keys site and through.
#include "config_fixture.h"
#include "core_settings.h"

namespace twinloft::repl::daemon {
namespace {

struct SitesTest : ConfigTest {
  // Peers 2 and 3, with these lines at their ends.
  static std::string with(const std::string& volume, const std::string& peer_2, const std::string& peer_3) {
    return minimal + "listen = \"10.0.0.1:1\"\nsecret_file = \"/s\"\n" + volume +
           "[[volume.mail.peer]]\nid = 2\naddress = \"10.0.0.2:1\"\n" + peer_2 +
           "[[volume.mail.peer]]\nid = 3\naddress = \"10.0.0.3:1\"\n" + peer_3;
  }
};

TEST_F(SitesTest, AreRead) {
  auto out = load(with("site = \"vienna\"\n", "site = \"graz\"\n", "site = \"graz\"\nthrough = 2\n"));
  ASSERT_TRUE(out) << out.error().message;
  core::Config c = core_config(out->volumes[0]);
  EXPECT_EQ(c.site, "vienna");
  EXPECT_EQ(c.peers[0].site, "graz");
  EXPECT_EQ(c.peers[0].through, 0u);
  EXPECT_EQ(c.peers[1].through, 2u);
  out = load(with("", "", "through = 2\n"));
  ASSERT_TRUE(out) << "a chain needs no sites: " << out.error().message;
  out = load(with("", "", ""));
  ASSERT_TRUE(out);
  EXPECT_TRUE(core_config(out->volumes[0]).site.empty());
}

TEST_F(SitesTest, ErrorsAreNamed) {
  constexpr int own = minimal_lines + 3, of_2 = own + 3, of_3 = of_2 + 3;
  EXPECT_TRUE(refused(with("", "site = \"graz\"\n", ""), of_2, "volume.mail.peer.site", "volume.mail.site"));
  EXPECT_TRUE(refused(with("site = 7\n", "", ""), own, "volume.mail.site", "expected a text in quotes"));
  EXPECT_TRUE(
      refused(with("site = \"" + std::string(65, 'x') + "\"\n", "", ""), own, "volume.mail.site", "64"));
  EXPECT_TRUE(refused(with("", "", "through = 9\n"), of_3, "volume.mail.peer.through", "replica 9 is no"));
  EXPECT_TRUE(refused(with("", "", "through = 3\n"), of_3, "volume.mail.peer.through", "in a circle"));
  EXPECT_TRUE(
      refused(with("", "through = 3\n", "through = 2\n"), of_2, "volume.mail.peer.through", "in a circle"));
  EXPECT_TRUE(refused(with("", "through = \"b\"\n", ""), of_2, "volume.mail.peer.through", "a number"));
  EXPECT_TRUE(refused(with("", "protocol = \"A\"\nbuffer = \"1GiB\"\n", "through = 2\n"), of_3 + 2,
                      "volume.mail.peer.through", "behind a buffer"));
}

}  // namespace
}  // namespace twinloft::repl::daemon
