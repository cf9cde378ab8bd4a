// The thread that writes the lines about deliveries rests between two looks at its queue.
#include "twinloft/lmtpd/delivery/delivery_lines.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>

#include "twinloft/base/fd.h"
#include "twinloft/base/log.h"

namespace twinloft::lmtpd {
namespace {

// Standard error is a pipe while this exists.
class CapturedLog {
 public:
  CapturedLog() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    reader_.reset(ends[0]);
    before_.reset(::dup(STDERR_FILENO));
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
  }
  ~CapturedLog() { end(); }
  std::string read_line() {
    std::string line;
    for (char c = 0; c != '\n' && ::read(reader_.get(), &c, 1) == 1;) line += c;
    return line;
  }
  bool has_more() {
    pollfd look{reader_.get(), POLLIN, 0};
    return ::poll(&look, 1, 0) == 1;
  }
  void end() {
    if (before_) ::dup2(before_.get(), STDERR_FILENO);
    before_.reset();
  }

 private:
  Fd reader_, before_;
};

DeliveryLine line(std::size_t number) {
  DeliveryLine out;
  out.id = fmt::format("id{}", number);
  out.outcome.reply = {250, "2.0.0", "Delivered"};
  return out;
}

bool is_of(const std::string& text, std::size_t number) {
  return text.find(fmt::format("id=\"id{}\"", number)) != text.npos;
}

// Each line is put when the one before it is written, which is the time of rest.
TEST(DeliveryLines, ALineThatComesDuringTheRestIsWrittenWithoutAnother) {
  CapturedLog log;
  DeliveryLines lines;
  for (std::size_t i = 0; i < 20; ++i) {
    lines.put(line(i));
    std::string text = log.read_line();
    ASSERT_TRUE(is_of(text, i)) << text;
  }
}

// As before _exit(): the thread rests, and is not asked for its end.
TEST(DeliveryLines, SettledLinesAreInTheLog) {
  CapturedLog log;
  DeliveryLines lines;
  for (std::size_t i = 0; i < 20; ++i) {
    lines.put(line(2 * i));
    EXPECT_TRUE(is_of(log.read_line(), 2 * i));
    lines.put(line(2 * i + 1));
    lines.settle();
    log_settle();
    EXPECT_TRUE(log.has_more()) << i;
    EXPECT_TRUE(is_of(log.read_line(), 2 * i + 1)) << i;
  }
}

TEST(DeliveryLines, TheEndWritesWhatIsQueued) {
  CapturedLog log;
  {
    DeliveryLines lines;
    for (std::size_t i = 0; i < 100; ++i) lines.put(line(i));
  }
  log.end();
  for (std::size_t i = 0; i < 100; ++i) EXPECT_TRUE(is_of(log.read_line(), i)) << i;
  EXPECT_EQ(log.read_line(), "");
}

}  // namespace
}  // namespace twinloft::lmtpd
