// Configurations: what each key becomes, and how each error is reported.
#include "config_fixture.h"

namespace twinloft::repl::daemon {
namespace {

const std::string full = R"(log_level = "debug"
[volume.mail]
uuid = "6f1c1c0e-8f5b-4c55-9d0a-3f0a8e0b1d10"
replica = 2
role = "secondary"
size = "20GiB"
data = "/srv/data"
journal = "/srv/journal"
journal_size = "512MiB"
arena = 134217728
listen = "10.0.0.2:7788"
secret_file = "/etc/twinloft/secret"
tls_certificate = "/etc/twinloft/own.pem"
tls_key = "/etc/twinloft/own.key"
tls_authority = "/etc/twinloft/authority.pem"
accept_old_release = true
kernel_tls = true
control = "/run/mail.sock"
write_ack = "durable"
seal_after = "250us"
peer_timeout = "1min"
journal_writes_in_flight = 8
[[volume.mail.peer]]
id = 1
address = "10.0.0.1:7788"
protocol = "B"
certificate_name = "mail1.example.org"
clear_text = "direct-cable"
[volume.mail.fuse]
file = "/run/twinloft/mail"
device = "/dev/twinloft/mail"
[volume.mail.nbd]
listen = "unix:/run/mail.nbd"
)";

constexpr const char* nbd_with_tls = R"([volume.mail.nbd]
listen = "10.0.0.2:10809"
tls_certificate = "/etc/twinloft/nbd.pem"
tls_key = "/etc/twinloft/nbd.key"
tls_authority = "/etc/twinloft/authority.pem"
)";

TEST_F(ConfigTest, EverythingIsRead) {
  auto out = load(full);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->log_level, LogLevel::debug);
  ASSERT_EQ(out->volumes.size(), 1u);
  const VolumeSettings& v = out->volumes[0];
  EXPECT_EQ(v.name, "mail");
  EXPECT_EQ(v.uuid, "6f1c1c0e-8f5b-4c55-9d0a-3f0a8e0b1d10");
  EXPECT_EQ(v.replica, 2u);
  EXPECT_EQ(v.role, core::Role::secondary);
  EXPECT_EQ(v.size, 20ull << 30);
  EXPECT_EQ(v.data, "/srv/data");
  EXPECT_EQ(v.journal, "/srv/journal");
  EXPECT_EQ(v.journal_size, 512ull << 20);
  EXPECT_EQ(v.arena, 128ull << 20);
  EXPECT_EQ(v.listen, std::vector<std::string>{"10.0.0.2:7788"});
  EXPECT_EQ(v.secret_file, "/etc/twinloft/secret");
  EXPECT_EQ(v.tls,
            (TlsSettings{"/etc/twinloft/own.pem", "/etc/twinloft/own.key", "/etc/twinloft/authority.pem"}));
  EXPECT_TRUE(v.accept_old_release && v.kernel_tls);
  EXPECT_EQ(v.control, "/run/mail.sock");
  EXPECT_TRUE(v.write_ack_durable);
  EXPECT_EQ(v.seal_after, std::chrono::microseconds(250));
  EXPECT_EQ(v.peer_timeout, std::chrono::minutes(1));
  EXPECT_EQ(v.journal_writes_in_flight, 8u);
  ASSERT_EQ(v.peers.size(), 1u);
  EXPECT_EQ(v.peers[0].id, 1u);
  EXPECT_EQ(v.peers[0].addresses, std::vector<std::string>{"10.0.0.1:7788"});
  EXPECT_EQ(v.peers[0].protocol, core::Protocol::B);
  EXPECT_EQ(v.peers[0].certificate_name, "mail1.example.org");
  EXPECT_TRUE(v.peers[0].direct_cable);
  EXPECT_EQ(v.fuse_file, "/run/twinloft/mail");
  EXPECT_EQ(v.fuse_device, "/dev/twinloft/mail");
  EXPECT_EQ(v.nbd_listen, "unix:/run/mail.nbd");
  EXPECT_EQ(v.nbd_name, "mail");
}

constexpr const char* far_peer = R"(listen = "10.0.0.2:7788"
secret_file = "/etc/twinloft/secret"
spill = "/var/lib/twinloft/spill"
[[volume.mail.peer]]
id = 3
address = "10.0.0.3:7788"
protocol = "A"
buffer = "64GiB"
)";

