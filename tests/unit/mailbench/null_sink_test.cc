#include "twinloft/mailbench/null_sink.h"

#include <gtest/gtest.h>

#include "twinloft/mailbench/calibrate.h"
#include "twinloft/mailbench/report.h"

namespace twinloft::mailbench {
namespace {

using namespace std::chrono_literals;

// The replies to the text, given in pieces of `step` bytes.
std::string replies(std::string_view text, std::size_t step) {
  SinkSession session;
  for (std::size_t at = 0; at < text.size(); at += step) session.feed(text.substr(at, step));
  return session.output();
}

TEST(SinkSession, AnswersTheSameForEverySplit) {
  const std::string text =
      "LHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<1@c>\r\nRCPT TO:<2@c>\r\nDATA\r\nX: "
      "y\r\n\r\n..\r\n.x\r\n\r\n.\r\n"
      "MAIL FROM:<a@b>\r\nRCPT TO:<1@c>\r\nDATA\r\n.\r\n"
      "MAIL FROM:<a@b>\r\nRCPT TO:<1@c>\r\nRCPT TO:<2@c>\r\nBDAT 5\r\n\r\n.\r\nBDAT 3 LAST\r\nab\nQUIT\r\n";
  const std::string whole = replies(text, text.size());
  EXPECT_EQ(whole,
            "220 mailbench\r\n250-mailbench\r\n250-PIPELINING\r\n250-SIZE\r\n250-8BITMIME\r\n250 CHUNKING\r\n"
            "250 2.0.0 ok\r\n250 2.1.5 ok\r\n250 2.1.5 ok\r\n354 go on\r\n250 2.0.0 thrown away\r\n250 2.0.0 "
            "thrown away\r\n"
            "250 2.0.0 ok\r\n250 2.1.5 ok\r\n354 go on\r\n250 2.0.0 thrown away\r\n"
            "250 2.0.0 ok\r\n250 2.1.5 ok\r\n250 2.1.5 ok\r\n250 2.0.0 ok\r\n250 2.0.0 thrown away\r\n250 "
            "2.0.0 thrown away\r\n"
            "221 bye\r\n");
  for (std::size_t step = 1; step < 40; ++step) EXPECT_EQ(replies(text, step), whole) << step;
}

TEST(SinkSession, SmtpHasOneReply) {
  EXPECT_TRUE(replies("EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<1@c>\r\nRCPT TO:<2@c>\r\nDATA\r\nx\r\n.\r\n", 7)
                  .ends_with("354 go on\r\n250 2.0.0 thrown away\r\n"));
}

// Messages with dots, in all forms, reach the null server as what they are, over both transports.
TEST(Calibrate, EveryMessageIsCounted) {
  for (bool tcp : {false, true}) {
    for (std::uint64_t chunk : {std::uint64_t{0}, std::uint64_t{100}, std::uint64_t{1} << 20}) {
      LoadOptions o;
      o.clients = 3;
      o.threads = 2;
      o.users = 20;
      o.recipients_per_message = 2;
      o.schedule.messages = 200;
      o.schedule.drain = 60s;
      o.size = SizeDistribution::parse("uniform:1KiB-20KiB").value();
      o.bdat = chunk > 0;
      o.chunk = chunk;
      auto r = run_calibrate(o, tcp);
      ASSERT_TRUE(r) << r.error().message;
      EXPECT_EQ(r->stats.outcomes[0], 400u);
      EXPECT_TRUE(r->stats.errors.empty());
      EXPECT_NE(calibrate_text(o, *r).find("generator limit"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace twinloft::mailbench
