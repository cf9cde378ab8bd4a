#include "twinloft/spool-milter/core/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <variant>

#include "twinloft/lmtpd/proto/command.h"

namespace twinloft::spool_milter {

using namespace lmtpd;

namespace {

bool equals_folded(std::string_view a, std::string_view b) {
  auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t";
  std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// A client may leave the brackets out, and the MTA hands on what the client has sent.
std::string in_brackets(std::string_view word) {
  word = trimmed(word);
  return word.starts_with('<') ? std::string(word) : fmt::format("<{}>", word);
}

std::uint64_t size_in(std::string_view digits) {
  std::uint64_t size = 0;
  auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (code == std::errc::result_out_of_range) return UINT64_MAX;
  return code == std::errc() && end == digits.data() + digits.size() ? size : 0;
}

// As lmtpd parses the address. Errors: lmtpd's reply.
std::expected<Path, Reply> parse(std::string_view word) {
  const std::string line = "RCPT TO:" + in_brackets(word);
  if (line.size() + 2 > command_line_bytes_max)
    return std::unexpected(make_reply(501, "5.1.3", "The address is too long"));
  auto command = parse_command(line);
  if (!command) return std::unexpected(std::move(command).error());
  if (Rcpt* rcpt = std::get_if<Rcpt>(&*command)) return std::move(rcpt->to);
  return std::unexpected(make_reply(501, "5.1.3", "The address is malformed"));
}

bool lists(const std::vector<std::string>& list, std::string_view value) {
  return std::ranges::find(list, value) != list.end();
}

// The database is away, or too slow for the MTA.
LookupResult late_lookup() {
  return std::unexpected(Error{Errc::timeout, "no answer in time"});
}

// One recipient whose address is known.
class Judgement {
 public:
  Judgement(const Sender& sender, const Rules& rules, const Facts& facts)
      : sender_(sender),
        facts_(facts),
        unknown_(rules.refuses_unknown),
        bytes_max_(rules.message_bytes_max),
        rules_(rules.recipients) {
    if (facts.spool_refuses)
      rules_.spool_refusal = [this](const User& user) {
        return facts_.spool_refuses(user, sender_.authenticated);
      };
    if (facts.way_refuses) way_refuses_ = [this] { return facts_.way_refuses(sender_, recipient_); };
  }
  Judgement(const Judgement&) = delete;
  Judgement& operator=(const Judgement&) = delete;

  std::optional<Reply> of(const Path& to) {
    // lmtpd says so at MAIL.
    const bool too_large = sender_.size > bytes_max_;
    const Reply refusal = make_reply(552, "5.3.4", fmt::format("Message larger than {} bytes", bytes_max_));
    if (too_large && unknown_) return refusal;
    auto found = facts_.look_up(lookup_of(to, rules_));
    if (found && *found && !**found && !unknown_) return std::nullopt;
    if (too_large && found && *found) return refusal;
    name_recipient(to, rules_, recipient_);
    JudgedUser judged = judge_user(recipient_, found ? *std::move(found) : late_lookup(), sender_.size,
                                   rules_, way_refuses_);
    if (auto* question = std::get_if<MailboxQuestion>(&judged)) return of_mailbox(*question);
    if (Refuse* refuse = std::get_if<Refuse>(&judged)) return std::move(refuse->reply);
    return std::nullopt;
  }

 private:
  // A mailbox on a spool that waits cannot be read. The MTA queues the message, and lmtpd waits with it.
  std::optional<Reply> of_mailbox(const MailboxQuestion& question) {
    MailboxState state;
    if (!facts_.spool_waits || !facts_.spool_waits())
      if (auto seen = facts_.look(question)) state = *std::move(seen);
    Verdict verdict = judge_mailbox(recipient_, state, rules_, way_refuses_);
    if (Refuse* refuse = std::get_if<Refuse>(&verdict)) return std::move(refuse->reply);
    return std::nullopt;
  }

  const Sender& sender_;
  const Facts& facts_;
  const bool unknown_;
  const std::uint64_t bytes_max_;
  RecipientRules rules_;
  WayRefuses way_refuses_;
  KnownRecipient recipient_;
};

}  // namespace

Sender read_mail(std::span<const std::string_view> words, std::string_view auth_authen) {
  constexpr std::string_view size = "SIZE=";
  Sender out;
  out.authenticated = !auth_authen.empty();
  if (words.empty()) return out;
  const std::string path = in_brackets(words.front());
  std::string_view rest = path;
  if (auto taken = take_path(rest, PathOf::sender)) out.address = std::move(taken->text);
  for (std::string_view word : words.subspan(1)) {
    if (equals_folded(word.substr(0, size.size()), size)) out.size = size_in(word.substr(size.size()));
    if (equals_folded(word, "SMTPUTF8")) out.smtputf8 = true;
  }
  return out;
}

bool Scope::has_domain(std::string_view domain) const {
  return lists(domains, domain);
}

bool Scope::has_way(const AskedRecipient& recipient) const {
  if (mailers.empty() && hosts.empty()) return false;
  return (mailers.empty() || lists(mailers, recipient.mailer)) &&
         (hosts.empty() || lists(hosts, recipient.host));
}

std::optional<Reply> answer(const Sender& sender, const AskedRecipient& recipient, const Rules& rules,
                            const Facts& facts) {
  const bool way = rules.scope.has_way(recipient);
  if (!way && rules.scope.domains.empty()) return std::nullopt;
  auto to = parse(recipient.word);
  if (!to) return way && rules.refuses_unknown ? std::optional(std::move(to).error()) : std::nullopt;
  // The MTA completes an address without a domain after this question.
  if (to->domain.empty()) return std::nullopt;
  if (!way && !rules.scope.has_domain(to->domain)) return std::nullopt;
  return Judgement(sender, rules, facts).of(*to);
}

MilterReply milter_reply(const Reply& reply) {
  MilterReply out{fmt::format("{}", reply.code), reply.enhanced, {}};
  for (char c : reply.text) out.text.append(c == '%' ? 2 : 1, c);
  return out;
}

}  // namespace twinloft::spool_milter