TEST_F(ConfigTest, BufferedLinks) {
  auto out = load(minimal + far_peer);
  ASSERT_TRUE(out) << out.error().message;
  using WhenFull = core::BufferConfig::WhenFull;
  EXPECT_EQ(out->volumes[0].peers[0].buffer, (core::BufferConfig{64ull << 30, WhenFull::slow_down}));
  EXPECT_EQ(out->volumes[0].spill, "/var/lib/twinloft/spill");
  out = load(minimal + far_peer + "buffer_full = \"resync\"\n");
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->volumes[0].peers[0].buffer->when_full, WhenFull::resync);

  std::string far = minimal + far_peer;
  auto with = [&](std::string_view before, std::string_view after) {
    std::string text = far;
    return text.replace(text.find(before), before.size(), after);
  };
  constexpr int buffer_line = minimal_lines + 8;
  EXPECT_TRUE(refused(with("\"A\"", "\"B\""), buffer_line, "volume.mail.peer.buffer", "needs protocol"));
  EXPECT_TRUE(refused(with("64GiB", "1MiB"), buffer_line, "volume.mail.peer.buffer", "at least 16 MiB"));
  EXPECT_TRUE(
      refused(far + "clear_text = \"direct-cable\"\n", buffer_line, "volume.mail.peer.buffer", "needs TLS"));
  EXPECT_TRUE(refused(with("secret_file", "archive"), buffer_line, "volume.mail.peer.buffer",
                      "needs TLS. Set tls_certificate, or secret_file"));
  EXPECT_TRUE(refused(with("buffer = \"64GiB\"", "buffer_full = \"resync\""), buffer_line,
                      "volume.mail.peer.buffer_full", "set `buffer` too"));
  EXPECT_TRUE(
      refused(with("buffer = \"64GiB\"\n", ""), minimal_lines + 3, "volume.mail.spill", "no [[peer]]"));
  EXPECT_TRUE(refused(far + "buffer_full = \"drop\"\n", buffer_line + 1, "volume.mail.peer.buffer_full",
                      "\"slow-down\", \"resync\""));
}

TEST_F(ConfigTest, Compression) {
  auto out = load(minimal + far_peer + "compression = \"zstd:9\"\n");
  ASSERT_TRUE(out) << out.error().message;
  const PeerSettings& far = out->volumes[0].peers[0];
  EXPECT_EQ(far.compression, compress::Setting(compress::Method{compress::Codec::zstd, 9}));
  EXPECT_EQ(far.packing().link, stream::LinkClass::bulk) << "nothing waits for protocol A";
  EXPECT_GE(out->compression_threads, 1u);
  out = load("compression_threads = 3\n" + minimal + far_peer);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->volumes[0].peers[0].compression, compress::Setting(compress::Method{}));
  EXPECT_EQ(out->compression_threads, 3u);
  EXPECT_EQ(out->volumes[0].compression_threads, 3u);
  constexpr int line = minimal_lines + 9;
  EXPECT_TRUE(refused(minimal + far_peer + "compression = \"gzip\"\n", line, "volume.mail.peer.compression",
                      "\"gzip\" is no codec: expected \"none\", \"lz4\""));
  EXPECT_TRUE(refused(minimal + far_peer + "compression = 5\n", line, "volume.mail.peer.compression",
                      "expected a text in quotes"));
  EXPECT_TRUE(refused("compression_threads = 0\n" + minimal, 1, "compression_threads",
                      "expected a number from 1 to 256"));
}

TEST_F(ConfigTest, Bandwidth) {
  std::string peer = minimal + far_peer + "bandwidth = \"20MiB\"\nbandwidth_at = [\"08:00-18:00 4MiB\"]\n";
  auto out = load("bandwidth_at = [\"00:00-06:00 unlimited\", \"12:00-13:00 1MiB\"]\n" + peer);
  ASSERT_TRUE(out) << out.error().message;
  const stream::BandwidthPlan& own = out->volumes[0].peers[0].bandwidth;
  EXPECT_EQ(own.at(0), stream::Rate(20u << 20));
  EXPECT_EQ(own.at(8 * 60), stream::Rate(4u << 20));
  EXPECT_EQ(out->bandwidth.at(0), stream::Rate());
  EXPECT_EQ(out->bandwidth.at(12 * 60), stream::Rate(1u << 20));
  constexpr int line = minimal_lines + 9;
  std::string far = minimal + far_peer;
  EXPECT_TRUE(refused(far + "bandwidth = \"1KiB\"\n", line, "volume.mail.peer.bandwidth",
                      "at least 128 KiB a second"));
  EXPECT_TRUE(refused(far + "bandwidth = \"fast\"\n", line, "volume.mail.peer.bandwidth", "fast"));
  EXPECT_TRUE(refused(far + "bandwidth_at = \"08:00-18:00 4MiB\"\n", line, "volume.mail.peer.bandwidth_at",
                      "expected a list of texts"));
  EXPECT_TRUE(refused(far + "bandwidth_at = [5]\n", line, "volume.mail.peer.bandwidth_at",
                      "expected a list of texts"));
  EXPECT_TRUE(refused(far + "bandwidth_at = [\"8-18 4MiB\"]\n", line, "volume.mail.peer.bandwidth_at",
                      "expected hours and a rate"));
  EXPECT_TRUE(refused("bandwidth = \"1KiB\"\n" + minimal, 1, "bandwidth", "at least 128 KiB a second"));
}

