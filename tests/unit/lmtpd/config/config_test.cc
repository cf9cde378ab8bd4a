#include "twinloft/lmtpd/config/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <variant>

#include "minimal.h"

namespace twinloft::lmtpd {
namespace {

using namespace std::chrono_literals;

const std::string minimal = "[[listen]]\naddress = \"127.0.0.1:2400\"\n" + std::string(test::users_and_spool);

std::string error_of(std::string text) {
  auto config = parse_config("t.toml", text);
  return config ? "no error" : config.error().message;
}

std::string minimal_and(std::string_view more) {
  return std::string(more) + "\n" + std::string(minimal);
}
std::string minimal_then(std::string_view more) {
  return std::string(minimal) + std::string(more);
}

TEST(Config, MinimalHasTheDocumentedDefaults) {
  auto config = parse_config("t.toml", minimal);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->limits.message_bytes_max, 50u << 20);
  EXPECT_EQ(config->limits.idle_timeout, 5min);
  EXPECT_EQ(config->delivery.default_agent, "maildir");
  EXPECT_EQ(config->users.driver, UserDriver::static_db);
  EXPECT_EQ(config->users.directory.detail_delimiter, "+");
  EXPECT_FALSE(config->delivery.spool.volume);
  ASSERT_EQ(config->listen.size(), 1u);
  EXPECT_EQ(config->listen[0].host, "127.0.0.1");
  EXPECT_EQ(config->listen[0].port, 2400);
}

TEST(Config, AUnixSocketsModeAndGroup) {
  auto config = parse_config("t.toml", std::string(minimal_and(R"([[listen]]
address = "unix:/a"
[[listen]]
address = "unix:/b"
mode = "0620"
group = "postfix"
[[listen]]
address = "unix:/c"
group = 123)")));
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->listen.size(), 4u);
  EXPECT_EQ(config->listen[0].mode, 0660u);
  EXPECT_EQ(config->listen[0].group, "") << "of the starting process";
  EXPECT_EQ(config->listen[1].mode, 0620u);
  EXPECT_EQ(config->listen[1].group, "postfix");
  EXPECT_EQ(config->listen[2].group, "123");
}

TEST(Config, HowLongADeliveryMayWait) {
  auto config = parse_config("t.toml", minimal);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->limits.queue_time, 60s);
  EXPECT_EQ(config->limits.stop_timeout, 60s);
  config = parse_config("t.toml", minimal_then("[limits]\nqueue_time = \"5s\"\nstop_timeout = \"2min\"\n"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->limits.queue_time, 5s);
  EXPECT_EQ(config->limits.stop_timeout, 2min);
  EXPECT_NE(error_of(minimal_then("[limits]\nqueue_time = 5\n")).find("limits.queue_time"),
            std::string::npos);
}

TEST(Config, TheExampleLoads) {
  auto config = load_config(EXAMPLE_CONFIG);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->user, "vmail");
  ASSERT_EQ(config->listen.size(), 2u);
  EXPECT_EQ(config->listen[1].unix_path, "/run/twinloft/lmtp.sock");
  EXPECT_EQ(config->listen[1].mode, 0660u);
  EXPECT_EQ(config->listen[1].group, "postfix");
  EXPECT_EQ(config->users.driver, UserDriver::sqlite) << "an example refuses users who were not added";
  EXPECT_TRUE(config->warnings.empty() || config->warnings[0].find("is not there") != std::string::npos)
      << config->warnings[0];
  ASSERT_EQ(config->agents.size(), 1u);
  EXPECT_EQ(config->agents[0].name, "dovecot");
  ASSERT_TRUE(config->delivery.spool.volume);
  EXPECT_EQ(config->delivery.spool.volume->text(), "6f3b1c52-8d0e-4a77-9c55-2f6f0e1d7a31");
}

// Every key that the example shows as a commented-out default must be accepted when it is enabled.
TEST(Config, EverythingAtOnceIsRead) {
  auto config = parse_config("t.toml", R"(
hostname = "mx.example.org"
log_level = "warning"
user = 5000
group = "mail"
[[listen]]
address = "[::1]:24"
tls = "required"
trusted = ["192.0.2.0/24", "unix"]
proxies = ["::1"]
[tls]
certificate = "/etc/tls/cert.pem"
key = "/etc/tls/key.pem"
client_ca = "/etc/tls/ca.pem"
client_certificate = "require"
client_subjects = ["MX1.example.org.", "mx2.example.org"]
min_version = "1.3"
[limits]
message_size = "10MB"
header_size = "64KiB"
recipients = 7
connections = 8
connections_per_address = 6
idle_timeout = "90s"
transaction_timeout = "10min"
bad_commands = 3
body_memory = "64KiB"
body_memory_total = "1MiB"
body_disk_total = "1GiB"
refused_recipients = 7
body_directory = "/tmp"
deliveries = 4
deliveries_per_transaction = 2
deliveries_per_user = 5
io_threads = 2
[users]
driver = "sqlite"
path = "/etc/users.sqlite"
query = "SELECT 1"
busy_timeout = "250ms"
db_connections = 3
detail_delimiter = "-"
detail_first = true
catch_all = true
name = "%user%"
home = "/srv/mail/%user%"
maildir = "/srv/mail/%user%/Maildir"
uid = "vmail"
gid = 5001
agent = "lda"
cache_time = "90s"
cache_negative_time = "0s"
cache_stale_time = "48h"
cache_size = "1MiB"
[spool]
path = "/srv/mail"
volume = "6f3b1c52-8d0e-4a77-9c55-2f6f0e1d7a31"
require_marker = true
[delivery]
agent = "lda"
memory = "1MiB"
temporary = "/tmp"
received_max = 50
runs = 9
uid_min = 1000
gid_min = 100
[maildir]
durability = "group-sync"
[agent.lda]
command = "/bin/true %to%"
deliveries = 12
timeout = "10s"
kill_grace = "1s"
output_limit = "1KiB"
pass_environment = ["TZ"]
no_new_privs = true
must_read_stdin = false
syncs = true
smtputf8 = true
crlf = true
return_path = false
delivered_to = false
original_to = false
received = false
[agent.lda.exits]
1 = "550 5.7.1"
[agent.lda.rlimits]
cpu = "20s"
memory = "512MiB"
file_size = "100MiB"
open_files = 64
processes = 10
[agent.lda.environment]
MAILTYPE = "x"
)");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hostname, "mx.example.org");
  EXPECT_EQ(config->user, "5000");
  EXPECT_EQ(config->listen[0].host, "::1");
  EXPECT_EQ(config->listen[0].rules.tls, TlsPolicy::required);
  EXPECT_FALSE(config->listen[0].rules.may_speak_for.empty() || config->listen[0].rules.proxies.empty());
  EXPECT_EQ(config->tls.certificate + config->tls.key + config->tls.client_ca,
            "/etc/tls/cert.pem/etc/tls/key.pem/etc/tls/ca.pem");
  EXPECT_TRUE(config->tls.client_certificate_required && !config->tls.tls_1_2);
  EXPECT_TRUE(config->agents.at(0).smtputf8);
  EXPECT_EQ(config->limits.message_bytes_max, 10'000'000u);
  EXPECT_EQ(config->limits.idle_timeout, 90s);
  EXPECT_EQ(config->limits.header_bytes_max, 65536u);
  EXPECT_EQ(config->limits.connections_per_address_max, 6u);
  EXPECT_EQ(config->limits.transaction_timeout, 10min);
  EXPECT_EQ(config->limits.body_memory, 65536u);
  EXPECT_EQ(config->limits.body_disk_total, 1u << 30);
  EXPECT_EQ(config->limits.refused_max, 7u);
  EXPECT_EQ(config->tls.client_subjects, (std::vector<std::string>{"mx1.example.org", "mx2.example.org"}));
  EXPECT_EQ(config->delivery.per_user_max, 5u);
  EXPECT_EQ(config->users.sqlite.busy_timeout, 250ms);
  EXPECT_EQ(config->users.sqlite.connections_max, 3u);
  EXPECT_TRUE(config->users.directory.detail_first && config->users.directory.catch_all);
  EXPECT_EQ(config->users.defaults.name + " " + config->users.defaults.home + " " +
                config->users.defaults.maildir + " " + config->users.defaults.agent,
            "%user% /srv/mail/%user% /srv/mail/%user%/Maildir lda");
  EXPECT_EQ(config->users.uid + " " + config->users.gid, "vmail 5001");
  const CacheConfig& cache = config->users.directory.cache;
  EXPECT_TRUE(cache.positive == 90s && cache.negative == 0s && cache.stale == 48h &&
              cache.bytes_max == 1u << 20);
  EXPECT_EQ(config->delivery.default_agent, "lda");
  EXPECT_EQ(config->delivery.maildir.durability, DurabilityWay::group_sync);
  EXPECT_EQ(config->delivery.maildir.received_max, 50u);
  EXPECT_EQ(config->spawner.runs_max, 9u);
  EXPECT_EQ(config->spawner.run_as.uid_min, 1000u);
  const AgentSpec& agent = config->agents.at(0);
  EXPECT_EQ(agent.time_limit, 10s);
  EXPECT_EQ(agent.deliveries_max, 12u);
  EXPECT_EQ(agent.exits.of(1), (ExitReply{550, "5.7.1"}));
  EXPECT_EQ(agent.exits.of(67), (ExitReply{451, "4.3.0"}));
  EXPECT_EQ(agent.limits.cpu_seconds, 20u);
  EXPECT_EQ(agent.limits.memory_bytes, 512u << 20);
  EXPECT_TRUE(agent.syncs);
  EXPECT_FALSE(agent.add_received);
  ASSERT_EQ(agent.set_environment.size(), 1u);
  EXPECT_EQ(agent.set_environment[0].second, "x");
}

TEST(Config, AnUnknownKeyIsRefusedWithTheNearestName) {
  EXPECT_EQ(error_of(minimal_then("[limits]\nmesage_size = 5000\n")),
            "t.toml:11: limits.mesage_size: unknown key; did you mean \"message_size\"?");
  EXPECT_EQ(error_of(minimal_then("[maildir]\nzzzzzz = 1\n")),
            "t.toml:11: maildir.zzzzzz: unknown key; known here: durability, detail_folders, "
            "folder_separator, folders_max, subscribe, hard_links, delivered_to_check, intake_log_size, "
            "intake_log_message_size, intake_log_checkpoint");
}

TEST(Config, TheIntakeLog) {
  auto config = parse_config("t.toml", minimal_then("[maildir]\ndurability = \"intake-log\"\n"));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->delivery.maildir.durability, DurabilityWay::intake_log);
  EXPECT_EQ(config->delivery.intake.log_bytes, 64u << 20);
  EXPECT_EQ(config->delivery.intake.message_bytes_max, 256u << 10);
  EXPECT_EQ(config->delivery.intake.checkpoint, 5s);
  config = parse_config("t.toml", minimal_then("[maildir]\ndurability = \"intake-log\"\nintake_log_size = "
                                               "\"32MiB\"\nintake_log_message_size = \"2MiB\"\n"
                                               "intake_log_checkpoint = \"2s\"\n"));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->delivery.intake.log_bytes, 32u << 20);
  EXPECT_EQ(config->delivery.intake.message_bytes_max, 2u << 20);
  EXPECT_EQ(config->delivery.intake.checkpoint, 2s);
}

