#include "twinloft/spool-repl/daemon/check.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../../support/loopback.h"
#include "twinloft/base/clock.h"
#include "twinloft/spool-repl/control/control.h"
#include "twinloft/spool-repl/daemon/link_security.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/io/uring_loop.h"
#include "twinloft/spool-repl/stream/kernel_tls.h"
#include "twinloft/tls/authority.h"
#include "volume_on_files.h"

namespace twinloft::repl::daemon {
namespace {

struct CheckTest : testing::Test, VolumeOnFiles {
  CheckTest() {
    s.arena = 64 * mib;
    s.listen = {"0.0.0.0:7710"};
    s.peers.push_back({2, {"192.0.2.2:7710"}, core::Protocol::C});
    s.secret_file = file("secret", "sixteen letters and more\n");
    s.nbd_listen = "unix:/run/x.sock";
  }
  std::string file(const std::string& name, const std::string& text, mode_t mode = 0600) {
    std::ofstream(where + "/" + name) << text;
    EXPECT_EQ(::chmod((where + "/" + name).c_str(), mode), 0);
    return where + "/" + name;
  }
  testing::AssertionResult says(const std::vector<std::string>& texts, std::string_view words) {
    if (texts.size() == 1 && texts[0].starts_with("volume mail: ") &&
        texts[0].find(words) != std::string::npos)
      return testing::AssertionSuccess();
    auto result = testing::AssertionFailure() << texts.size() << " findings";
    for (const auto& t : texts) result << "\n" << t;
    return result;
  }
};

TEST_F(CheckTest, Good) {
  Findings found = check_volume(s);
  EXPECT_TRUE(found.errors.empty()) << found.errors[0];
  EXPECT_TRUE(found.warnings.empty()) << found.warnings[0];
}

TEST_F(CheckTest, Secrets) {
  s.secret_file = where + "/none";
  EXPECT_TRUE(says(check_volume(s).errors, "none: No such file"));
  s.secret_file = file("open", "sixteen letters and more\n", 0640);
  EXPECT_TRUE(says(check_volume(s).errors, "chmod 600"));
  s.secret_file = file("short", "fifteen letters\n");
  EXPECT_TRUE(says(check_volume(s).errors, "at least 16"));
  s.secret_file.clear();
  EXPECT_TRUE(says(check_volume(s).errors, "tls_certificate or secret_file is missing"));
  s.listen = {"127.0.0.1:7710"};
  s.peers[0].addresses = {"127.0.0.2:7710"};
  EXPECT_TRUE(check_volume(s).errors.empty());
}

struct CheckCertificateTest : CheckTest {
  CheckCertificateTest() {
    s.uuid = "6f1c1c0e-8f5b-4c55-9d0a-3f0a8e0b1d10";
    s.replica = 1;
    s.secret_file.clear();
    own({net::certificate_name(Uuid::parse(s.uuid).value(), 1)}, 100);
  }
  void own(const std::vector<std::string>& uris, std::int64_t days, std::int64_t shift_days = 0) {
    WallTime now = OsClock().wall();
    now.seconds += shift_days * 86'400;
    auto made = tls::issue(authority, {"replica 1", uris}, {now, days}).value();
    s.tls = {file("own.pem", made.certificate), file("own.key", made.key),
             file("authority.pem", authority.certificate)};
  }
  tls::CertificateAndKey authority = tls::make_authority("Twinloft", {OsClock().wall(), 3650}).value();
};

TEST_F(CheckCertificateTest, ACertificateIsEnough) {
  Findings found = check_volume(s);
  for (const auto& e : found.errors) EXPECT_TRUE(e.find("tls") == std::string::npos) << e;
  EXPECT_TRUE(read_link_security(s)->tls->has_certificate());
}

TEST_F(CheckCertificateTest, WhatIsWrongWithItIsNamed) {
  auto finds = [&](const std::vector<std::string>& texts, std::string_view words) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const std::string& t) { return t.find(words) != std::string::npos; });
  };
  own({net::certificate_name(Uuid::parse(s.uuid).value(), 1)}, 20);
  EXPECT_TRUE(finds(check_volume(s).warnings, "the certificate ends on "));
  own({net::certificate_name(Uuid::parse(s.uuid).value(), 1)}, 5, -10);
  EXPECT_TRUE(finds(check_volume(s).errors, "the certificate has ended on "));
  own({net::certificate_name(Uuid::parse(s.uuid).value(), 2)}, 100);
  EXPECT_TRUE(finds(check_volume(s).errors, "replica/2, and this replica is twinloft:"));
  own({"site:mail1"}, 100);
  EXPECT_FALSE(finds(check_volume(s).errors, "and this replica is")) << "a site's own names are its own";
  EXPECT_EQ(::chmod(s.tls.key.c_str(), 0644), 0);
  EXPECT_TRUE(finds(check_volume(s).errors, "others may read the private key: chmod 600 it"));
  EXPECT_EQ(::chmod(s.tls.key.c_str(), 0600), 0);
  s.tls.key = file("other.key", tls::make_authority("Other", {OsClock().wall(), 1})->key);
  EXPECT_TRUE(finds(check_volume(s).errors, "the private key is not the certificate's"));
  own({"site:mail1"}, 100);
  s.tls.authority = file("none.pem", "");
  EXPECT_TRUE(finds(check_volume(s).errors, "none.pem: the authority: it has no certificate"));
  s.tls.certificate = where + "/none";
  EXPECT_TRUE(finds(check_volume(s).errors, "No such file"));
}

