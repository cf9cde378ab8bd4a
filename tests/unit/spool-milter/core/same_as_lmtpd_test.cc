// lmtpd's RCPT and spool-milter give the same reply, over one table of addresses.
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "people.h"
#include "twinloft/lmtpd/policy/spool_health.h"
#include "twinloft/lmtpd/session/session.h"
#include "twinloft/spool-milter/core/answer.h"

namespace twinloft::spool_milter {
namespace {

using namespace lmtpd;

constexpr std::uint64_t message_bytes_max = 100'000;
std::optional<Reply> spool_state;  // of this moment, for both

// One connection to lmtpd.
class LmtpClient {
 public:
  LmtpClient() : session_(config_) {
    config_.hostname = "mx.example.org";
    config_.message_bytes_max = message_bytes_max;
    config_.bad_commands_max = config_.refused_max = 1'000'000;
    config_.new_id = [] { return std::string("id"); };
    config_.recipients = people_rules();
    config_.recipients.spool_refusal = [](const User& user) {
      return user.next_hop.empty() ? spool_state : std::nullopt;
    };
    config_.agent_refusal = [](const Envelope&, const Recipient& recipient) {
      return refuse_dash(recipient);
    };
    session_.start({.address = "unix"});
    replies();
    say("LHLO mta.example.org");
  }

  // The last line of the replies.
  std::string say(const std::string& line) {
    const std::string bytes = line + "\r\n";
    session_.receive(as_bytes(bytes));
    return replies();
  }

 private:
  std::string replies() {
    std::string out;
    Actions actions;
    for (session_.take_actions(actions); !actions.empty(); session_.take_actions(actions)) {
      for (Action& action : actions) {
        if (auto* sent = std::get_if<SendBytes>(&action)) out += sent->bytes;
        if (auto* ask = std::get_if<Ask>(&action)) session_.answer(ask->id, answer_to(ask->question));
      }
      session_.replies_sent();
      actions.clear();
    }
    if (out.ends_with("\r\n")) out.resize(out.size() - 2);
    return out.substr(out.rfind('\n') == std::string::npos ? 0 : out.rfind('\n') + 1);
  }
  static Answer answer_to(const Question& question) {
    if (auto* request = std::get_if<LookupRequest>(&question)) return look_up(*request);
    return look(std::get<MailboxQuestion>(question));
  }

  SessionConfig config_;
  Session session_;
};

Facts facts() {
  return {
      .look_up = look_up,
      .look = look,
      .spool_refuses = [](const User& user,
                          bool) { return user.next_hop.empty() ? spool_state : std::nullopt; },
      .spool_waits = {},
      .way_refuses = [](const Sender&, const KnownRecipient& recipient) { return refuse_dash(recipient); }};
}

std::string by_milter(std::string_view address, std::string_view size) {
  const Rules rules{.scope = {.domains = {}, .mailers = {"lmtp"}, .hosts = {}},
                    .message_bytes_max = message_bytes_max,
                    .recipients = people_rules()};
  const std::string_view mail[] = {"<s@example.net>", size};
  auto reply = answer(read_mail(mail, ""), {address, "lmtp", "unix:private/twinloft"}, rules, facts());
  return reply ? fmt::format("{} {} {}", reply->code, reply->enhanced, reply->text) : "250 2.1.5 Ok";
}

// At MAIL or at RCPT: an MTA asks for the message with both.
std::string by_lmtpd(LmtpClient& client, std::string_view address, std::string_view size) {
  std::string reply = client.say(fmt::format("MAIL FROM:<s@example.net> {}", size));
  if (reply.starts_with("250")) reply = client.say(fmt::format("RCPT TO:{}", address));
  client.say("RSET");
  return reply;
}

const std::vector<std::string> addresses = {
    "<ann@example.org>",
    "<ann+lists@example.org>",
    "<ANN@example.org>",
    "<ann@EXAMPLE.org>",
    "<ann@example.org.>",
    "<\"ann\"@example.org>",
    "<\"a nn\"@example.org>",
    "<@relay.example,@b.example:ann@example.org>",
    "<bob@example.org>",
    "<bob+x@example.org>",
    "<carl@example.org>",
    "<full@example.org>",
    "<huge@example.org>",
    "<far@example.org>",
    "<old@example.org>",
    "<oldfull@example.org>",
    "<agent@example.org>",
    "<agent+j\xc3\xbcrgen@example.org>",
    "<ann+j\xc3\xbcrgen@example.org>",
    "<ann@b\xc3\xbc"
    "cher.example>",
    "<agent@b\xc3\xbc"
    "cher.example>",
    "<ann@xn--bcher-kva.example>",
    "<wrong@example.org>",
    "<away@example.org>",
    "<-x@example.org>",
    "<nobody@example.org>",
    "<100%s%n@example.org>",
    "<ann@elsewhere.example>",
    "<ann@[192.0.2.1]>",
    "<>",
    "<@example.org>",
    "<ann@>",
    "<ann@exa mple.org>",
    "<ann@example..org>",
    "<ann@example.org",
    "<a\xff"
    "nn@example.org>",
    "<a\x01nn@example.org>",
    "<\"ann@example.org>",
    "<ann example.org>",
    "<" + std::string(400, 'a') + "@example.org>",
    "<" + std::string(600, 'a') + "@example.org>",
    "<ann@" + std::string(300, 'b') + ".example>",
};

TEST(SameAsLmtpd, EachAddress) {
  LmtpClient lmtpd;
  std::size_t refused = 0;
  for (const std::string& address : addresses) {
    const std::string reply = by_lmtpd(lmtpd, address, "SIZE=300");
    EXPECT_EQ(by_milter(address, "SIZE=300"), reply) << address;
    refused += !reply.starts_with("250");
  }
  EXPECT_GT(refused, 20u);
  EXPECT_LT(refused, addresses.size() - 10);
}

TEST(SameAsLmtpd, EachStateOfTheSpool) {
  LmtpClient lmtpd;
  const SpoolRules rules;
  const Instant now{3'600'000'000'000};
  using State = SpoolHealth::State;
  const SpoolHealth states[] = {{State::serving, {}},     {State::suspended, now}, {State::suspended, {}},
                                {State::not_mounted, {}}, {State::failed, {}},     {State::read_only, {}},
                                {State::full, {}}};
  for (const SpoolHealth& health : states) {
    spool_state = refusal_of_spool(health, rules, now, false);
    for (const std::string& address : addresses)
      EXPECT_EQ(by_milter(address, "SIZE=0"), by_lmtpd(lmtpd, address, "SIZE=0"))
          << address << ", state " << static_cast<int>(health.state);
  }
  spool_state.reset();
}

TEST(SameAsLmtpd, AMessageThatIsTooLarge) {
  LmtpClient lmtpd;
  for (std::string_view size : {"SIZE=100000", "SIZE=100001", "SIZE=99999999999999999"})
    for (std::string_view address : {"<ann@example.org>", "<nobody@example.org>", "<far@example.org>"})
      EXPECT_EQ(by_milter(address, size), by_lmtpd(lmtpd, address, size)) << address << " " << size;
}

}  // namespace
}  // namespace twinloft::spool_milter
