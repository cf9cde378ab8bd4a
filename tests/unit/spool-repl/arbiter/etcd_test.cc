// EtcdStore against a server that behaves like etcd, and against servers that do not.
#include "etcd.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "fake_server.h"
#include "sample_volume.h"
#include "twinloft/spool-repl/arbiter/value.h"

namespace twinloft::repl::arbiter {
namespace {

using core::ArbiterAnswer;
using core::ArbiterRequest;
using core::EpochValue;
using Outcome = ArbiterAnswer::Outcome;

// Long if an answer is expected, short if none is expected.
constexpr Duration long_time = std::chrono::seconds(9), short_time = std::chrono::milliseconds(250);

FakeReply silence() {
  return {"", false, true};
}

struct EtcdTest : testing::Test {
  OsClock clock;
  SeededRandom random{7};
  std::string folder;

  void SetUp() override {
    const char* tmp = std::getenv("TMPDIR");
    folder = std::string(tmp ? tmp : "/tmp") + "/tl-etcd-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
  }
  void TearDown() override {
    for (const char* file : {"/password", "/ca.pem"}) ::unlink((folder + file).c_str());
    ::rmdir(folder.c_str());
  }
  std::string write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    std::string path = folder + "/" + name;
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  EpochValue value(std::uint64_t counter, ReplicaId writer = 1) {
    return {{counter, Uuid::generate(random)}, writer, set_of(1) | set_of(2), Uuid::generate(random)};
  }
  Settings settings(std::vector<std::string> urls, Duration timeout = long_time) {
    Settings s;
    s.kind = Kind::etcd;
    s.endpoints = std::move(urls);
    s.timeout = timeout;
    return s;
  }
  std::unique_ptr<EtcdStore> store(const Settings& s) {
    auto made = EtcdStore::create(s, volume, clock);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  static ArbiterRequest read() { return {5, true, std::nullopt, {}}; }
  static ArbiterRequest swap(std::optional<EpochValue> from, EpochValue to) {
    return {6, false, std::move(from), to};
  }
  // Checks that the outcome is unknown, with these words.
  static testing::AssertionResult unknown(const ArbiterAnswer& a, const std::string& words) {
    if (a.outcome != Outcome::unknown)
      return testing::AssertionFailure() << "an outcome: " << static_cast<int>(a.outcome);
    if (a.current) return testing::AssertionFailure() << "unknown, with a value";
    if (a.why.find(words) == std::string::npos)
      return testing::AssertionFailure() << "not in these words: " << a.why;
    return testing::AssertionSuccess();
  }
};

TEST_F(EtcdTest, ComparesAndSwaps) {
  FakeEtcd etcd;
  FakeServer server(std::ref(etcd));
  auto s = store(settings({server.url()}));
  ArbiterAnswer a = s->perform(read());
  EXPECT_EQ(a.outcome, Outcome::granted);
  EXPECT_EQ(a.token, 5u);
  EXPECT_EQ(a.current, std::nullopt);
  EXPECT_EQ(etcd.key, "/twinloft/0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff/epoch");

  EpochValue one = value(1), two = value(2, 2), three = value(3);
  a = s->perform(swap(std::nullopt, one));
  EXPECT_EQ(a.outcome, Outcome::granted);
  EXPECT_EQ(a.current, one);
  EXPECT_EQ(etcd.value, encode_value(volume, one));
  EXPECT_EQ(s->perform(read()).current, one);

  a = s->perform(swap(std::nullopt, two));
  EXPECT_EQ(a.outcome, Outcome::refused);
  EXPECT_EQ(a.current, one);
  a = s->perform(swap(three, two));
  EXPECT_EQ(a.outcome, Outcome::refused);
  EXPECT_EQ(a.current, one);
  a = s->perform(swap(one, two));
  EXPECT_EQ(a.outcome, Outcome::granted);
  EXPECT_EQ(a.token, 6u);
  EXPECT_EQ(etcd.value, encode_value(volume, two));

  etcd.value.reset();
  a = s->perform(swap(two, three));
  EXPECT_EQ(a.outcome, Outcome::refused) << "the key was deleted";
  EXPECT_EQ(a.current, std::nullopt);
}

TEST_F(EtcdTest, OneByteAtATime) {
  FakeEtcd etcd;
  FakeServer server([&](const SeenRequest& r) {
    FakeReply reply = etcd(r);
    reply.trickle = true;
    return reply;
  });
  auto s = store(settings({server.url()}));
  EpochValue one = value(1);
  EXPECT_EQ(s->perform(swap(std::nullopt, one)).outcome, Outcome::granted);
  EXPECT_EQ(s->perform(read()).current, one);
}

TEST_F(EtcdTest, ChunkedAnswers) {
  FakeEtcd etcd;
  FakeServer server([&](const SeenRequest& r) {
    std::string body = etcd.answer(r);
    return FakeReply{
        fmt::format(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n", 7,
            body.substr(0, 7), body.size() - 7, body.substr(7)),
        true};
  });
  EXPECT_EQ(store(settings({server.url()}))->perform(swap(std::nullopt, value(1))).outcome, Outcome::granted);
}

TEST_F(EtcdTest, PrefixesOfKeys) {
  FakeEtcd etcd;
  FakeServer server(std::ref(etcd));
  Settings s = settings({server.url() + "/"});
  for (const char* prefix : {"/mail/prod", "/mail/prod/"}) {
    s.prefix = prefix;
    store(s)->perform(read());
    EXPECT_EQ(etcd.key, "/mail/prod/0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff/epoch");
  }
}

TEST_F(EtcdTest, NobodyThere) {
  std::string dead = fmt::format("http://127.0.0.1:{}", closed_port());
  auto s = store(settings({dead}));
  EXPECT_TRUE(
      unknown(s->perform(read()), "etcd: no answer from 1 endpoint: " + dead + ": connection refused"));
  EXPECT_TRUE(unknown(store(settings({dead, "http://127.0.0.1:1"}))->perform(swap(std::nullopt, value(1))),
                      "no answer from 2 endpoints: "));
  EXPECT_TRUE(unknown(store(settings({"http://no-such-host.invalid:2379"}))->perform(read()),
                      "no-such-host.invalid"));
}

TEST_F(EtcdTest, ADeadEndpointDoesNoHarm) {
  FakeEtcd etcd;
  FakeServer server(std::ref(etcd));
  auto s = store(settings({fmt::format("http://127.0.0.1:{}", closed_port()), server.url()}));
  EpochValue one = value(1);
  EXPECT_EQ(s->perform(swap(std::nullopt, one)).outcome, Outcome::granted);
  EXPECT_EQ(s->perform(read()).current, one);
}

TEST_F(EtcdTest, ASilentEndpointLeavesTimeForTheOthers) {
  FakeEtcd etcd;
  FakeServer silent([](const SeenRequest&) { return silence(); });
  FakeServer server(std::ref(etcd));
  auto s = store(settings({silent.url(), server.url()}, 4 * short_time));
  EpochValue one = value(1);
  EXPECT_EQ(s->perform(swap(std::nullopt, one)).outcome, Outcome::granted);
  EXPECT_EQ(s->perform(read()).current, one);
  EXPECT_EQ(silent.seen().size(), 1u) << "the endpoint that answered is asked first";
  EXPECT_EQ(server.seen().size(), 2u);
}

TEST_F(EtcdTest, SilenceIsUnknown) {
  FakeServer silent([](const SeenRequest&) { return silence(); });
  auto s = store(settings({silent.url()}, short_time));
  EXPECT_TRUE(unknown(s->perform(swap(std::nullopt, value(1))), silent.url() + ": no answer within "));
  EXPECT_TRUE(unknown(s->perform(read()), "no answer within "));
}

TEST_F(EtcdTest, AnAnswerAfterTheDeadlineIsNotTheNextOnes) {
  FakeEtcd etcd;
  bool late = true;
  FakeServer server([&](const SeenRequest& r) {
    FakeReply reply = etcd(r);
    reply.silent_before = late;
    return reply;
  });
  Settings set = settings({server.url()}, short_time);
  auto s = store(set);
  EpochValue one = value(1), two = value(2);
  EXPECT_TRUE(unknown(s->perform(swap(std::nullopt, one)), "no answer within"));
  late = false;
  set.timeout = long_time;
  s = store(set);
  // The swap had been applied. The same attempt finds this out.
  ArbiterAnswer a = s->perform(swap(std::nullopt, one));
  EXPECT_EQ(a.outcome, Outcome::refused);
  EXPECT_EQ(a.current, one);
  EXPECT_EQ(s->perform(swap(one, two)).outcome, Outcome::granted);
}

// The swap is done, and its answer is cut at every byte. The outcome is never refused and never granted.
TEST_F(EtcdTest, CutAnswersAreUnknown) {
  FakeEtcd etcd;
  std::size_t keep = 0, whole = 0;
  FakeServer server([&](const SeenRequest& r) {
    FakeReply reply = etcd(r);
    whole = reply.bytes.size();
    reply.bytes.resize(std::min(keep, whole));
    reply.keep_alive = false;
    return reply;
  });
  auto s = store(settings({server.url()}));
  for (keep = 0; keep == 0 || keep < whole; ++keep) {
    etcd.value.reset();
    ASSERT_TRUE(unknown(s->perform(swap(std::nullopt, value(1))), "closed before the answer was complete"))
        << keep;
    ASSERT_TRUE(etcd.value);
  }
  etcd.value.reset();
  keep = SIZE_MAX;
  EXPECT_EQ(s->perform(swap(std::nullopt, value(1))).outcome, Outcome::granted);
}

TEST_F(EtcdTest, NonsenseIsUnknown) {
  std::string key = base64("/twinloft/0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff/epoch");
  auto with = [&](const std::string& stored) {
    return fmt::format(R"({{"header":{{"cluster_id":"1"}},)"
                       R"("responses":[{{"response_range":{{"kvs":[{{"key":"{}","value":"{}"}}]}}}}]}})",
                       key, base64(stored));
  };
  SeededRandom other(9);
  std::string foreign = encode_value(Uuid::generate(other), value(1));
  std::string newer = encode_value(volume, value(1));
  newer.replace(newer.find("\"version\":1"), 11, "\"version\":3");
  const std::pair<std::string, const char*> cases[] = {
      {"", "not JSON"},
      {"<html>hello</html>", "not JSON"},
      {"{}", "cluster_id"},
      {"{\"header\":{\"cluster_id\":\"1\"}", "not JSON"},
      {R"({"header":{"cluster_id":"1"},"succeeded":true})", "not the one response"},
      {R"({"header":{"cluster_id":"1"},"succeeded":true,"responses":[{"response_range":{}}]})",
       "swap without a put"},
      {R"({"header":{"cluster_id":"1"},"succeeded":"yes","responses":[{"response_put":{}}]})",
       "neither true nor false"},
      {with("hello"), "not one of Twinloft's"},
      {with(foreign), "is of volume"},
      {with(newer), "in version 3 of its format"},
      {with(""), "not one of Twinloft's"},
      {std::string(1000, '\0'), "not JSON"},
  };
  for (const auto& [body, words] : cases) {
    FakeServer server([&](const SeenRequest&) { return FakeReply{http_answer(200, body), true}; });
    EXPECT_TRUE(unknown(store(settings({server.url()}))->perform(swap(std::nullopt, value(1))), words))
        << body;
  }
  for (const char* bytes :
       {"SSH-2.0-OpenSSH_9.2\r\n", "\r\n\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n{}", "\x16\x03\x01\x02", "{}"}) {
    FakeServer server([&](const SeenRequest&) { return FakeReply{bytes}; });
    EXPECT_TRUE(unknown(store(settings({server.url()}))->perform(swap(std::nullopt, value(1))), server.url()))
        << bytes;
  }
}

TEST_F(EtcdTest, ErrorStatusesAreNoRefusals) {
  for (unsigned status : {302u, 400u, 401u, 403u, 404u, 412u, 500u, 502u, 503u, 504u}) {
    FakeEtcd etcd;
    FakeServer bad([&](const SeenRequest&) {
      return FakeReply{http_answer(status, R"({"error":"etcdserver: not today","code":14})",
                                   "Location: http://127.0.0.1:1/\r\n"),
                       true};
    });
    FakeServer good(std::ref(etcd));
    EXPECT_TRUE(
        unknown(store(settings({bad.url()}))->perform(swap(std::nullopt, value(1))),
                fmt::format("no usable answer from 1 endpoint: {}: HTTP status {}: etcdserver: not today",
                            bad.url(), status)));
    EXPECT_EQ(store(settings({bad.url(), good.url()}))->perform(swap(std::nullopt, value(1))).outcome,
              Outcome::granted)
        << status;
  }
  FakeServer old(
      [](const SeenRequest&) { return FakeReply{http_answer(404, "404 page not found\n"), true}; });
  EXPECT_TRUE(unknown(store(settings({old.url()}))->perform(read()), "etcd 3.4 or newer is needed"));
}

TEST_F(EtcdTest, AnswersThatAreTooLarge) {
  const std::pair<std::string, bool> cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", false},
      {http_answer(200, std::string(HttpClient::answer_bytes_max + 1, ' ')), false},
      {"HTTP/1.1 200 OK\r\nX: " + std::string(HttpClient::header_bytes_max, 'x'), false},
      {"HTTP/1.1 200 OK\r\n\r\n" + std::string(HttpClient::answer_bytes_max + 1, ' '), false},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n" + std::string(1u << 20, ' '), false},
      {"HTTP/1.1 200 OK\r\nX: y\r\n", true},
  };
  for (const auto& [bytes, endless] : cases) {
    FakeServer server([&](const SeenRequest&) { return FakeReply{bytes, false, false, false, endless}; });
    EXPECT_TRUE(unknown(store(settings({server.url()}))->perform(swap(std::nullopt, value(1))), server.url()))
        << bytes.substr(0, 60);
  }
}

TEST_F(EtcdTest, TwoClustersAreNoArbiter) {
  FakeEtcd one, other;
  other.cluster = "99";
  bool away = false;
  FakeServer first([&](const SeenRequest& r) { return away ? FakeReply{http_answer(503, "{}")} : one(r); });
  FakeServer second(std::ref(other));
  auto s = store(settings({first.url(), second.url()}));
  EXPECT_EQ(s->perform(read()).outcome, Outcome::granted);
  away = true;
  EXPECT_TRUE(unknown(s->perform(read()), "belongs to another etcd cluster (99)"));
}

// ---- user and password

TEST_F(EtcdTest, LogsInAndRenewsTheToken) {
  FakeEtcd etcd;
  etcd.user = "spool";
  etcd.password = "open sesame";
  FakeServer server(std::ref(etcd));
  Settings set = settings({server.url()});
  EXPECT_TRUE(unknown(store(set)->perform(read()), "HTTP status 401: etcdserver: invalid auth token"));
  set.user = "spool";
  set.password_file = write("password", "open sesame\n");
  auto s = store(set);
  EpochValue one = value(1), two = value(2);
  EXPECT_EQ(s->perform(swap(std::nullopt, one)).outcome, Outcome::granted);
  EXPECT_EQ(s->perform(read()).current, one);
  EXPECT_EQ(etcd.logins, 1);
  ++etcd.logins;  // the token is no longer valid
  EXPECT_EQ(s->perform(swap(one, two)).outcome, Outcome::granted);
  EXPECT_EQ(etcd.logins, 3);
  // The password is read again for each login.
  etcd.password = "changed";
  write("password", "changed");
  ++etcd.logins;
  EXPECT_EQ(s->perform(read()).current, two);
  write("password", "wrong");
  ++etcd.logins;
  EXPECT_TRUE(
      unknown(s->perform(read()), "logging in as spool: HTTP status 400: etcdserver: authentication failed"));
}

TEST_F(EtcdTest, ATokenThatIsNeverGoodEnoughEndsTheTry) {
  FakeServer server([](const SeenRequest& r) {
    if (r.target == "/v3/auth/authenticate") return FakeReply{http_answer(200, R"({"token":"t"})"), true};
    return FakeReply{http_answer(401, R"({"error":"etcdserver: invalid auth token"})"), true};
  });
  Settings set = settings({server.url()});
  set.user = "spool";
  set.password_file = write("password", "x");
  EXPECT_TRUE(unknown(store(set)->perform(read()), "invalid auth token"));
  EXPECT_EQ(server.seen().size(), 2u) << "a new token is not renewed";
}

// Some versions of the gateway close the connection if the token is stale.
TEST_F(EtcdTest, RenewsTheTokenWhereTheConnectionIsClosed) {
  FakeEtcd etcd;
  etcd.user = "spool";
  etcd.password = "open sesame";
  FakeServer server([&](const SeenRequest& r) {
    bool stale = r.target != "/v3/auth/authenticate" && r.token != etcd.token();
    return stale ? FakeReply{""} : etcd(r);
  });
  Settings set = settings({server.url()});
  set.user = "spool";
  set.password_file = write("password", "open sesame");
  auto s = store(set);
  EXPECT_EQ(s->perform(read()).outcome, Outcome::granted);
  ++etcd.logins;
  EXPECT_EQ(s->perform(read()).outcome, Outcome::granted);
  EXPECT_EQ(etcd.logins, 3);
}

TEST_F(EtcdTest, NonsenseInsteadOfAToken) {
  for (const char* body : {"", "{}", R"({"token":"a\nb"})"}) {
    FakeServer server([&](const SeenRequest&) { return FakeReply{http_answer(200, body), true}; });
    Settings set = settings({server.url()});
    set.user = "spool";
    set.password_file = write("password", "x");
    EXPECT_TRUE(unknown(store(set)->perform(read()), "not an answer of etcd")) << body;
    EXPECT_EQ(server.seen().size(), 1u);
  }
}

TEST_F(EtcdTest, FilesThatCanNotBeUsed) {
  Settings set = settings({"http://127.0.0.1:1"});
  auto refused = [&](const std::string& words) {
    auto made = EtcdStore::create(set, volume, clock);
    if (made) return testing::AssertionFailure() << "made";
    if (made.error().message.find(words) == std::string::npos)
      return testing::AssertionFailure() << made.error().message;
    return testing::AssertionSuccess();
  };
  set.user = "spool";
  set.password_file = folder + "/password";
  EXPECT_TRUE(refused(folder + "/password"));
  write("password", "secret\n", 0644);
  EXPECT_TRUE(refused("chmod 600"));
  write("password", "\n", 0600);
  EXPECT_TRUE(refused("holds no password"));
  set.user.clear();
  set.endpoints = {"https://127.0.0.1:1"};
  set.ca_file = folder + "/ca.pem";
  EXPECT_TRUE(refused(folder + "/ca.pem: "));
  write("ca.pem", "hello\n");
  EXPECT_TRUE(refused(folder + "/ca.pem: "));
}

// ---- TLS, and the end

TEST_F(EtcdTest, NoTlsOnTheOtherSide) {
  FakeServer server([](const SeenRequest&) { return FakeReply{http_answer(200, "{}")}; });
  // The fake server reads the handshake as a request without an end, so it never answers. The time must
  // suffice for the system's certificates to be loaded by a slow machine.
  EXPECT_TRUE(unknown(store(settings({server.url("https")}, std::chrono::seconds(3)))->perform(read()),
                      "no answer from 1 endpoint: " + server.url("https") + ": TLS: "));
  EXPECT_TRUE(server.seen().empty());
}

TEST_F(EtcdTest, IsCancelledFromAnotherThread) {
  FakeServer silent([](const SeenRequest&) { return silence(); });
  auto s = store(settings({silent.url(), silent.url()}));
  std::thread canceller([&] {
    silent.wait_for_requests(1);
    s->cancel();
  });
  EXPECT_TRUE(unknown(s->perform(swap(std::nullopt, value(1))), "being stopped"));
  canceller.join();
  EXPECT_TRUE(unknown(s->perform(read()), "endpoints"));
  EXPECT_EQ(silent.seen().size(), 1u);
}

TEST(Endpoints, Addresses) {
  struct Case {
    const char *url, *host, *port;
    bool tls;
  };
  for (const Case& c :
       std::initializer_list<Case>{{"http://10.0.0.1:2379", "10.0.0.1", "2379", false},
                                   {"https://etcd.example.org", "etcd.example.org", "2379", true},
                                   {"http://[::1]:99/", "::1", "99", false},
                                   {"https://[fe80::1]", "fe80::1", "2379", true}}) {
    auto e = parse_endpoint(c.url);
    ASSERT_TRUE(e) << c.url << e.error().message;
    EXPECT_EQ(e->host, c.host);
    EXPECT_EQ(e->port, c.port);
    EXPECT_EQ(e->tls, c.tls);
  }
  for (const char* bad :
       {"", "10.0.0.1:2379", "ftp://a", "http://", "http://:2379", "http://a:", "http://a:0",
        "http://a:65536", "http://a:2379/v3", "http://a:23x", "http://[::1", "http://[nonsense]:1",
        "http://[::1]x", "http://a b:1", "http://a?x", "http://::1:2379"})
    EXPECT_FALSE(parse_endpoint(bad)) << bad;
  for (const char* other : {"HTTP://a:1", "Http://A:1/"}) EXPECT_TRUE(parse_endpoint(other)) << other;
  EXPECT_TRUE(parse_endpoint("HTTPS://a").value().tls);
  EXPECT_NE(parse_endpoint("http://u:p@a:1").error().message.find("user and password_file"),
            std::string::npos);
  EXPECT_EQ(parse_endpoint("http://u:p@a:1").error().message.find("u:p"), std::string::npos)
      << "a password is not repeated";
}

TEST(Endpoints, OneFormForAllWaysToWriteOne) {
  struct Case {
    const char *written, *normal;
  };
  for (const Case& c :
       std::initializer_list<Case>{{"http://Etcd.Example.ORG:2379/", "http://etcd.example.org:2379"},
                                   {"HTTP://etcd.example.org", "http://etcd.example.org:2379"},
                                   {"https://etcd.example.org.:02379", "https://etcd.example.org:2379"},
                                   {"http://etcd.", "http://etcd.:2379"},
                                   {"http://10.0.0.1", "http://10.0.0.1:2379"},
                                   {"http://[0:0:0:0:0:0:0:1]:2379", "http://[::1]:2379"},
                                   {"http://[FE80::0A]", "http://[fe80::a]:2379"},
                                   {"http://10.0.0.1:2380", "http://10.0.0.1:2380"},
                                   {"no endpoint", "no endpoint"}})
    EXPECT_EQ(normal_endpoint(c.written), c.normal) << c.written;
  EXPECT_EQ(normal_prefix("/twinloft/"), "/twinloft");
  EXPECT_EQ(normal_prefix("/twinloft"), "/twinloft");
  EXPECT_NE(normal_prefix("/twinloft//"), normal_prefix("/twinloft/")) << "etcd has another key";
}

}  // namespace
}  // namespace twinloft::repl::arbiter