TEST_F(CheckTest, ClearTextIsNamed) {
  s.secret_file.clear();
  s.peers[0].direct_cable = true;
  Findings found = check_volume(s);
  EXPECT_TRUE(found.errors.empty()) << found.errors[0];
  EXPECT_TRUE(says(found.warnings, "replica 2: its link is in clear text"));
  s.peers[0].direct_cable = false;
  s.secret_file = file("secret", "sixteen letters and more\n");
  s.accept_old_release = true;
  EXPECT_TRUE(says(check_volume(s).warnings, "accept_old_release"));
  EXPECT_FALSE(says(check_volume(s).warnings, "kernel_tls"));
  s.accept_old_release = false, s.kernel_tls = true;
  const auto warned = says(check_volume(s).warnings, "kernel_tls: OpenSSL encrypts instead");
  const bool has = stream::kernel_has_tls(stream::RecordCipher::aes_128_gcm).has_value();
  EXPECT_NE(static_cast<bool>(warned), has) << warned.message();
}

TEST_F(CheckTest, FilesAndDirectories) {
  std::string data = s.data, journal = s.journal;
  s.data = where + "/none";
  EXPECT_TRUE(
      says(check_volume(s).errors, "none does not exist, and " + journal + " is this replica's journal"));
  s.data = where;
  EXPECT_TRUE(says(check_volume(s).errors, "neither a file nor a block device"));
  s.data = data;
  s.journal = where + "/none";
  EXPECT_EQ(check_volume(s).warnings.size(), 2u)
      << "the journal is missing, and `create` would not overwrite the data area";
  s.data = file("empty", "");
  EXPECT_EQ(check_volume(s).warnings.size(), 2u) << "both are missing";
  EXPECT_TRUE(check_volume(s).errors.empty());
  s.data = data, s.journal = journal;
  s.archive = where + "/missing";
  EXPECT_TRUE(says(check_volume(s).warnings, "is not a directory")) << "the volume is served nevertheless";
  EXPECT_TRUE(check_volume(s).errors.empty());
}

TEST_F(CheckTest, Addresses) {
  s.listen = {"192.0.2.1"};
  EXPECT_TRUE(says(check_volume(s).errors, "listen: \"192.0.2.1\""));
  s.listen = {"0.0.0.0:7710"};
  s.peers[0].addresses = {"192.0.2.300:1"};
  EXPECT_TRUE(says(check_volume(s).errors, "192.0.2.300"));
  s.peers[0].addresses = {"[fe80::1]:7710"};
  EXPECT_TRUE(says(check_volume(s).errors, "needs its interface"));
  s.peers[0].addresses = {"192.0.2.2:7710"};
  s.listen = {"192.0.2.1:7710"};  // no interface has this address
  EXPECT_TRUE(says(check_volume(s).warnings, "Cannot assign requested address"));
  s.listen = {"127.0.0.1:7710"};
  EXPECT_TRUE(
      says(check_volume(s).errors, "is reached from this machine only, and replica 2 is at 192.0.2.2:7710"));
}

