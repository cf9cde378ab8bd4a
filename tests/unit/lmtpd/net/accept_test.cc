// The server's behaviour if it cannot accept connections.
#include "accept_pauses.h"

#include <fcntl.h>
#include <sys/resource.h>

#include "server_fixture.h"

namespace twinloft::lmtpd {
namespace {

TEST(AcceptPauses, GrowToALimitAndAreToldOfOnceAMinute) {
  AcceptPauses pauses;
  Instant now{1'000'000'000};
  EXPECT_FALSE(pauses.succeeded(now));
  std::size_t lines = 0;
  std::uint64_t failures = 0;
  Duration last{};
  for (int i = 0; i < 200; ++i) {
    AcceptPauses::Pause pause = pauses.failed(now);
    EXPECT_GE(pause.time, last);
    EXPECT_LE(pause.time, AcceptPauses::most);
    lines += pause.say;
    failures = pause.failures;
    last = pause.time;
    now = now + pause.time;
  }
  EXPECT_EQ(failures, 200u);
  EXPECT_EQ(last, AcceptPauses::most);
  EXPECT_EQ(lines, 4u) << "in more than three minutes";
  EXPECT_EQ(*pauses.succeeded(now), now - Instant{1'000'000'000});
  EXPECT_FALSE(pauses.succeeded(now));
}

// Otherwise each closed connection would cause another log line.
TEST(AcceptPauses, WhatBeginsAgainSoonIsNotToldAgain) {
  AcceptPauses pauses;
  Instant now{};
  std::size_t lines = 0;
  for (int i = 0; i < 100; ++i) {
    lines += pauses.failed(now).say;
    now = now + std::chrono::milliseconds(100);
    lines += pauses.succeeded(now).has_value();
  }
  EXPECT_EQ(lines, 2u);
}

// Not in the build with UBSan. Its check of virtual calls opens a pipe, and reports a bad object if no
// descriptor is free.
#if !defined(__SANITIZE_ADDRESS__)
class Descriptors : public ServerTest {
 protected:
  // From now on, the kernel refuses new descriptors.
  void use_up() {
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    Fd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit now{static_cast<rlim_t>(next.get()), before_.rlim_max};
    next.reset();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &now), 0);
  }
  void give_back() { ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  rlimit before_{};
};

TEST_F(Descriptors, WhoComesWhileThereAreNoneIsServedLater) {
  start();
  LmtpClient there(port_);
  there.begin();
  LmtpClient waits = LmtpClient::unconnected();
  testing::internal::CaptureStderr();
  use_up();
  waits.connect_to(port_);
  there.envelope({"ann@example.org"});
  EXPECT_EQ(there.ask(message).substr(0, 3), "250") << "the connected client is served";
  std::this_thread::sleep_for(std::chrono::seconds(1));  // time for many attempts
  give_back();
  waits.begin();
  waits.hang_up();
  there.hang_up();
  stop();
  std::string log = testing::internal::GetCapturedStderr();
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = log.find("cannot accept connections", at)) != std::string::npos; ++at)
    ++lines;
  EXPECT_EQ(lines, 1u) << log;
  EXPECT_NE(log.find("accepting connections again"), std::string::npos) << log;
}
#endif

}  // namespace
}  // namespace twinloft::lmtpd
