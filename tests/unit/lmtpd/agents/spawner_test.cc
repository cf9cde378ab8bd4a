// The spawner with real processes: user and groups, clean environment, limits, and no process left after a
// run.
#include "twinloft/lmtpd/agents/spawner.h"

#include <pwd.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <array>
#include <future>
#include <thread>

#include "../support/fixture.h"
#include "spawn_wire.h"

namespace twinloft::lmtpd {
namespace {

using End = RunResult::End;
using std::chrono::milliseconds;

class SpawnerTest : public test::DirTest {
 protected:
  void SetUp() override {
    // The mail user may have no access to the build tree.
    agent_ = path("agent");
    std::filesystem::copy_file(TEST_AGENT, agent_);
    ::chmod(agent_.c_str(), 0755);
    std::filesystem::create_directory(home());
    give_to_mail_user(home());
    ASSERT_EQ(::mkfifo(fifo().c_str(), 0666), 0);
    ::chmod(fifo().c_str(), 0666);
  }
  std::string home() const { return path("home"); }
  std::string fifo() const { return path("fifo"); }

  AgentSpec spec(const std::string& arguments) {
    AgentSpec s;
    s.name = "agent";
    s.command = agent_ + " " + arguments;
    return s;
  }
  AgentSpec named(const std::string& name, const std::string& arguments) {
    AgentSpec s = spec(arguments);
    s.name = name;
    return s;
  }
  void start(AgentSpec s, SpawnerOptions options = {}) {
    start(std::vector<AgentSpec>{std::move(s)}, options);
  }
  void start(std::vector<AgentSpec> specs, SpawnerOptions options = {}) {
    auto started = Spawner::start(std::move(specs), options);
    ASSERT_TRUE(started.has_value()) << started.error().message;
    spawner_ = std::move(*started);
  }
  RunRequest request() {
    RunRequest r;
    r.id = "test";
    r.user = "ann";
    r.uid = test::is_root() ? test::mail_uid : ::getuid();
    r.gid = test::is_root() ? test::mail_uid : ::getgid();
    r.home = home();
    return r;
  }
  RunResult run(const RunRequest& r) {
    Fd message(::memfd_create("m", MFD_CLOEXEC));
    EXPECT_TRUE(write_all(message.get(), as_bytes(std::string_view("hello\n"))).has_value());
    ::lseek(message.get(), 0, SEEK_SET);
    return spawner_->run(r, message.get());
  }
  RunResult run() { return run(request()); }