TEST(Config, FoldersByDetail) {
  auto config = parse_config("t.toml",
                             minimal_then("[maildir]\ndetail_folders = \"create\"\nfolder_separator = "
                                          "\"/\"\nfolders_max = 5\nsubscribe = false\n"));
  ASSERT_TRUE(config) << config.error().message;
  const FolderConfig& folders = config->delivery.maildir.folders;
  EXPECT_EQ(folders.detail, FoldersByDetail::create);
  EXPECT_EQ(folders.separator, '/');
  EXPECT_EQ(folders.folders_max, 5u);
  EXPECT_FALSE(folders.subscribe);
}

TEST(Config, HardLinksAreOffByDefault) {
  EXPECT_FALSE(parse_config("t.toml", minimal_then(""))->delivery.maildir.hard_links);
  EXPECT_TRUE(
      parse_config("t.toml", minimal_then("[maildir]\nhard_links = true\n"))->delivery.maildir.hard_links);
}

TEST(Config, Quota) {
  auto config = parse_config(
      "t.toml", minimal_then("[quota]\ndriver = \"maildir\"\nstorage = \"1GiB\"\nmessages = 5\nover = "
                             "\"defer\"\ngrace_percent = 0\n"
                             "ignore = [\"Trash\", \"A&B\"]\ndovecot = \"/etc/dovecot/dovecot.conf\"\n"));
  ASSERT_TRUE(config) << config.error().message;
  const QuotaConfig& quota = config->delivery.maildir.quota;
  EXPECT_EQ(quota.driver, QuotaDriver::maildir);
  EXPECT_EQ(config->users.defaults.quota, (QuotaLimit{std::uint64_t{1} << 30, 5}));
  EXPECT_EQ(quota.over, OverQuota::defer);
  EXPECT_EQ(quota.grace_percent, 0u);
  EXPECT_EQ(quota.ignored, (std::vector<std::string>{".Trash", ".A&-B"}));
  EXPECT_EQ(config->dovecot, "/etc/dovecot/dovecot.conf");
  EXPECT_EQ(parse_config("t.toml", minimal_then(""))->delivery.maildir.quota.driver, QuotaDriver::none);
}