TEST_F(ConfigTest, LinkMemory) {
  std::string peer = minimal + far_peer;
  auto usual = load(peer);
  ASSERT_TRUE(usual) << usual.error().message;
  EXPECT_FALSE(usual->link_memory);
  EXPECT_EQ(link_memory_of(*usual), 96u << 20);
  EXPECT_EQ(link_memory_of(*usual, usual->volumes), 192u << 20) << "also volumes that a reload has left out";
  auto out = load("link_memory = \"8MiB\"\n" + peer);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->link_memory, 8u << 20);
  EXPECT_TRUE(refused("link_memory = \"7MiB\"\n" + peer, 1, "link_memory",
                      "at least 8 MiB for the links of this file: 4 MiB for each, 8 MiB for a buffered one"));
  EXPECT_TRUE(refused("link_memory = \"much\"\n" + minimal, 1, "link_memory", "much"));
}

TEST_F(ConfigTest, Defaults) {
  auto out = load(minimal);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->log_level, LogLevel::info);
  const VolumeSettings& v = out->volumes.at(0);
  EXPECT_EQ(v.control, "/run/twinloft/mail.sock");
  EXPECT_FALSE(v.write_ack_durable);
  EXPECT_EQ(v.seal_after, std::chrono::milliseconds(5));
  EXPECT_TRUE(v.peers.empty() && v.fuse_file.empty() && v.nbd_listen.empty());
}

TEST_F(ConfigTest, TheFuseFileHasATransport) {
  std::string section = minimal + "[volume.mail.fuse]\nfile = \"/run/twinloft/mail\"\n";
  auto out = load(section);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->volumes[0].fuse_transport, "auto");
  for (std::string value : {"auto", "io-uring", "dev-fuse"}) {
    out = load(section + "transport = \"" + value + "\"\n");
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_EQ(out->volumes[0].fuse_transport, value);
  }
  auto refused = load(section + "transport = \"uring\"\n");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("expected \"auto\", \"io-uring\" or \"dev-fuse\""),
            std::string::npos)
      << refused.error().message;
}

TEST_F(ConfigTest, UblkIsABlockDeviceInPlaceOfFuse) {
  auto out = load(minimal + "[volume.mail.ublk]\ndevice = \"/run/twinloft/mail\"\n");
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->volumes[0].ublk_device, "/run/twinloft/mail");
  EXPECT_TRUE(out->volumes[0].fuse_file.empty());
  for (const char* wrong : {"[volume.mail.ublk]\n", "[volume.mail.ublk]\ndevice = \"mail\"\n",
                            "[volume.mail.ublk]\ndevice = \"/a\"\nqueues = 2\n",
                            "[volume.mail.ublk]\ndevice = \"/a\"\n[volume.mail.fuse]\nfile = \"/b\"\n"}) {
    auto refused = load(minimal + wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_NE(refused.error().message.find("ublk"), std::string::npos) << refused.error().message;
  }
}

TEST_F(ConfigTest, ManyVolumes) {
  std::string second = minimal;
  second.replace(second.find("mail"), 4, "archive");
  second.replace(second.find("/srv/data"), 9, "/srv/archive/data");
  second.replace(second.find("/srv/journal"), 12, "/srv/archive/journal");
  auto out = load(minimal + second);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->volumes.size(), 2u);
}

TEST_F(ConfigTest, NbdOverTcpMayHaveTls) {
  auto out = load(std::string(minimal) + nbd_with_tls);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->volumes[0].nbd_tls,
            (TlsSettings{"/etc/twinloft/nbd.pem", "/etc/twinloft/nbd.key", "/etc/twinloft/authority.pem"}));
  std::string text = std::string(minimal) + nbd_with_tls;
  text.replace(text.find("10.0.0.2:10809"), 14, "unix:/run/mail.nbd");
  EXPECT_TRUE(
      refused(text, minimal_lines + 3, "volume.mail.nbd.tls_certificate", "does not apply to a Unix socket"));
}

TEST_F(ConfigTest, UnknownKeysAreNamedAtEveryLevel) {
  EXPECT_TRUE(refused("colour = 1\n" + minimal, 1, "colour", "unknown key"));
  EXPECT_TRUE(refused(minimal + "colour = 1\n", 6, "volume.mail.colour", "unknown key"));
  EXPECT_TRUE(refused(full + "colour = 1\n", 34, "volume.mail.nbd.colour", "unknown key"));
  EXPECT_TRUE(refused(minimal + "[[volume.mail.peer]]\nid = 2\nport = 5\naddress = \"a:1\"\n", 8,
                      "volume.mail.peer.port", "unknown key"));
}

