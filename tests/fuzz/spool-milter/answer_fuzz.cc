// What an MTA says at MAIL and RCPT, byte by byte as it comes: spool-milter answers, and libmilter can send
// the answer. The input has a line for each word: the sender, its parameters, an empty line, the recipient,
// its mailer and its host.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/spool-milter/core/answer.h"

namespace {

using namespace twinloft;
using namespace twinloft::spool_milter;

std::string_view take_line(std::string_view& rest) {
  std::size_t end = rest.find('\n');
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

// Users whose names begin with "a" exist, with a mailbox that is full for large messages.
lmtpd::LookupResult look_up(const lmtpd::LookupRequest& request) {
  if (!request.local_part.starts_with('a')) return std::nullopt;
  lmtpd::User user;
  user.name = request.local_part;
  user.quota.bytes = 1000;
  user.is_old = request.detail == "old";
  return lmtpd::Resolved{std::move(user)};
}

lmtpd::MailboxState look(const lmtpd::MailboxQuestion& question) {
  return {.room = question.size > 1000 ? lmtpd::Room::full : lmtpd::Room::enough};
}

// As smfi_setreply(3) demands: the code fits the enhanced code, and the text is a printable line.
void check_sendable(const lmtpd::Reply& reply) {
  const MilterReply out = milter_reply(reply);
  TL_CHECK(out.code.size() == 3 && (out.code[0] == '4' || out.code[0] == '5'));
  TL_CHECK(out.enhanced.empty() || out.enhanced[0] == out.code[0]);
  for (char c : out.text) TL_CHECK(c >= ' ' && c <= '~');
  for (std::size_t i = 0; i < out.text.size(); ++i)
    if (out.text[i] == '%') TL_CHECK(++i < out.text.size() && out.text[i] == '%');
  TL_CHECK(out.text.size() < 980);  // MAXREPLYLEN of libmilter
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> mail;
  for (std::string_view word = take_line(rest); !word.empty(); word = take_line(rest)) mail.push_back(word);
  const Sender sender = read_mail(mail, "");
  AskedRecipient recipient;
  recipient.word = take_line(rest);
  recipient.mailer = take_line(rest);
  recipient.host = take_line(rest);
  Rules rules{.scope = {.domains = {"example.org"}, .mailers = {"lmtp"}, .hosts = {}}, .recipients = {}};
  rules.recipients.has_limits = [](const lmtpd::User&) { return true; };
  // Nobody is looked up for a recipient that is not lmtpd's.
  const Facts facts{.look_up =
                        [&](const lmtpd::LookupRequest& request) {
                          TL_CHECK(recipient.mailer == "lmtp" || request.domain == "example.org");
                          return look_up(request);
                        },
                    .look = look,
                    .spool_refuses = {},
                    .spool_waits = {},
                    .way_refuses = {}};
  auto reply = answer(sender, recipient, rules, facts);
  if (reply) check_sendable(*reply);
  // Leaving unknown users to the MTA refuses nobody else.
  rules.refuses_unknown = false;
  auto lenient = answer(sender, recipient, rules, facts);
  TL_CHECK(!lenient || (reply && *lenient == *reply));
  return 0;
}