TEST(Config, QuotaThatDovecotCounts) {
  auto config = parse_config(
      "t.toml",
      minimal_then("[quota]\ndriver = \"count\"\naddress = \"unix:/run/dovecot/quota-status\"\nconnections = "
                   "3\ntimeout = \"2s\"\nover = \"defer\"\n[limits]\nqueue_time = \"7s\"\n"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->delivery.maildir.quota.driver, QuotaDriver::count);
  EXPECT_EQ(config->delivery.maildir.quota.over, OverQuota::defer);
  EXPECT_EQ(config->quota_status.target.unix_path, "/run/dovecot/quota-status");
  EXPECT_EQ(config->quota_status.target.timeout, std::chrono::seconds(2));
  EXPECT_EQ(config->quota_status.answer_timeout, std::chrono::seconds(2));
  EXPECT_EQ(config->quota_status.connections_max, 3u);
  EXPECT_EQ(config->quota_status.queue_time, std::chrono::seconds(7))
      << "a question waits as long as a delivery";
  EXPECT_EQ(config->delivery.maildir.quota.lease, 16u << 20);
  config = parse_config("t.toml",
                        minimal_then("[quota]\ndriver = \"count\"\naddress = \"unix:/q\"\nlease = 0\n"
                                     "storage = \"1GiB\"\nmessages = 1000\n"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->delivery.maildir.quota.lease, 0u);
  EXPECT_EQ(config->users.defaults.quota, (QuotaLimit{1u << 30, 1000}));
}

// A configuration from before the key accept_all.
TEST(Config, StaticUsersWithoutAListAreEverybodyAndThatIsTold) {
  auto config = parse_config(
      "t.toml",
      "[[listen]]\naddress = \"127.0.0.1:2400\"\n[spool]\npath = \"/s\"\nrequire_marker = "
      "false\n[users]\ndriver = \"static\"\nhome = \"/s/%user%\"\n");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(std::holds_alternative<AcceptAll>(config->users.fixed.users));
  ASSERT_EQ(config->warnings.size(), 1u);
  EXPECT_EQ(config->warnings[0],
            "t.toml:6: users.users: is missing: list the local parts that exist, or write accept_all = true "
            "to accept mail for every address. "
            "Until then mail for every address is accepted");
}

TEST(Config, LimitsAreComparedWithOneAnother) {
  auto warnings = [](const std::string& more) {
    auto config = parse_config("t.toml", minimal_then(more));
    return config ? fmt::format("{}", fmt::join(config->warnings, "\n")) : config.error().message;
  };
  EXPECT_EQ(warnings(""), "");
  EXPECT_EQ(
      warnings("[limits]\ndeliveries = 8\n"),
      "t.toml: limits.deliveries_per_user (10) is above limits.deliveries (8), and is never reached\n"
      "t.toml: limits.deliveries_per_transaction (16) is above limits.deliveries (8), and is never reached");
  EXPECT_EQ(
      warnings("[limits]\nconnections = 100\n"),
      "t.toml: limits.connections_per_address (500) is above limits.connections (100), and is never reached");
  EXPECT_EQ(warnings("[limits]\nqueue_time = \"10min\"\n"),
            "t.toml: limits.queue_time (600s) is as long as an MTA waits for a reply (10min): it would "
            "deliver messages twice");
  EXPECT_NE(warnings("[agent.a]\ncommand = \"/bin/true\"\ntimeout = \"9min\"\n")
                .find("t.toml: agent.a.timeout: with limits.queue_time a delivery may take 605s"),
            std::string::npos);
  EXPECT_EQ(warnings("[agent.a]\ncommand = \"/bin/true\"\n"), "");
  EXPECT_EQ(warnings("[delivery]\nruns = 10\n[agent.a]\ncommand = \"/bin/true\"\n"), "")
      << "further ones wait";
  EXPECT_EQ(warnings("[limits]\nbody_disk_total = \"99MiB\"\n"), "") << "once there is room";
  EXPECT_NE(warnings("[limits]\nbody_disk_total = \"99MiB\"\n[agent.a]\ncommand = \"/bin/true\"\n")
                .find("has no room for a message of limits.message_size"),
            std::string::npos);
  EXPECT_EQ(warnings("[limits]\nmessage_size = \"1MiB\"\nbody_disk_total = \"1MiB\"\n[agent.a]\ncommand = "
                     "\"/bin/true\"\n"),
            "")
      << "the message is in memory";
  EXPECT_NE(warnings("[agent.a]\ncommand = \"/bin/true\"\n[agent.a.rlimits]\nfile_size = \"50MiB\"\n")
                .find("agent.a.rlimits.file_size (52428800 bytes) is not above"),
            std::string::npos);
  EXPECT_EQ(warnings("[agent.a]\ncommand = \"/bin/true\"\n[agent.a.rlimits]\nfile_size = \"51MiB\"\n"), "");
  EXPECT_EQ(warnings("[delivery]\nruns = 10\n[agent.a]\ncommand = \"/bin/true\"\ndeliveries = 65\n"),
            "t.toml: agent.a.deliveries (65) is above limits.deliveries (64), and is never reached\n"
            "t.toml: agent.a.deliveries (65) is above delivery.runs (10), and is never reached");
  EXPECT_EQ(warnings("[next_hop.s]\naddress = \"192.0.2.1:24\"\nconnections = 64\ndata_timeout = \"540s\"\n"),
            "t.toml: next_hop.s.connections (64) is not below limits.deliveries (64): a store that hangs "
            "takes all threads that deliver\n"
            "t.toml: next_hop.s.data_timeout: with limits.queue_time and connect_timeout a delivery may take "
            "620s, and "
            "an MTA waits 10min for the reply: it would deliver messages twice");
}

TEST(Config, AllProblemsAreReportedAtOnce) {
  std::string errors = error_of(minimal_then("[limits]\nrecipients = 0\nidle_timeout = \"5 bananas\"\n"));
  EXPECT_NE(errors.find("t.toml:11: limits.recipients: expected a number from 1 to 100000"),
            std::string::npos)
      << errors;
  EXPECT_NE(errors.find("\nt.toml:12: limits.idle_timeout: \"5 bananas\" is not a time: expected"),
            std::string::npos)
      << errors;
}

TEST(Config, SyntaxErrorsNameLineAndColumn) {
  EXPECT_EQ(error_of("hostname = \"a\nuser = 1").rfind("t.toml:1:", 0), 0u);
}

struct Wrong {
  const char* text;
  const char* message;
};

class ConfigWrong : public testing::TestWithParam<Wrong> {};

TEST_P(ConfigWrong, IsRefusedWithItsPlaceAndAdvice) {
  std::string errors = error_of(GetParam().text);
  EXPECT_NE(errors.find(GetParam().message), std::string::npos) << errors;
  EXPECT_EQ(errors.rfind("t.toml:", 0), 0u) << errors;
}

const Wrong wrong[] = {
    {"[[listen]]\naddress = \"0.0.0.0:25\"\n",
     "t.toml:2: listen.address: \"0.0.0.0:25\": port 25 is reserved for SMTP (RFC 2033)"},
    {"[[listen]]\naddress = \"localhost:2400\"\n", "expected a numeric address"},
    {"[[listen]]\naddress = \"::1:2400\"\n", "expected a numeric address"},
    {"[[listen]]\naddress = \"127.0.0.1%lo:2400\"\n", "expected a numeric address"},
    {"[[listen]]\naddress = \"[fe80::1]:2400\"\n",
     "a link-local address needs its interface: \"[fe80::1%eth0]:2400\""},
    {"log_level = \"inf\"\n[[listen]]\naddress = \"127.0.0.1:2400\"\n",
     "log_level: expected one of \"debug\", \"info\", \"warning\", \"error\"; did you mean \"info\"?"},
    {"[[listen]]\naddress = \"127.0.0.1:2400\"\ntls = \"offerd\"\n", "did you mean \"offered\"?"},
    {"[[listen]]\naddress = \"127.0.0.1\"\n", "expected \"127.0.0.1:2400\""},
    {"[[listen]]\naddress = \"127.0.0.1:70000\"\n", "expected a port from 1 to 65535"},
    {"[[listen]]\naddress = \"unix:lmtp\"\n", "expected an absolute path after \"unix:\""},
    {"[[listen]]\naddress = \"unix:/a\"\nmode = \"0999\"\n", "listen.mode: expected octal digits"},
    {"[[listen]]\naddress = \"127.0.0.1:24\"\nmode = \"0600\"\n", "is for Unix sockets only"},
    {"[[listen]]\naddress = \"127.0.0.1:24\"\ngroup = \"mail\"\n", "listen.group: is for Unix sockets only"},
    {"[[listen]]\naddress = \"unix:/a\"\n[[listen]]\naddress = \"unix:/a\"\n", "is listed twice"},
    {"[[listen]]\naddress = \"unix:/a/b\"\n[[listen]]\naddress = \"unix:/a//b\"\n",
     "t.toml:4: listen.address: is listed twice"},
    {"[[listen]]\naddress = \"unix:/a/\"\n", "is the path of a directory"},
    {"[[listen]]\naddress = \"[::1]:24\"\n[[listen]]\naddress = \"[0:0:0:0:0:0:0:1]:24\"\n",
     "listen.address: is listed twice"},
    {"[[listen]]\naddress = \"0.0.0.0:24\"\n[[listen]]\naddress = \"127.0.0.1:24\"\n",
     "0.0.0.0:24 and 127.0.0.1:24 cannot both be used"},
    {"[[listen]]\naddress = \"[::1]:24\"\n[[listen]]\naddress = \"[::]:24\"\n",
     "[::1]:24 and [::]:24 cannot both be used"},
    {"listen = 5\n", "listen: at least one [[listen]]"},
    {"[listen]\naddress = \"unix:/a\"\n", "listen: expected [[listen]], with two brackets on each side"},
    {"[[agent]]\ncommand = \"/bin/true\"\n", "agent: expected [agent.NAME], with one bracket on each side"},
    {"[[listen]]\naddress = \"127.0.0.1:24\"\ntls = \"yes\"\n", "listen.tls: expected \"none\""},
    {"[[listen]]\naddress = \"127.0.0.1:24\"\ntls = \"offered\"\n",
     "tls: is missing: a [[listen]] offers TLS"},
    {"[[listen]]\naddress = \"127.0.0.1:24\"\ntrusted = [\"10.0.0.1/8\"]\n",
     "listen.trusted: \"10.0.0.1/8\": the address has bits set after its prefix of 8"},
    {"[[listen]]\naddress = \"127.0.0.1:24\"\nproxies = [\"here\"]\n",
     "listen.proxies: \"here\" is not a network"},
    {"hostname = \"a b\"\n", "t.toml:1: hostname: expected a host name"},
    {"log_level = \"loud\"\n", "log_level: expected one of"},
    {"group = \"mail\"\n", "group: needs user too"},
    {"user = 0\n", "user: expected a name, or a number above 0"},
    {"[users]\ndriver = \"oracle\"\n",
     "users.driver: expected \"sqlite\", \"mysql\", \"passwd-file\", \"passwd\" or \"static\""},
    {"[users]\ndriver = \"sqlite\"\n", "users.path: is missing"},
    {"[users]\n", "users.path: is missing"},
    {"[users]\ndriver = \"\"\n", "users.driver: expected \"sqlite\""},
    {"[users]\ndriver = 1\n", "users.driver: "},
    {"[users]\nhosts = [\"db1\"]\n", "users.hosts: unknown key"},
    {"[users]\ndriver = \"static\"\naccept_all = true\nhome = \"/a/%nobody%\"\n",
     "t.toml:4: users.home: column 4: unknown macro"},
    {"[users]\ndriver = \"static\"\nhome = \"a\"\n", "t.toml:3: users.home: expected an absolute path"},
    {"[users]\ndriver = \"static\"\naccept_all = true\nhome = \"/a\"\nagent = \"x\"\n",
     "there is no section [agent.x]"},
    {"[users]\ndriver = \"static\"\nhome = \"/a\"\nusers = []\n", "users.users: is empty"},
    {"[users]\ndriver = \"static\"\nhome = \"/a\"\naccept_all = false\n", "users.users: is missing"},
    {"[users]\ndriver = \"static\"\nhome = \"/a\"\nusers = [\"ann\"]\naccept_all = true\n",
     "users.accept_all: accepts every address"},
    {"[users]\ndriver = \"static\"\nhome = \"/a\"\nusers = [\"ann@example.org\"]\n",
     "users.users: \"ann@example.org\": expected a local part"},
    {"[users]\ndriver = \"static\"\nhome = \"/a\"\nusers = [\"ann\", \"\"]\n",
     "users.users: \"\": expected a local part"},
    {"[users]\ndriver = \"static\"\nhome = \"/a\"\nusers = [\"ann-x\"]\ndetail_delimiter = \"-\"\n",
     "users.users: \"ann-x\": no address would find it"},
    {"[users]\ndriver = \"sqlite\"\npath = \"/a\"\naccept_all = true\n", "users.accept_all: unknown key"},
    {"[users]\ndriver = \"static\"\naccept_all = true\ndetail_delimiter = \"+-\"\n",
     "expected one character"},
    {"[spool]\npath = \"srv\"\n", "spool.path: expected an absolute path"},
    {"[spool]\npath = \"/srv\"\n", "spool.volume: is missing"},
    {"[spool]\npath = \"/srv\"\nvolume = \"abc\"\n", "t.toml:3: spool.volume"},
    {"[tls]\nkey = \"/k\"\n", "tls.certificate: is missing"},
    {"[tls]\ncertificate = \"c\"\nkey = \"/k\"\n", "tls.certificate: "},
    {"[tls]\ncertificate = \"/c\"\nkey = \"/k\"\nclient_certificate = \"require\"\n",
     "tls.client_certificate: needs client_ca"},
    {"[tls]\ncertificate = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"\nclient_certificate = \"maybe\"\n",
     "expected \"request\" or \"require\""},
    {"[[listen]]\naddress = \"127.0.0.1:24\"\ntls = \"offered\"\n[tls]\ncertificate = \"/c\"\nkey = "
     "\"/k\"\nclient_ca = \"/a\"\nclient_certificate = \"require\"\n",
     "tls.client_certificate: is \"require\", and [[listen]] 127.0.0.1:24 has tls = \"offered\""},
    {"[tls]\ncertificate = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"\nclient_subjects = "
     "[\"mx1.example.org\"]\n",
     "tls.client_subjects: needs client_certificate = \"require\""},
    {"[tls]\ncertificate = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"\nclient_certificate = "
     "\"require\"\nclient_subjects = []\n",
     "no client could connect"},
    {"[tls]\ncertificate = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"\nclient_certificate = "
     "\"require\"\nclient_subjects = [\"*.example.org\"]\n",
     "expected a whole name"},
    {"[limits]\nmessage_size = \"50MiB\"\nbody_disk_total = \"10MiB\"\n",
     "limits.body_disk_total: is less than message_size"},
    {"[limits]\nrefused_recipients = 0\n", "limits.refused_recipients: "},
    {"[tls]\ncertificate = \"/c\"\nkey = \"/k\"\nmin_version = \"1.1\"\n", "expected \"1.2\" or \"1.3\""},
    {"[limits]\nbody_memory = \"2MiB\"\nbody_memory_total = \"1MiB\"\n", "no message would fit"},
    {"[limits]\nmessage_size = \"10 MiB\"\n", "limits.message_size: \"10 MiB\" is not a size: expected"},
    {"[delivery]\nagent = \"lda\"\n", "delivery.agent: there is no section [agent.lda]"},
    {"[maildir]\ndurability = \"hope\"\n", "maildir.durability: unknown durability \"hope\""},
    {"[maildir]\nintake_log_size = \"1MiB\"\n", "maildir.intake_log_size: expected 4194304 to "},
    {"[maildir]\nintake_log_size = \"8MiB\"\nintake_log_message_size = \"1MiB\"\n",
     "maildir.intake_log_message_size: is 1048576 bytes: expected at most 524288: a sixteenth of "},
    {"[maildir]\nintake_log_checkpoint = \"0s\"\n", "maildir.intake_log_checkpoint: must be above 0"},
    {"[maildir]\ndetail_folders = \"maybe\"\n",
     "maildir.detail_folders: unknown setting \"maybe\": use \"none\", \"existing\" or \"create\""},
    {"[maildir]\ndetail_folders = \"create\"\nfolder_separator = \"+\"\n",
     "maildir.folder_separator: expected \".\" or \"/\""},
    {"[quota]\n", "quota.driver: is missing"},
    {"[quota]\ndriver = \"dict\"\n", "quota.driver: expected \"maildir\", \"count\" or \"none\""},
    {"[quota]\ndriver = \"count\"\n", "quota.address: is missing"},
    {"[quota]\ndriver = \"count\"\naddress = \"quota-status\"\n",
     "quota.address: \"quota-status\": expected"},
    {"[quota]\ndriver = \"count\"\naddress = \"unix:/q\"\ngrace_percent = 5\n",
     "quota.grace_percent: is a setting of Dovecot where Dovecot counts"},
    {"[quota]\ndriver = \"count\"\naddress = \"unix:/q\"\nlease = \"17MiB\"\n", "quota.lease: "},
    {"[quota]\ndriver = \"maildir\"\nlease = \"1MiB\"\n", "quota.lease: needs driver = \"count\""},
    {"[quota]\ndriver = \"maildir\"\naddress = \"unix:/q\"\n", "quota.address: needs driver = \"count\""},
    {"[quota]\ndriver = \"none\"\nover = \"defer\"\n", "quota.over: needs driver = \"maildir\" or \"count\""},
    {"[quota]\ndriver = \"none\"\nstorage = \"1GiB\"\n",
     "quota.storage: needs driver = \"maildir\" or \"count\""},
    {"[quota]\ndriver = \"maildir\"\nover = \"drop\"\n",
     "quota.over: unknown setting \"drop\": use \"reject\" or \"defer\""},
    {"[quota]\ndriver = \"maildir\"\ngrace_percent = 101\n",
     "quota.grace_percent: expected a number from 0 to 100"},
    {"[quota]\ndriver = \"maildir\"\nignore = [\"../Trash\"]\n",
     "quota.ignore: \"../Trash\" is the name of no folder"},
    {"[quota]\ndriver = \"maildir\"\nstorage = \"lots\"\n",
     "quota.storage: \"lots\" is not a size: expected"},
    {"[agent.lda]\n", "agent.lda.command: is missing"},
    {"[agent.lda]\ncommand = \"/bin/x %frm%\"\n", "t.toml:2: agent.lda.command: "},
    {"[agent.lda]\ncommand = \"x\"\n", "must be an absolute path"},
    {"[agent.lda]\ncommand = \"/bin/x\"\nsyncs = \"yes\"\n", "agent.lda.syncs: expected true or false"},
    {"[agent.lda]\ncommand = \"/bin/x\"\n[agent.lda.exits]\n300 = \"451 4.3.0\"\n", "exit code 300"},
    {"[agent.lda]\ncommand = \"/bin/x\"\n[agent.lda.exits]\n1 = \"251 2.0.0\"\n", "is not a reply"},
    {"[agent]\nlda = 5\n", "agent.lda: expected a section [agent.lda]"},
    {"[agent.maildir]\ncommand = \"/bin/x\"\n", "\"maildir\" is the built-in agent"},
};
#define MYSQL "[users]\ndriver = \"mysql\"\nhome = \"/srv\"\ndatabase = \"mail\"\ndb_user = \"lmtpd\"\n"
const Wrong wrong_users[] = {
    {MYSQL, "users.hosts: expected a list"},
    {MYSQL "hosts = []\n", "users.hosts: expected a list"},
    {MYSQL "hosts = \"db1\"\n", "users.hosts: expected a list"},
    {MYSQL "hosts = [\"db1\", \"2001:db8::1\"]\n", "t.toml:6: users.hosts: \"2001:db8::1\": expected a port"},
    {MYSQL "hosts = [\"unix:db\"]\n", "expected an absolute path after \"unix:\""},
    {MYSQL "hosts = [\"db1\"]\ntls = \"yes\"\n",
     "t.toml:7: users.tls: expected \"none\", \"required\" or \"verified\""},
    {MYSQL "hosts = [\"db1\"]\ntls_ca = \"/ca\"\n", "users.tls_ca: needs tls = "},
    {MYSQL "hosts = [\"db1\"]\ntls = \"verified\"\ntls_certificate = \"/c\"\n",
     "users.tls_certificate: needs its counterpart"},
    {MYSQL "hosts = [\"db1\"]\ntls = \"verified\"\ntls_key = \"/k\"\n",
     "users.tls_key: needs its counterpart"},
    {MYSQL "hosts = [\"db1\"]\ndb_password = \"a\"\ndb_password_file = \"/p\"\n",
     "users.db_password: is set, and a file too"},
    {MYSQL "hosts = [\"db1\"]\nconnect_timeout = \"11s\"\n",
     "t.toml:7: users.connect_timeout: must be at most 10s"},
    {MYSQL "hosts = [\"db1\"]\nquery_timeout = \"1min\"\n", "users.query_timeout: must be at most 10s"},
    {MYSQL "hosts = [\"db1\"]\nlookup_timeout = \"7s\"\n",
     "t.toml:7: users.lookup_timeout: must be at least connect_timeout and query_timeout together"},
    {MYSQL "hosts = [\"db1\"]\ndb_connections = 0\n",
     "users.db_connections: expected a number from 1 to 256"},
    {MYSQL "hosts = [\"db1\"]\npath = \"/users.sqlite\"\n", "users.path: unknown key"},
    {"[users]\ndriver = \"mysql\"\nhosts = [\"db1\"]\n", "users.database: is missing"},
    {"[users]\ndriver = \"mysql\"\nhosts = [\"db1\"]\n", "users.db_user: is missing"},
    {"[users]\ndriver = \"passwd-file\"\n", "users.path: is missing"},
    {"[users]\ndriver = \"passwd\"\nuid = 5000\n", "users.uid: comes from the account"},
    {"[users]\ndriver = \"passwd\"\nhome = \"/home\"\n", "users.home: comes from the account"},
    {"[users]\ndriver = \"passwd\"\nuid_min = 0\n", "users.uid_min: expected a number from 1"},
    {"[users]\ndriver = \"passwd\"\nlookup_timeout = \"0s\"\n", "users.lookup_timeout: "},
    {"[users]\ndriver = \"static\"\nhome = \"/a\"\nlookup_timeout = \"9s\"\n",
     "users.lookup_timeout: unknown key"},
    {"[users]\ndriver = \"static\"\nhome = \"/a\"\nmaildir = \"Maildir\"\n",
     "users.maildir: expected an absolute path, or \"~\""},
};
#undef MYSQL
INSTANTIATE_TEST_SUITE_P(Users, ConfigWrong, testing::ValuesIn(wrong_users));
INSTANTIATE_TEST_SUITE_P(All, ConfigWrong, testing::ValuesIn(wrong));

TEST(Config, ShellCharactersAndOldOptionsAreWarnedOf) {
  auto config = parse_config(
      "t.toml",
      minimal_then("[agent.lda]\ncommand = \"/usr/lib/dovecot/dovecot-lda -n -d %to% > /dev/null\"\n"));
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_GE(config->warnings.size(), 2u);
  for (const std::string& warning : config->warnings)
    EXPECT_EQ(warning.rfind("t.toml:11: agent.lda.command: ", 0), 0u) << warning;
}

TEST(Config, TopLevelKeysStandBeforeTheSections) {
  EXPECT_EQ(error_of(minimal_and("hostname = \"mx\"")), "no error");
}

TEST(Config, NamesOfHostsHaveOneForm) {
  auto config = parse_config("t.toml",
                             minimal_and("hostname = \"MX.B\u00fccher.example.\"") +
                                 "\n[next_hop.a]\naddress = \"Store1.example.org.:24\"\ntls = "
                                 "\"verify\"\n[next_hop.b]\naddress = \"[::1]:24\"\ntls = \"verify\"\n"
                                 "[maildir]\ndelivered_to_check = false\n");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hostname, "mx.xn--bcher-kva.example");
  EXPECT_EQ(config->next_hops[0].tls_name + " " + config->next_hops[1].tls_name, "store1.example.org ::1");
  EXPECT_FALSE(config->delivery.maildir.delivered_to_check);
}

TEST(SieveSettingsOfLmtpd, ByDovecotsLmtp) {
  auto config = parse_config(
      "t.toml", minimal_then("[delivery.sieve]\nlmtp = \"unix:/run/dovecot/lmtp\"\nconnections = 7\n"
                             "[next_hop.a]\naddress = \"[::1]:24\"\n"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->delivery.sieve.on());
  EXPECT_EQ(config->delivery.sieve.next_hop, "delivery.sieve");
  ASSERT_EQ(config->next_hops.size(), 2u);
  const NextHopSpec& spec = config->next_hops.back().spec;
  EXPECT_TRUE(spec.local() && spec.xclient && spec.recipient == HopRecipient::user_and_original);
  EXPECT_EQ(spec.target.unix_path, "/run/dovecot/lmtp");
  EXPECT_EQ(spec.connections_max, 7u);
  EXPECT_FALSE(config->next_hops.front().spec.local());
  EXPECT_EQ(config->scripts.dovecot, "/etc/dovecot/dovecot.conf");
  EXPECT_FALSE(config->scripts.all_users || config->scripts.scripts_in_rows);
}

TEST(SieveSettingsOfLmtpd, TheOperatorMaySayWhatRowsHave) {
  for (bool rows : {true, false}) {
    auto config = parse_config(
        "t.toml",
        minimal_then(fmt::format("[delivery.sieve]\nlmtp = \"unix:/x\"\nscripts_in_rows = {}\n", rows)));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->scripts.scripts_in_rows, rows);
  }
}

TEST(SieveSettingsOfLmtpd, ByAnAgent) {
  auto config = parse_config(
      "t.toml",
      minimal_then(
          "[quota]\ndriver = \"none\"\ndovecot = \"/q\"\n[delivery.sieve]\nagent = \"lda\"\nusers = \"all\"\n"
          "[agent.lda]\ncommand = \"/bin/true\"\n"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->delivery.sieve.agent, "lda");
  EXPECT_TRUE(config->next_hops.empty());
  EXPECT_EQ(config->scripts.dovecot, "/q");
  EXPECT_TRUE(config->scripts.all_users);
}

TEST(SieveSettingsOfLmtpd, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> rows[] = {
      {"[delivery.sieve]\n", "delivery.sieve.agent: expected one of agent and lmtp"},
      {"[delivery.sieve]\nlmtp = \"unix:/x\"\nagent = \"a\"\n[agent.a]\ncommand = \"/bin/true\"\n",
       "expected one of agent and lmtp"},
      {"[delivery.sieve]\nlmtp = \"127.0.0.1:24\"\n",
       "delivery.sieve.lmtp: \"127.0.0.1:24\": expected the Unix socket"},
      {"[delivery.sieve]\nagent = \"ldaa\"\n[agent.lda]\ncommand = \"/bin/true\"\n",
       "there is no section [agent.ldaa]; did you mean \"lda\"?"},
      {"[delivery.sieve]\nagent = \"maildir\"\n", "there is no section [agent.maildir]"},
      {"[delivery.sieve]\nagent = \"lda\"\nconnections = 3\n[agent.lda]\ncommand = \"/bin/true\"\n",
       "delivery.sieve.connections: needs lmtp"},
      {"[delivery.sieve]\nlmtp = \"unix:/x\"\nusers = \"al\"\n", "did you mean \"all\"?"},
      {"[delivery.sieve]\nlmtp = \"unix:/x\"\nusrs = \"all\"\n", "did you mean \"users\"?"},
      {"[delivery.sieve]\nlmtp = \"unix:/x\"\ndovecot = \"x\"\n",
       "delivery.sieve.dovecot: expected an absolute path"},
      {"[delivery]\nsieve = 3\n", "delivery.sieve"}};
  for (auto [text, wanted] : rows)
    EXPECT_NE(error_of(minimal_then(text)).find(wanted), std::string::npos)
        << text << error_of(minimal_then(text));
  auto config = parse_config(
      "t.toml", minimal_then("[delivery]\nagent = \"a\"\n[delivery.sieve]\nlmtp = \"unix:/x\"\nconnections = "
                             "64\n[agent.a]\ncommand = \"/bin/true\"\n"));
  ASSERT_TRUE(config) << config.error().message;
  std::string warnings = fmt::format("{}", fmt::join(config->warnings, "\n"));
  EXPECT_NE(warnings.find("delivery.sieve.connections (64) is not below limits.deliveries"),
            std::string::npos)
      << warnings;
  EXPECT_NE(warnings.find("only users of the built-in agent go there"), std::string::npos) << warnings;
}

TEST(Config, AMissingFileSaysHowToNameAnother) {
  auto config = load_config("/nonexistent/lmtpd.toml");
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("--config"), std::string::npos);
}

}  // namespace
}  // namespace twinloft::lmtpd