TEST_F(ConfigTest, SeveralPaths) {
  auto peer = [](const std::string& address, const std::string& more = "") {
    return minimal +
           "listen = [\"10.0.0.2:1\", \"10.0.1.2:1\"]\n[[volume.mail.peer]]\nid = 2\naddress = " + address +
           "\n" + more;
  };
  auto out = load(peer("[\"10.0.0.1:1\", \"10.0.1.1:1\"]"));
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->volumes[0].listen, (std::vector<std::string>{"10.0.0.2:1", "10.0.1.2:1"}));
  EXPECT_EQ(out->volumes[0].peers[0].addresses, (std::vector<std::string>{"10.0.0.1:1", "10.0.1.1:1"}));
  EXPECT_EQ(out->volumes[0].peers[0].paths, stream::PathUse::spares);
  out = load(peer("[\"10.0.0.1:1\", \"b:1\"]", "paths = \"together\"\n"));
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->volumes[0].peers[0].paths, stream::PathUse::together);
  EXPECT_EQ(load(peer("[\"10.0.0.1:1\"]"))->volumes[0].peers[0].addresses.size(), 1u);

  EXPECT_TRUE(refused(peer("[]"), 9, "volume.mail.peer.address", "the list is empty"));
  EXPECT_TRUE(refused(peer("[\"a:1\", 7]"), 9, "volume.mail.peer.address", "expected a text in quotes"));
  EXPECT_TRUE(
      refused(peer("[\"a:1\", \"a:1\"]"), 9, "volume.mail.peer.address", "\"a:1\" is in the list twice"));
  EXPECT_TRUE(refused(peer("[\"a:1\", \"b\"]"), 9, "volume.mail.peer.address", "\"b\""));
  std::string many = "[\"a:0\"";
  for (int i = 1; i < 9; ++i) many += fmt::format(", \"a:{}\"", i);
  EXPECT_TRUE(refused(peer(many + "]"), 9, "volume.mail.peer.address", "more than 8"));
  EXPECT_TRUE(
      refused(peer("\"a:1\"", "paths = \"spares\"\n"), 10, "volume.mail.peer.paths", "several paths"));
  EXPECT_TRUE(
      refused(peer("[\"a:1\", \"b:1\"]", "paths = \"both\"\n"), 10, "volume.mail.peer.paths", "together"));
  EXPECT_TRUE(refused(peer("[\"10.0.0.1:1\", \"b:1\"]", "clear_text = \"direct-cable\"\n"), 10,
                      "volume.mail.peer.clear_text", "numeric"));
}

TEST_F(ConfigTest, WhatIsMissingIsNamed) {
  for (std::string key : {"replica", "role", "data", "journal"}) {
    std::string text = minimal;
    std::size_t at = text.find("\n" + key + " =") + 1;
    text.erase(at, text.find('\n', at) + 1 - at);
    EXPECT_TRUE(refused(text, 1, "volume.mail." + key, "is missing"));
  }
  EXPECT_TRUE(
      refused(minimal + "[[volume.mail.peer]]\naddress = \"a:1\"\n", 6, "volume.mail.peer.id", "is missing"));
  EXPECT_TRUE(refused(minimal + "listen = \"a:1\"\n[[volume.mail.peer]]\nid = 2\n", 7,
                      "volume.mail.peer.address", "is missing"));
  EXPECT_TRUE(refused(minimal + "[[volume.mail.peer]]\nid = 2\naddress = \"a:1\"\n", 1, "volume.mail.listen",
                      "the volume has a peer"));
  EXPECT_TRUE(refused(minimal + "[volume.mail.fuse]\ndevice = \"/dev/x\"\n", 6, "volume.mail.fuse.file",
                      "is missing"));
  EXPECT_TRUE(refused(minimal + "[volume.mail.nbd]\n", 6, "volume.mail.nbd.listen", "is missing"));
}

TEST_F(ConfigTest, WrongValuesAreNamed) {
  struct Case {
    const char* key;
    const char* value;
    const char* words;
  };
  for (const Case& c : {Case{"uuid", "\"no\"", "no"},
                        {"uuid", "7", "text in quotes"},
                        {"size", "\"12 apples\"", "not a size"},
                        {"size", "\"0GiB\"", "must not be 0"},
                        {"size", "-4096", "not a size"},
                        {"size", "true", "not a size"},
                        {"size", "\"99999999999TiB\"", "not a size"},
                        {"size", "4097", "multiple of 4096"},
                        {"journal_size", "\"1XB\"", "not a size"},
                        {"arena", "\"\"", "not a size"},
                        {"arena", "1.5", "not a size"},
                        {"listen", "7788", "text in quotes"},
                        {"secret_file", "\"secret\"", "absolute path"},
                        {"tls_key", "\"key\"", "absolute path"},
                        {"kernel_tls", "\"yes\"", "true or false"},
                        {"accept_old_release", "\"yes\"", "true or false"},
                        {"accept_old_release", "true", "needs secret_file"},
                        {"control", "\"run.sock\"", "absolute path"},
                        {"write_ack", "\"maybe\"", "\"memory\", \"durable\""},
                        {"write_ack", "true", "text in quotes"},
                        {"seal_after", "5", "not a time"},
                        {"seal_after", "\"5 ms\"", "not a time"},
                        {"seal_after", "\"0ms\"", "must not be 0"},
                        {"peer_timeout", "\"6 weeks\"", "not a time"},
                        {"journal_writes_in_flight", "0", "from 1 to 64"},
                        {"journal_writes_in_flight", "65", "from 1 to 64"},
                        {"journal_writes_in_flight", "\"4\"", "from 1 to 64"},
                        {"control", "\"\"", "must not be empty"},
                        {"peer_timeout", "\"1ns\"", "at least \"50ms\""},
                        {"slow_peer", "\"1us\"", "at least \"50ms\""},
                        {"seal_after", "1.5", "not a time"},
                        {"listen", "\"*:7788\"", "names no host"},
                        {"listen", "\":7788\"", "names no host"},
                        {"peer", "3", "[[volume.mail.peer]]"},
                        {"fuse", "\"/run/x\"", "section"},
                        {"nbd", "true", "section"}})
    EXPECT_TRUE(refused(minimal + c.key + " = " + c.value + "\n", minimal_lines + 1,
                        std::string("volume.mail.") + c.key, c.words))
        << c.key << " = " << c.value;
}