TEST_F(CheckTest, SeveralAddresses) {
  s.listen = {"127.0.0.1:7710", "127.0.0.2:7710"};
  s.peers[0].addresses = {"127.0.0.3:7710", "127.0.0.2:7710"};
  EXPECT_TRUE(
      says(check_volume(s).errors, "127.0.0.2:7710 is this replica's own listen address (127.0.0.2:7710)"));
  s.peers[0].addresses = {"127.0.0.3:7710", "192.0.2.2:7710"};
  EXPECT_TRUE(says(check_volume(s).errors, "replica 2 is at 192.0.2.2:7710"));
  s.listen = {"127.0.0.1:7710", "192.0.2.1:7710"};
  EXPECT_FALSE(says(check_volume(s).errors, "is reached from this machine only"));
  EXPECT_TRUE(says(check_volume(s).warnings, "listen: Cannot assign") ||
              says(check_volume(s).warnings, "192.0.2.1:7710"));
}

// The name may resolve later, when the volume is served.
TEST_F(CheckTest, ANameThatIsNotKnownNow) {
  s.peers[0].addresses = {"peer.invalid:7710"};
  Findings found = check_volume(s);
  EXPECT_TRUE(found.errors.empty()) << found.errors[0];
  EXPECT_TRUE(says(found.warnings, "looked up again at each attempt"));
}

TEST_F(CheckTest, WhatServeWouldRefuse) {
  s.arena = 4u << 20;
  EXPECT_TRUE(says(check_volume(s).errors, "arena: 4 MiB is too small: at least 41 MiB are needed"));
  s.arena = 64u << 20;
  for (std::string* path : {&s.fuse_file, &s.control}) {
    *path = where + "/missing/x";
    EXPECT_TRUE(
        says(check_volume(s).errors, "its directory " + where + "/missing: No such file or directory"));
    path->clear();
  }
  s.nbd_listen = "unix:" + where + "/missing/x";
  EXPECT_TRUE(says(check_volume(s).errors, "nbd.listen"));
  s.nbd_listen.clear();
  EXPECT_TRUE(says(check_volume(s).warnings, "nothing can use the volume"));
}

TEST_F(CheckTest, PartsThatAreNotWhole) {
  std::filesystem::resize_file(s.data, 1u << 20);
  EXPECT_TRUE(says(check_volume(s).errors, "this is not its data area, or it was truncated"));
  std::filesystem::resize_file(s.data, s.size + 4096);
  EXPECT_TRUE(says(check_volume(s).errors, "no data label here"));
  s.data = s.journal;
  std::filesystem::resize_file(s.journal, 16u << 20);
  EXPECT_EQ(check_volume(s).errors.size(), 2u) << "a truncated journal is not a data area";
  s.data = where + "/none";
  s.journal = file("foreign", std::string(1u << 20, 'x'));
  EXPECT_TRUE(says(check_volume(s).errors, "this is not the journal of a volume"));
}

TEST_F(CheckTest, MoreMemoryThanTheMachineHas) {
  s.arena = 1ull << 50;
  EXPECT_TRUE(says(check_volume(s).errors, "the arena is locked in memory"));
  VolumeRunner runner(s);
  auto started = runner.start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Errc::invalid) << started.error().message;
}

TEST_F(CheckTest, FilesInTheWay) {
  s.nbd_listen = "unix:" + file("taken", "x");
  EXPECT_TRUE(says(check_volume(s).errors, "nbd.listen: " + where + "/taken: is not a socket"));
  s.nbd_listen = "unix:" + where + "/nbd";
  s.control = where + "/taken";
  EXPECT_TRUE(says(check_volume(s).errors, "control: " + where + "/taken: is not a socket"));
  s.control = where + "/control";
  s.fuse_file = where;
  EXPECT_TRUE(says(check_volume(s).errors, "must be a regular file"));
  s.fuse_file = "/proc/version";  // a file, and no mount point
  EXPECT_TRUE(check_volume(s).errors.empty());
  s.fuse_file.clear();
  s.fuse_device = where + "/taken";
  EXPECT_TRUE(
      says(check_volume(s).errors, "fuse.device: " + where + "/taken: exists and is not a symbolic link"));
  s.fuse_device = where + "/link";
  std::filesystem::create_symlink("/dev/null", s.fuse_device);
  EXPECT_TRUE(says(check_volume(s).errors, "which cannot be a volume's device"));
}