  // Whether a process still holds the fifo open for reading.
  bool somebody_is_left() { return somebody_is_left(fifo()); }
  static bool somebody_is_left(const std::string& at) {
    Fd fd(::open(at.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    return static_cast<bool>(fd);
  }
  std::string make_fifo(const std::string& name) {
    std::string at = path(name);
    EXPECT_EQ(::mkfifo(at.c_str(), 0666), 0);
    ::chmod(at.c_str(), 0666);
    return at;
  }
  // Starts agent 0. The agent leaves a helper in its own session, waits until `gate` is opened and closed,
  // and ends.
  std::thread start_gated(const std::string& gate, Fd* open_gate) {
    std::thread runs([this] {
      RunRequest r = request();
      r.agent = 0;
      EXPECT_EQ(run(r).value, 0);
    });
    open_gate->reset(::open(gate.c_str(), O_WRONLY | O_CLOEXEC));  // waits until the agent opens the gate
    return runs;
  }

  std::string agent_;
  std::unique_ptr<Spawner> spawner_;
};

TEST_F(SpawnerTest, GivesExitCodeAndOutput) {
  start(spec("exit 67 'who is that'"));
  RunResult result = run();
  EXPECT_EQ(result.end, End::exited);
  EXPECT_EQ(result.value, 67);
  EXPECT_EQ(result.output, "who is that\n");
}

TEST_F(SpawnerTest, ExpandsValuesAsSingleArguments) {
  start(spec("exit 75 %user%"));
  RunRequest r = request();
  r.values = {{"user", "$(id) `id` ; a  b 'c'"}};
  EXPECT_EQ(run(r).output, "$(id) `id` ; a  b 'c'\n");
}

TEST_F(SpawnerTest, RunsAsTheUserInACleanProcess) {
  AgentSpec s = spec("report report");
  s.limits.open_files = 77;
  s.set_environment = {{"EXTRA", "yes"}};
  s.pass_environment = {"TWINLOFT_PASSED", "TWINLOFT_ABSENT"};
  ::setenv("TWINLOFT_PASSED", "1", 1);
  ::setenv("TWINLOFT_SECRET", "1", 1);
  Fd leaked(::open("/dev/null", O_RDONLY));  // no CLOEXEC
  start(s);
  RunRequest r = request();
  ASSERT_EQ(run(r).value, 0);
  std::string report = test::slurp(home() + "/report");
  if (test::is_root()) {
    EXPECT_NE(report.find("uid 61234 61234 gid 61234 61234 groups 1 61234\n"), std::string::npos) << report;
  }
  EXPECT_NE(report.find("leader 1 1\n"), std::string::npos) << report;
  EXPECT_NE(report.find("cwd " + home() + " umask 077\n"), std::string::npos) << report;
  EXPECT_NE(report.find("signals 0 1\n"), std::string::npos) << report;
  EXPECT_NE(report.find("core 0 files 77\n"), std::string::npos) << report;
  // 0 to 2, and the descriptor of the report itself
  EXPECT_NE(report.find("descriptors 4 "), std::string::npos) << report;
  for (const char* there : {"env USER=ann\n", "env LOGNAME=ann\n", "env EXTRA=yes\n",
                            "env TWINLOFT_PASSED=1\n", "env PATH=/usr/local/bin:/usr/bin:/bin\n"})
    EXPECT_NE(report.find(there), std::string::npos) << there << report;
  EXPECT_NE(report.find("env HOME=" + home() + "\n"), std::string::npos);
  EXPECT_EQ(report.find("SECRET"), std::string::npos);
}

TEST_F(SpawnerTest, RefusesRootAndForgedRequests) {
  start(spec("exit 0"));
  auto refused = [&](auto change) {
    RunRequest r = request();
    change(r);
    return run(r).end == End::refused;
  };
  EXPECT_TRUE(refused([](RunRequest& r) { r.uid = 0; }));
  EXPECT_TRUE(refused([](RunRequest& r) { r.gid = 0; }));
  EXPECT_TRUE(refused([](RunRequest& r) { r.uid = ~0u; }));
  EXPECT_TRUE(refused([](RunRequest& r) { r.gid = ~0u; }));
  EXPECT_TRUE(refused([](RunRequest& r) { r.agent = 1; }));
  EXPECT_TRUE(refused([](RunRequest& r) { r.home = "relative"; }));
  EXPECT_TRUE(refused([](RunRequest& r) { r.home = "/srv/../etc"; }));
  EXPECT_TRUE(refused([](RunRequest& r) { r.home = std::string("/srv\0x", 6); }));
  EXPECT_TRUE(refused([](RunRequest& r) { r.values = {{"unknown", "x"}}; }));
  EXPECT_TRUE(refused([](RunRequest& r) { r.values = {{"to", std::string(20'000, 'x')}}; }));
  EXPECT_TRUE(refused([](RunRequest& r) { r.values.assign(65, {"to", "x"}); }));
  EXPECT_TRUE(refused([](RunRequest& r) { r.values.assign(64, {"to", std::string(16'000, 'x')}); }));
  EXPECT_FALSE(refused([](RunRequest&) {}));
}

TEST_F(SpawnerTest, RefusesUsersBelowTheConfiguredOnes) {
  SpawnerOptions options;
  options.run_as.uid_min = request().uid + 1;
  start(spec("exit 0"), options);
  EXPECT_EQ(run().end, End::refused);
  options.run_as.own = {{request().uid, request().gid}};
  start(spec("exit 0"), options);
  EXPECT_EQ(run().end, End::exited) << "the configured user is always accepted";
}

// A server process that an attacker controls can request any home.
TEST_F(SpawnerTest, RunsNoAgentWithAHomeThatNobodyConfigured) {
  SpawnerOptions options;
  options.run_as.homes = {home()};
  start(spec("exit 0"), options);
  EXPECT_EQ(run().end, End::exited);
  RunRequest r = request();
  r.home = home() + "/ann//x/";
  EXPECT_EQ(run(r).end, End::exited);
  for (const std::string& other : {home() + "x", path("."), std::string("/"), std::string("/tmp")}) {
    r.home = other;
    RunResult result = run(r);
    EXPECT_EQ(result.end, End::not_started) << other;
    EXPECT_EQ(result.value, EPERM);
    EXPECT_TRUE(result.output.starts_with("home or group")) << result.output;
  }
}

TEST(RunAs, IsPinnedToWhatTheConfigurationKnows) {
  RunAsRules rules;
  rules.own = {{200, 201}, {300, 8}};
  rules.homes = {"/srv/mail"};
  auto ask = [&](std::uint32_t uid, std::uint32_t gid, std::string_view home = "/srv/mail/ann") {
    return check_run_as(rules, uid, gid, home);
  };
  EXPECT_FALSE(ask(200, 201)->any()) << "below uid_min, and the configured user";
  EXPECT_FALSE(ask(300, 201)->any());
  EXPECT_FALSE(ask(1000, 1000)->any());
  EXPECT_FALSE(ask(1000, 8)->any());
  EXPECT_TRUE(ask(1000, 42)->group) << "the group shadow";
  EXPECT_TRUE(ask(1000, 1000, "/home/ann")->home);
  EXPECT_TRUE(ask(200, 201, "/srv/mailx")->home) << "also for the configured user";
  for (auto [uid, gid] :
       {std::pair(0u, 1000u), {1000u, 0u}, {999u, 1000u}, {201u, 1000u}, {~0u, 1000u}, {1000u, ~0u}})
    EXPECT_FALSE(ask(uid, gid)) << uid << ":" << gid;
  rules.only_own = true;
  EXPECT_TRUE(ask(200, 8));
  EXPECT_FALSE(ask(1000, 1000)) << "no row can name another user";
  EXPECT_FALSE(ask(200, 1000));
}

TEST(RunAs, TheAccountsOwnHomeAndGroup) {
  const passwd* account = ::getpwnam("nobody");
  ASSERT_TRUE(account);
  const std::uint32_t uid = account->pw_uid, gid = account->pw_gid;
  const std::string home = account->pw_dir;
  EXPECT_TRUE(account_agrees({true, true}, uid, gid, home));
  EXPECT_TRUE(account_agrees({true, true}, uid, gid, home + "/sub"));
  EXPECT_FALSE(account_agrees({true, true}, uid, gid + 1, home));
  EXPECT_FALSE(account_agrees({true, true}, uid, gid, "/root"));
  EXPECT_FALSE(account_agrees({false, true}, 4'000'000'000u, gid, home)) << "no such account";
  EXPECT_TRUE(account_agrees({}, 4'000'000'000u, gid, "/anywhere"));
}

TEST(RunAs, WithinIsByComponents) {
  for (auto [path, directory] : {std::pair("/a/b", "/a"),
                                 {"/a", "/a"},
                                 {"/a/", "/a"},
                                 {"//a//b", "/a/"},
                                 {"/a/./b", "/a/b/."},
                                 {"/x", "/"}})
    EXPECT_TRUE(is_within(path, directory)) << path;
  for (auto [path, directory] : {std::pair("/ab", "/a"), {"/", "/a"}, {"/a", "/a/b"}})
    EXPECT_FALSE(is_within(path, directory)) << path;
}

TEST_F(SpawnerTest, RefusesAMessageThatIsNoFile) {
  start(spec("exit 0"));
  Fd directory(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(spawner_->run(request(), directory.get()).end, End::refused);
}

TEST_F(SpawnerTest, RefusesAValueThatWouldBecomeAnOption) {
  start(spec("exit 0 %from%"));
  RunRequest r = request();
  r.values = {{"from", "-oX@example.org"}};
  EXPECT_EQ(run(r).end, End::refused);
}

TEST_F(SpawnerTest, AProgramThatIsMissingIsNotStarted) {
  AgentSpec s = spec("exit 0");
  s.command = path("nothing") + " x";
  start(s);
  RunResult result = run();
  EXPECT_EQ(result.end, End::not_started);
  EXPECT_EQ(result.value, ENOENT);
  EXPECT_EQ(result.output, "the program");
}

TEST_F(SpawnerTest, AScriptWhoseInterpreterIsMissingSaysSo) {
  std::string script = path("script");
  std::ofstream(script) << "#!/nowhere/python3\nexit 0\n";
  ::chmod(script.c_str(), 0755);
  AgentSpec s = spec("");
  s.command = script;
  start(s);
  RunResult result = run();
  EXPECT_EQ(result.end, End::not_started);
  EXPECT_EQ(result.value, ENOENT);
  EXPECT_NE(result.output.find("interpreter"), std::string::npos) << result.output;
}

TEST_F(SpawnerTest, AScriptWithoutInterpreterLineIsNotGivenToAShell) {
  std::string script = path("script");
  std::ofstream(script) << "exit 0\n";
  ::chmod(script.c_str(), 0755);
  AgentSpec s = spec("");
  s.command = script;
  start(s);
  RunResult result = run();
  EXPECT_EQ(result.value, ENOEXEC);
  EXPECT_NE(result.output.find("names an interpreter"), std::string::npos) << result.output;
}

// A plain "Permission denied" would suggest the script, whose permissions are right.
TEST_F(SpawnerTest, WhatIsDeniedIsNamed) {
  std::string script = path("script"), interpreter = path("interpreter");
  std::ofstream(interpreter) << "x";
  std::ofstream(script) << "#!" + interpreter + "\nexit 0\n";
  ::chmod(script.c_str(), 0755);
  for (auto [program, says] : {std::pair{script, "interpreter in its first line may not"},
                               {path(""), "the program is not a file"},
                               {interpreter, "the program"}}) {
    AgentSpec s = spec("");
    s.command = program;
    start(s);
    RunResult result = run();
    EXPECT_EQ(result.value, EACCES) << program;
    EXPECT_NE(result.output.find(says), std::string::npos) << result.output;
  }
}

TEST_F(SpawnerTest, ADeathBySignalIsToldFromAnExit) {
  start(spec("signal"));
  RunResult result = run();
  EXPECT_EQ(result.end, End::signalled);
  EXPECT_EQ(result.value, SIGKILL);
}

TEST_F(SpawnerTest, KeepsTheEndOfAFlood) {
  start(spec("flood"));
  RunResult result = run();
  EXPECT_EQ(result.value, 75);
  EXPECT_EQ(result.output.size(), 8192u);
  EXPECT_TRUE(result.output.ends_with("x\nthe last line\n"));
}

// A process that has left its run may write without end. The last read of the output is limited, and other
// runs continue.
TEST_F(SpawnerTest, ADaemonThatFloodsHoldsUpNobody) {
  std::string gate = make_fifo("gate"), others = make_fifo("others");
  start({named("gated", "daemon-gate " + others + " " + gate), named("flood", "daemon-flood " + fifo()),
         named("plain", "exit 3")});
  Fd open_gate;
  std::thread under_way = start_gated(gate, &open_gate);
  for (std::uint32_t agent : {1u, 2u}) {
    RunRequest r = request();
    r.agent = agent;
    EXPECT_EQ(run(r).end, End::exited) << agent;
  }
  open_gate.reset();
  under_way.join();
}

TEST_F(SpawnerTest, GivesSignsOfLifeUnlessItHangs) {
  SpawnerOptions options;
  options.answer_wait = milliseconds(2'000);
  options.kill_wait = milliseconds(100);
  AgentSpec quick = spec("exit 0");
  quick.time_limit = milliseconds(200);
  quick.kill_grace = milliseconds(0);
  start(quick, options);
  auto beats = [&](int times) {
    for (int i = 0; i < times; ++i, std::this_thread::sleep_for(milliseconds(100)))
      if (Status alive = spawner_->beat(); !alive) return alive;
    return Status();
  };
  EXPECT_TRUE(beats(50));
  ASSERT_EQ(::kill(spawner_->pid(), SIGSTOP), 0);
  EXPECT_EQ(run().end, End::lost) << "a run ends too";
  Status hangs = beats(200);
  ASSERT_FALSE(hangs);
  EXPECT_NE(hangs.error().message.find("has given no sign of life"), std::string::npos);
  EXPECT_FALSE(spawner_->alive());
  EXPECT_TRUE(beats(1)) << "reported once";
  EXPECT_EQ(run().end, End::lost);
  ::kill(spawner_->pid(), SIGKILL);
}

// This does not depend on the agent's time limit: the clients would wait for a stopped process.
TEST_F(SpawnerTest, RunsUnderWayEndOnceItIsFoundToHang) {
  SpawnerOptions options;
  options.answer_wait = milliseconds(300);
  AgentSpec slow = spec("announce " + fifo());
  slow.time_limit = std::chrono::hours(1);
  start(slow, options);
  std::future<RunResult> under_way = std::async(std::launch::async, [this] { return run(); });
  Fd reader(::open(fifo().c_str(), O_RDONLY | O_CLOEXEC));
  std::array<std::byte, 1> started;
  ASSERT_TRUE(read_exact(reader.get(), started).has_value());
  ASSERT_EQ(::kill(spawner_->pid(), SIGSTOP), 0);
  while (spawner_->beat()) std::this_thread::sleep_for(milliseconds(100));
  bool ended = under_way.wait_for(std::chrono::minutes(1)) == std::future_status::ready;
  EXPECT_TRUE(ended);
  ::kill(spawner_->pid(), SIGKILL);
  EXPECT_EQ(under_way.get().end, End::lost);
}

TEST_F(SpawnerTest, KillsBackgroundChildrenAfterANormalEnd) {
  start(spec("child " + fifo() + " 0"));
  RunResult result = run();
  EXPECT_EQ(result.end, End::exited);
  EXPECT_EQ(result.value, 0);
  EXPECT_FALSE(somebody_is_left());
}

TEST_F(SpawnerTest, KillsADaemonInItsOwnSession) {
  start(spec("daemon " + fifo() + " 0"));
  EXPECT_EQ(run().value, 0);
  EXPECT_FALSE(somebody_is_left());
}

TEST_F(SpawnerTest, ADaemonEndsWithItsOwnRunAndNotWithAnothers) {
  std::string helper = make_fifo("helper"), gate = make_fifo("gate");
  start({named("gated", "daemon-gate " + helper + " " + gate), named("leaves", "daemon " + fifo() + " 0")});
  Fd open_gate;
  std::thread gated = start_gated(gate, &open_gate);
  RunRequest other = request();
  other.agent = 1;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run(other).value, 0);
    EXPECT_FALSE(somebody_is_left());
    EXPECT_TRUE(somebody_is_left(helper)) << "its run has not ended";
  }
  open_gate.reset();
  gated.join();
  EXPECT_FALSE(somebody_is_left(helper));
}

TEST_F(SpawnerTest, ADaemonThatHidesEndsOnceNoRunIsUnderWay) {
  std::string helper = make_fifo("helper"), gate = make_fifo("gate");
  start({named("gated", "daemon-gate " + helper + " " + gate), named("hides", "daemon-hidden " + fifo())});
  RunRequest hides = request();
  hides.agent = 1;
  EXPECT_EQ(run(hides).value, 0);
  EXPECT_FALSE(somebody_is_left());
  Fd open_gate;
  std::thread gated = start_gated(gate, &open_gate);
  EXPECT_EQ(run(hides).value, 0);
  EXPECT_TRUE(somebody_is_left()) << "it may belong to the other run";
  open_gate.reset();
  gated.join();
  EXPECT_FALSE(somebody_is_left());
  EXPECT_FALSE(somebody_is_left(helper));
}

TEST_F(SpawnerTest, EndsAnAgentAtItsTimeLimit) {
  AgentSpec s = spec("hang " + fifo());
  s.time_limit = milliseconds(200);
  s.kill_grace = milliseconds(60'000);  // SIGTERM is enough
  start(s);
  EXPECT_EQ(run().end, End::timed_out);
  EXPECT_FALSE(somebody_is_left());
}

TEST_F(SpawnerTest, KillsAnAgentThatIgnoresTerm) {
  AgentSpec s = spec("hang-ignoring " + fifo());
  s.time_limit = milliseconds(200);
  s.kill_grace = milliseconds(50);
  start(s);
  EXPECT_EQ(run().end, End::timed_out);
  EXPECT_FALSE(somebody_is_left());
}

TEST_F(SpawnerTest, RunsManyAtOnceAndSaysBusyBeyond) {
  SpawnerOptions options;
  options.runs_max = 4;
  AgentSpec s = spec("announce " + fifo());
  s.time_limit = milliseconds(60'000);
  start(s, options);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_EQ(run().end, End::lost); });
  Fd reader(::open(fifo().c_str(), O_RDONLY | O_CLOEXEC));
  std::array<std::byte, 4> started;
  ASSERT_TRUE(read_exact(reader.get(), started).has_value());
  EXPECT_EQ(run().end, End::busy);
  ::kill(spawner_->pid(), SIGKILL);
  for (auto& t : threads) t.join();
  char byte;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);  // waits until the last agent has ended
  EXPECT_EQ(run().end, End::lost);
  EXPECT_FALSE(spawner_->alive());
}

TEST_F(SpawnerTest, FewDescriptorsMeanFewerRunsAndNoLostOnes) {
  struct rlimit few{80, 80};  // 64 for the spawner, and 16 for four runs
  pid_t child = ::fork();
  if (child == 0) {
    // In a separate process, since only root could raise the hard limit again.
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) ::_exit(1);
    start(spec("announce " + fifo()));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { run(); });
    Fd reader(::open(fifo().c_str(), O_RDONLY | O_CLOEXEC));
    std::array<std::byte, 4> started;
    bool all = read_exact(reader.get(), started).has_value();
    bool busy = run().end == End::busy && spawner_->runs_max() == 4;
    ::kill(spawner_->pid(), SIGKILL);
    for (auto& t : threads) t.join();
    spawner_.reset();
    ::_exit(all && busy ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(SpawnerTest, EndsEveryRunWhenItsOwnerGoes) {
  AgentSpec s = spec("announce " + fifo());
  start(s);
  pid_t spawner = spawner_->pid();
  // Sends the request without waiting for the result, like a server process that is killed.
  pid_t owner = ::fork();
  if (owner == 0) {
    run();
    ::_exit(0);
  }
  Fd reader(::open(fifo().c_str(), O_RDONLY | O_CLOEXEC));
  std::array<std::byte, 1> started;
  ASSERT_TRUE(read_exact(reader.get(), started).has_value());
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  spawner_.reset();
  char byte;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);
  EXPECT_NE(::kill(spawner, 0), 0);
}

TEST_F(SpawnerTest, RefusesBadSpecsAtStart) {
  auto message = [&](auto change) {
    AgentSpec s = spec("exit 0");
    change(s);
    auto started = Spawner::start({s});
    return started ? std::string() : started.error().message;
  };
  EXPECT_NE(message([](AgentSpec& s) { s.command = "/bin/x %nobody%"; }).find("agent.agent.command"),
            std::string::npos);
  EXPECT_NE(message([](AgentSpec& s) { s.command = "cat"; }).find("absolute"), std::string::npos);
  EXPECT_NE(message([](AgentSpec& s) { s.command = "/bin/%user%"; }).find("absolute"), std::string::npos);
  EXPECT_NE(message([](AgentSpec& s) { s.name = "maildir"; }).find("built-in"), std::string::npos);
  EXPECT_NE(message([](AgentSpec& s) { s.name = "a b"; }), "");
  EXPECT_NE(message([](AgentSpec& s) { s.time_limit = milliseconds(0); }), "");
  EXPECT_NE(message([](AgentSpec& s) { s.set_environment = {{"A=B", "x"}}; }), "");
  EXPECT_EQ(message([](AgentSpec&) {}), "");
}

TEST(SpawnWire, RefusesEveryCutAndEveryTail) {
  RunRequest request;
  request.agent = 3;
  request.uid = request.gid = 1000;
  request.id = "id";
  request.user = "ann";
  request.home = "/srv/ann";
  request.values = {{"to", "a@b"}, {"from", ""}};
  auto packet = encode_request(request).value();
  auto whole = decode_request(packet);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->values, request.values);
  EXPECT_EQ(whole->home, request.home);
  for (std::size_t cut = 0; cut < packet.size(); ++cut)
    EXPECT_FALSE(decode_request(ByteSpan(packet).first(cut)).has_value()) << cut;
  packet.push_back(std::byte{0});
  EXPECT_FALSE(decode_request(packet).has_value());
}

TEST(SpawnWire, ResultsGoThereAndBack) {
  auto back = decode_result(encode_result({End::signalled, 9, "text"}));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->end, End::signalled);
  EXPECT_EQ(back->value, 9);
  EXPECT_EQ(back->output, "text");
  EXPECT_FALSE(decode_result({}).has_value());
}

}  // namespace
}  // namespace twinloft::lmtpd