TEST_F(ConfigTest, WrongRequiredValues) {
  auto with = [](const std::string& from, const std::string& to) {
    std::string text = minimal;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_TRUE(refused(with("replica = 1", "replica = 0"), 2, "volume.mail.replica", "from 1 to 64"));
  EXPECT_TRUE(refused(with("replica = 1", "replica = 65"), 2, "volume.mail.replica", "from 1 to 64"));
  EXPECT_TRUE(
      refused(with("\"primary\"", "\"Primary\""), 3, "volume.mail.role", "\"primary\", \"secondary\""));
  EXPECT_TRUE(refused(with("\"/srv/data\"", "\"srv/data\""), 4, "volume.mail.data", "absolute path"));
  EXPECT_TRUE(refused(with("\"/srv/data\"", "\"\""), 4, "volume.mail.data", "must not be empty"));
  EXPECT_TRUE(refused(with("\"/srv/data\"", "\"/srv/\\u0000\""), 4, "volume.mail.data", "text in quotes"));
  EXPECT_TRUE(refused(with("/srv/journal", "/srv/data"), 5, "volume.mail.journal", "the data area itself"));
  EXPECT_TRUE(refused("log_level = \"loud\"\n" + minimal, 1, "log_level", "\"warning\""));
}

TEST_F(ConfigTest, Peers) {
  std::string with_listen = minimal + "listen = \"127.0.0.1:1\"\n";
  auto peer = [](int id, const char* more = "") {
    return fmt::format("[[volume.mail.peer]]\nid = {}\naddress = \"127.0.0.1:2\"\n{}", id, more);
  };
  EXPECT_TRUE(load(with_listen + peer(2)));
  EXPECT_EQ(load(with_listen + peer(2))->volumes[0].peers[0].protocol, core::Protocol::C);
  EXPECT_TRUE(refused(with_listen + peer(1), 8, "volume.mail.peer.id", "this replica's own"));
  EXPECT_TRUE(refused(with_listen + peer(2) + peer(2), 11, "volume.mail.peer.id", "used twice"));
  EXPECT_TRUE(refused(with_listen + peer(65), 8, "volume.mail.peer.id", "from 1 to 64"));
  EXPECT_TRUE(refused(with_listen + peer(2, "protocol = \"D\"\n"), 10, "volume.mail.peer.protocol",
                      "\"A\", \"B\", \"C\""));
  EXPECT_TRUE(load(with_listen + peer(2) + peer(3)));
  EXPECT_TRUE(refused(with_listen + peer(2) + peer(3) + peer(4) + peer(5) + peer(6), 7, "volume.mail.peer",
                      "4 peers"));
  EXPECT_TRUE(refused(with_listen + "peer = [1]\n", 7, "volume.mail.peer", "[[volume.mail.peer]]"));
}

TEST_F(ConfigTest, Membership) {
  std::string two = minimal + "listen = \"127.0.0.1:1\"\n";
  std::string peer = "[[volume.mail.peer]]\nid = 2\naddress = \"127.0.0.1:2\"\n";
  auto v = load(two + peer);
  ASSERT_TRUE(v);
  EXPECT_EQ(v->volumes[0].on_peer_loss, core::OnPeerLoss::suspend);
  EXPECT_EQ(v->volumes[0].min_in_sync, 1u);
  v = load(
      two +
      "on_peer_loss = \"continue\"\nmin_in_sync = 2\nslow_peer = \"3s\"\narchive = \"/var/lib/tails\"\n" +
      peer);
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->volumes[0].on_peer_loss, core::OnPeerLoss::go_on);
  EXPECT_EQ(v->volumes[0].min_in_sync, 2u);
  EXPECT_EQ(v->volumes[0].slow_peer, std::chrono::seconds(3));
  EXPECT_EQ(v->volumes[0].archive, "/var/lib/tails");
  EXPECT_EQ(v->volumes[0].resync_latency_target, std::chrono::milliseconds(20));
  EXPECT_EQ(v->volumes[0].resync_rate_min, 4u << 20);
  v = load(two + "resync_latency_target = \"8ms\"\nresync_rate_min = \"1MiB\"\n" + peer);
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->volumes[0].resync_latency_target, std::chrono::milliseconds(8));
  EXPECT_EQ(v->volumes[0].resync_rate_min, 1u << 20);
  v = load(two + "resync_latency_target = \"off\"\n" + peer);
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->volumes[0].resync_latency_target, Duration(0));
  EXPECT_TRUE(refused(two + "resync_latency_target = \"soon\"\n" + peer, 7,
                      "volume.mail.resync_latency_target", "is not a time"));
  EXPECT_TRUE(
      refused(two + "resync_rate_min = 0\n" + peer, 7, "volume.mail.resync_rate_min", "must not be 0"));
  EXPECT_TRUE(
      refused(two + "resync_rate_min = \"63KiB\"\n" + peer, 7, "volume.mail.resync_rate_min", "at least"));
  EXPECT_TRUE(refused(two + "on_peer_loss = \"panic\"\n" + peer, 7, "volume.mail.on_peer_loss",
                      "\"suspend\", \"continue\""));
  EXPECT_TRUE(refused(two + "min_in_sync = 3\n" + peer, 7, "volume.mail.min_in_sync", "from 1 to 2"));
}