// Another process holds the volume's files. If that process serves this volume, this is not an error.
TEST_F(CheckTest, WhoIsInTheWay) {
  OsClock clock;
  loopback::Listening tcp = loopback::listen();
  s.nbd_listen = tcp.address();
  EXPECT_TRUE(says(check_volume(s).errors, "Address already in use"));
  auto held = io::open_direct(s.data, io::Access::read_write);
  ASSERT_TRUE(held);
  EXPECT_EQ(check_volume(s).errors.size(), 2u);
  s.control = where + "/control";
  for (const char* status : {"{\"served\":true}", "{\"served\":false}"}) {
    auto loop = io::UringLoop::create(clock, {.entries = 64}).value();  // bound to this thread
    control::Server server(*loop, s.control, [&](const std::string&, control::Server::Reply reply) {
      reply(std::string(status));
    });
    ASSERT_TRUE(server.start());
    std::thread serving([&] { EXPECT_TRUE(loop->run()); });
    Findings found = check_volume(s);
    loop->post([&] { loop->stop(); });
    serving.join();
    EXPECT_EQ(found.errors.size(), std::string_view(status).contains("true") ? 0u : 2u) << status;
  }
  Fd stranger(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un path{};
  path.sun_family = AF_UNIX;
  std::memcpy(path.sun_path, s.control.c_str(), s.control.size());
  ASSERT_EQ(::bind(stranger.get(), reinterpret_cast<sockaddr*>(&path), sizeof path), 0);
  ASSERT_EQ(::listen(stranger.get(), 1), 0);
  EXPECT_EQ(check_volume(s).errors.size(), 3u) << "the other program does not answer like spool-repl";
}

TEST_F(CheckTest, AnotherVolumesJournal) {
  Findings good = check_volume(s);
  EXPECT_TRUE(good.errors.empty()) << good.errors[0];
  s.size = 32u << 20;
  EXPECT_TRUE(says(check_volume(s).errors, "size: 33554432 bytes, and the volume was created with 16777216"));
  s.size = 0;
  s.replica = 3;
  EXPECT_TRUE(says(check_volume(s).errors, "is replica 1, the configuration says 3"));
  s.replica = 1;
  s.uuid = "5c1a0e7e-0000-4000-8000-00000000beef";
  EXPECT_TRUE(says(check_volume(s).errors, "wrong path or wrong uuid"));
}

TEST_F(CheckTest, OneFileInTwoVolumes) {
  NodeSettings node;
  node.volumes = {s, s};
  node.volumes[1].name = "other";
  node.volumes[1].listen = {"0.0.0.0:7711"};
  node.volumes[1].nbd_listen.clear();
  node.volumes[1].control = where + "/other";
  node.volumes[1].journal = file("another", "x");
  node.volumes[1].data = where + "/link";
  std::filesystem::create_hard_link(s.data, where + "/link");
  Findings found = check_shared(node);
  ASSERT_EQ(found.errors.size(), 1u);
  EXPECT_EQ(found.errors[0],
            "volume other: data: " + where + "/link is the same as that of volume mail: data");
  node.volumes[1].data = file("its-own", "x");
  EXPECT_TRUE(check_shared(node).errors.empty());
}

// This includes sockets, links and addresses, whatever their names.
TEST_F(CheckTest, OnePlaceInTwoVolumes) {
  NodeSettings node;
  node.volumes = {s, s};
  VolumeSettings &mail = node.volumes[0], &other = node.volumes[1];
  other.name = "other";
  other.journal = file("another", "x");
  other.data = file("its-own", "x");
  other.listen = {"0.0.0.0:7711"};
  other.nbd_listen = "unix:" + where + "/nbd";
  mail.control = where + "/mail", other.control = where + "/other";
  EXPECT_TRUE(check_shared(node).errors.empty());
  std::filesystem::create_directory_symlink(where, where + "/again");
  auto only = [&](std::string_view words) {
    Findings found = check_shared(node);
    return found.errors.size() == 1 && found.errors[0].find(words) != std::string::npos
               ? ""
               : fmt::format("{}", fmt::join(found.errors, "\n"));
  };
  other.control = where + "/again/mail";
  EXPECT_EQ(only("is the same as that of volume mail: control"), "");
  other.control = where + "/./mail";
  EXPECT_EQ(only("is the same as that of volume mail: control"), "");
  other.control = where + "/nbd";
  EXPECT_EQ(only("volume other: nbd.listen: "), "") << "within one volume";
  other.control = where + "/other";
  other.listen = {"127.0.0.1:7710"};
  EXPECT_EQ(only("volume other: listen: 127.0.0.1:7710 is already in use by volume mail: listen, "
                 "0.0.0.0:7710"),
            "");
  other.listen = {"127.0.0.1:7711"};
  other.nbd_listen = "0.0.0.0:7711";
  EXPECT_EQ(only("volume other: nbd.listen: 0.0.0.0:7711 is already in use by volume other: listen"), "");
}

TEST_F(CheckTest, PeersWhereNoPeerCanBe) {
  s.peers[0].addresses = {"127.0.0.1:7710"};
  EXPECT_TRUE(
      says(check_volume(s).errors, "127.0.0.1:7710 is this replica's own listen address (0.0.0.0:7710)"));
  s.peers[0].addresses = {"192.0.2.2:7710"};
  s.peers.push_back({3, {"192.0.2.2:7710"}, core::Protocol::C});
  EXPECT_TRUE(
      says(check_volume(s).errors, "192.0.2.2:7710 is replica 2's, and replica 3 cannot be there too"));
  s.peers.pop_back();
  s.peers[0].addresses = {"[fe80::2%nic-of-nobody]:7710"};
  EXPECT_TRUE(says(check_volume(s).warnings, "no network interface \"nic-of-nobody\" now"));
  s.listen = {"127.0.0.1:7710"};
  s.peers[0].addresses = {"[::ffff:127.0.0.2]:7710"};
  EXPECT_TRUE(check_volume(s).errors.empty()) << "the address is this machine's";
}

// The same refusals as those of `serve`.
TEST_F(CheckTest, TheArbitersFiles) {
  s.arbiter.kind = arbiter::Kind::etcd;
  s.arbiter.endpoints = {"https://192.0.2.3:2379"};
  s.arbiter.ca_file = where + "/no-ca";
  EXPECT_TRUE(says(check_volume(s).errors, "arbiter: " + s.arbiter.ca_file + ": "));
  s.arbiter.ca_file = file("ca", "no certificate\n");
  EXPECT_TRUE(says(check_volume(s).errors, "arbiter: " + s.arbiter.ca_file + ": "));
  s.arbiter.ca_file.clear();
  s.arbiter.user = "mail";
  s.arbiter.password_file = where + "/no-password";
  EXPECT_TRUE(says(check_volume(s).errors, "arbiter: " + s.arbiter.password_file + ": No such file"));
  s.arbiter = {};
  s.arbiter.kind = arbiter::Kind::pacemaker;
  s.arbiter.nodes = {{1, "a"}, {2, "b"}};
  s.arbiter.programs = where;
  file("crm_node", "", 0700);
  EXPECT_TRUE(says(check_volume(s).errors, "arbiter.programs: " + where + "/cibadmin: No such file"));
}

TEST_F(CheckTest, AJournalOfAnotherSizeThanTheFileSays) {
  s.journal_size = 64u << 20;
  Findings found = check_volume(s);
  EXPECT_TRUE(found.errors.empty());
  EXPECT_TRUE(says(found.warnings, "journal_size: 64 MiB, and " + s.journal + " was made with 32 MiB"));
}

TEST_F(CheckTest, NbdForEverybody) {
  for (const char* open : {"0.0.0.0:10809", "[::]:10809"}) {
    s.nbd_listen = open;
    Findings found = check_volume(s);
    EXPECT_TRUE(found.errors.empty());
    EXPECT_TRUE(says(found.warnings, "no authentication")) << open;
  }
  s.nbd_listen = "127.0.0.1:10809";
  EXPECT_TRUE(check_volume(s).warnings.empty());
}

TEST_F(CheckTest, UblkWithoutTheDriver) {
  s.ublk_device = where + "/device";
  Findings found = check_volume(s);
  EXPECT_TRUE(found.errors.empty());
  bool there = ::access("/dev/ublk-control", F_OK) == 0;
  EXPECT_EQ(says(found.warnings, "ublk_drv"), !there);
}

TEST_F(CheckTest, CreateRefusesTheNilIdentity) {
  s.uuid = "00000000-0000-0000-0000-000000000000";
  auto made = create_volume(s);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("the nil UUID is not allowed"), std::string::npos)
      << made.error().message;
}

}  // namespace
}  // namespace twinloft::repl::daemon