TEST_F(ConfigTest, Arbiter) {
  using arbiter::Kind;
  EXPECT_EQ(load(minimal)->volumes[0].arbiter.kind, Kind::manual);
  std::string section = minimal + "[volume.mail.arbiter]\n";  // line 6
  EXPECT_EQ(load(section)->volumes[0].arbiter.kind, Kind::manual);
  EXPECT_EQ(load(section + "kind = \"manual\"\n")->volumes[0].arbiter.kind, Kind::manual);
  std::string etcd = section + "kind = \"etcd\"\n";  // line 7
  auto v = load(etcd + "endpoints = [\"http://10.0.0.3:2379\"]\n");
  ASSERT_TRUE(v) << v.error().message;
  const arbiter::Settings& a = v->volumes[0].arbiter;
  EXPECT_EQ(a.kind, Kind::etcd);
  EXPECT_EQ(a.prefix, "/twinloft");
  EXPECT_EQ(a.timeout, std::chrono::seconds(5));
  v = load(etcd + R"(endpoints = ["https://a:2379", "https://b:2379", "http://[::1]:2379"]
timeout = "800ms"
prefix = "/mail/"
ca_file = "/etc/ca.pem"
cert_file = "/etc/cert.pem"
key_file = "/etc/key.pem"
user = "spool"
password_file = "/etc/password"
)");
  ASSERT_TRUE(v) << v.error().message;
  const arbiter::Settings& b = v->volumes[0].arbiter;
  EXPECT_EQ(b.endpoints, (std::vector<std::string>{"https://a:2379", "https://b:2379", "http://[::1]:2379"}));
  EXPECT_EQ(b.timeout, std::chrono::milliseconds(800));
  EXPECT_EQ(b.prefix, "/mail/");
  EXPECT_EQ(b.ca_file + b.cert_file + b.key_file, "/etc/ca.pem/etc/cert.pem/etc/key.pem");
  EXPECT_EQ(b.user + b.password_file, "spool/etc/password");
}

TEST_F(ConfigTest, WrongArbiters) {
  EXPECT_TRUE(refused(minimal + "arbiter = \"etcd\"\n", 6, "volume.mail.arbiter", "section"));
  std::string section = minimal + "[volume.mail.arbiter]\n", etcd = section + "kind = \"etcd\"\n";
  std::string key = "volume.mail.arbiter.";
  EXPECT_TRUE(refused(section + "kind = \"zookeeper\"\n", 7, key + "kind", "\"manual\", \"etcd\""));
  EXPECT_TRUE(refused(section + "witness = 3\n", 7, key + "witness", "unknown key"));
  EXPECT_TRUE(refused(section + "endpoints = [\"http://a:1\"]\n", 7, key + "endpoints",
                      "does not apply to kind = \"manual\""));
  EXPECT_TRUE(refused(etcd, 6, key + "endpoints", "needs at least one"));
  for (auto [value, words] : std::initializer_list<std::pair<const char*, const char*>>{
           {"[]", "needs at least one"},
           {"\"http://a:1\"", "a list of texts"},
           {"[1]", "a list of texts"},
           {"[\"a:1\"]", "expected http://"},
           {"[\"http://a:1\", \"ftp://b:1\"]", "\"ftp://b:1\""},
           {"[\"http://a:1\", \"http://a:1\"]", "twice"},
           {"[\"http://u:p@a:1\"]", "must not contain a password"}})
    EXPECT_TRUE(refused(etcd + "endpoints = " + value + "\n", 8, key + "endpoints", words)) << value;
  std::string many;
  for (int i = 0; i < 17; ++i) many += fmt::format("\"http://a{}:1\",", i);
  EXPECT_TRUE(refused(etcd + "endpoints = [" + many + "]\n", 8, key + "endpoints", "more than 16"));
  std::string clear = etcd + "endpoints = [\"http://a:1\"]\n", tls = etcd + "endpoints = [\"https://a:1\"]\n";
  for (auto [line, name, words] : std::initializer_list<std::tuple<const char*, const char*, const char*>>{
           {"timeout = \"10s\"", "timeout", "\"50ms\" to \"9s\""},
           {"timeout = \"1ms\"", "timeout", "\"50ms\" to \"9s\""},
           {"timeout = 5", "timeout", "is not a time"},
           {"prefix = \"\"", "prefix", "1 to 256"},
           {"ca_file = \"/ca\"", "ca_file", "https://"},
           {"user = \"a\"", "user", "together"},
           {"password_file = \"/p\"", "password_file", "together"},
           {"password_file = \"p\"", "password_file", "absolute path"}})
    EXPECT_TRUE(refused(clear + line + "\n", 9, key + name, words)) << line;
  EXPECT_TRUE(refused(tls + "cert_file = \"/c\"\n", 9, key + "cert_file", "go together"));
  EXPECT_TRUE(refused(tls + "key_file = \"/c\"\n", 9, key + "key_file", "go together"));
  for (const char* loss : {"suspend", "continue"})
    EXPECT_TRUE(refused(minimal + "on_peer_loss = \"" + loss +
                            "\"\n[volume.mail.arbiter]\nkind = \"etcd\"\nendpoints = [\"http://a:1\"]\n",
                        6, "volume.mail.on_peer_loss", "does not apply"));
}

TEST_F(ConfigTest, Pacemaker) {
  std::string
      two = minimal +
            "listen = \"127.0.0.1:1\"\n[[volume.mail.peer]]\nid = 2\naddress = \"127.0.0.1:2\"\n";  // 9 lines
  std::string section = two + "[volume.mail.arbiter]\nkind = \"pacemaker\"\n", key = "volume.mail.arbiter.";
  auto v = load(section + "nodes = { 1 = \"mail1\", 2 = \"mail2\" }\n");
  ASSERT_TRUE(v) << v.error().message;
  const arbiter::Settings& a = v->volumes[0].arbiter;
  EXPECT_EQ(a.kind, arbiter::Kind::pacemaker);
  EXPECT_EQ(a.nodes, (std::map<ReplicaId, std::string>{{1, "mail1"}, {2, "mail2"}}));
  EXPECT_EQ(a.programs, "/usr/sbin");
  EXPECT_TRUE(refused(section, 10, key + "nodes", "needs the cluster's name"));
  EXPECT_TRUE(refused(section + "nodes = [\"mail1\"]\n", 12, key + "nodes", "section"));
  EXPECT_TRUE(refused(section + "nodes = { 1 = \"mail1\" }\n", 12, key + "nodes.2", "is missing"));
  EXPECT_TRUE(refused(section + "nodes = { 2 = \"mail2\" }\n", 12, key + "nodes.1", "own node"));
  EXPECT_TRUE(refused(section + "nodes = { 1 = \"m\", 2 = \"m\" }\n", 12, key + "nodes.2", "already"));
  EXPECT_TRUE(refused(section + "nodes = { 1 = \"a\", 2 = \"b\", 3 = \"c\" }\n", 12, key + "nodes.3",
                      "is not a replica of this volume"));
  EXPECT_TRUE(refused(section + "nodes = { 1 = \"a\", two = \"b\" }\n", 12, key + "nodes.two",
                      "is not a replica of this volume"));
  EXPECT_TRUE(refused(section + "nodes = { 1 = 7, 2 = \"b\" }\n", 12, key + "nodes.1", "text in quotes"));
  std::string good = section + "nodes = { 1 = \"a\", 2 = \"b\" }\n";
  EXPECT_TRUE(refused(good + "programs = \"sbin\"\n", 13, key + "programs", "absolute path"));
  EXPECT_TRUE(refused(good + "endpoints = [\"http://a:1\"]\n", 13, key + "endpoints",
                      "does not apply to kind = \"pacemaker\""));
  EXPECT_TRUE(refused(two + "[volume.mail.arbiter]\nkind = \"etcd\"\nnodes = { 1 = \"a\" }\n", 12,
                      key + "nodes", "does not apply to kind = \"etcd\""));
}

TEST_F(ConfigTest, VolumesAndNames) {
  auto none = load("log_level = \"info\"\n");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find(path_), std::string::npos);
  EXPECT_NE(none.error().message.find("[volume.<name>]"), std::string::npos);
  EXPECT_TRUE(refused("volume = 3\n", 1, "volume", "section"));
  EXPECT_TRUE(refused("[volume]\nmail = 3\n", 2, "volume", "[volume.mail]"));
  for (const char* name : {"a/b", ".hidden", "a b", "a\\\\b"})
    EXPECT_TRUE(refused(fmt::format("[volume.\"{}\"]\nreplica = 1\n", name), 1, "volume",
                        "cannot be a volume's name"))
        << name;
}

TEST_F(ConfigTest, SyntaxErrorsAndFiles) {
  EXPECT_TRUE(refused(minimal + "listen = \n", 6, "", ""));
  EXPECT_TRUE(refused(minimal + "replica = 2\n", 6, "", "")) << "a key twice";
  ::unlink(path_.c_str());
  auto missing = load_config(path_);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::not_found);
  EXPECT_NE(missing.error().message.find(path_), std::string::npos);
}

TEST_F(ConfigTest, AddressesOfNoPeer) {
  for (auto [address, words] : {std::pair{"192.0.2.2:0", "port 0"},
                                {"0.0.0.0:7788", "of one machine"},
                                {"[::]:7788", "of one machine"},
                                {"224.0.0.1:7788", "of one machine"},
                                {"255.255.255.255:7788", "of one machine"},
                                {"[ff02::1%lo]:7788", "of one machine"},
                                {":7788", "names no host"},
                                {"*:7788", "names no host"}})
    EXPECT_TRUE(
        refused(minimal + "listen = \"a:1\"\n[[volume.mail.peer]]\nid = 2\naddress = \"" + address + "\"\n",
                9, "volume.mail.peer.address", words))
        << address;
}

// A copied section: its journal would get the other volume's records.
TEST_F(ConfigTest, OneIdentityInTwoVolumes) {
  const std::string uuid = "uuid = \"5c1a0e7e-0000-4000-8000-00000000c0de\"\n";
  auto other = [&](const std::string& replica) {
    return minimal + uuid + "[volume.other]\n" + uuid + "replica = " + replica +
           "\nrole = \"secondary\"\ndata = \"/srv/d\"\njournal = \"/srv/j\"\n";
  };
  EXPECT_TRUE(load(other("2"))) << "two replicas on one machine";
  auto same = load(other("1"));
  ASSERT_FALSE(same);
  EXPECT_NE(
      same.error().message.find(
          "volume.other.uuid: 5c1a0e7e-0000-4000-8000-00000000c0de is replica 1 of volume mail already"),
      std::string::npos)
      << same.error().message;
}

TEST_F(ConfigTest, OnePathWrittenInTwoWays) {
  auto out = load(minimal +
                  "control = \"/run/mail\"\n[volume.mail.fuse]\nfile = \"/run/x\"\ndevice = "
                  "\"/run/./x\"\n[volume.other]\nreplica = 1\nrole = \"secondary\"\n"
                  "data = \"/srv//data\"\njournal = \"/srv/j\"\ncontrol = \"/run/../run/mail\"\n");
  ASSERT_FALSE(out);
  for (const char* part : {"volume.mail.fuse.device: /run/./x is volume.mail.fuse.file already",
                           "volume.other.data: /srv//data is volume.mail.data already",
                           "volume.other.control: /run/../run/mail is volume.mail.control already"})
    EXPECT_NE(out.error().message.find(part), std::string::npos) << part << "\n--\n" << out.error().message;
}

// One run of check-config reports all errors.
TEST_F(ConfigTest, EveryMistakeIsShown) {
  auto out = load(R"([volume.mail]
replica = 0
role = "primery"
data = "/srv/data"
journl = "/srv/journal"
arena = "64 MB of memory"
listen = "fe80::1:7710"
[[volume.mail.peer]]
id = 2
address = "[fe80::2]:7710"
[volume.other]
replica = 1
role = "secondary"
data = "/srv/data"
journal = "/srv/other"
control = "/run/)" +
                  std::string(110, 'x') + R"("
status_group = "no-such-group-here"
)");
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, Errc::invalid);
  const std::string& all = out.error().message;
  for (const char* part :
       {":2: volume.mail.replica: expected a number from 1 to 64", ":3: volume.mail.role: expected one of",
        "did you mean \"primary\"?", ":5: volume.mail.journl: unknown key; did you mean \"journal\"?",
        "volume.mail.journal: is missing", ":6: volume.mail.arena: ",
        ":10: volume.mail.peer.address: \"[fe80::2]:7710\": a link-local address needs its interface",
        "volume.other.data: /srv/data is volume.mail.data already",
        "volume.other.control: longer than the 107 bytes",
        "volume.other.status_group: no group \"no-such-group-here\" in /etc/group"})
    EXPECT_NE(all.find(part), all.npos) << part << "\n--\n" << all;
}

TEST_F(ConfigTest, WhoMayReadTheStatus) {
  auto who = [&](const std::string& line) { return load(minimal + line)->volumes[0]; };
  EXPECT_FALSE(who("").status_everybody || who("").status_group);
  EXPECT_TRUE(who("status_group = \"*\"\n").status_everybody);
  EXPECT_EQ(who("status_group = \"root\"\n").status_group, gid_t{0});
  EXPECT_EQ(who("status_group = \"4711\"\n").status_group, gid_t{4711});
}

}  // namespace
}  // namespace twinloft::repl::daemon
