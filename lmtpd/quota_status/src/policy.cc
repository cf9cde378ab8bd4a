#include "twinloft/lmtpd/quota_status/policy.h"

#include <algorithm>
#include <cctype>

#include "twinloft/lmtpd/proto/path.h"
#include "twinloft/mail/address.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::string_view passing[] = {"dunno", "ok", "permit"};
constexpr std::size_t shown_max = 200;

std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

bool is_word(std::string_view word, std::string_view lower) {
  return std::equal(word.begin(), word.end(), lower.begin(), lower.end(),
                    [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; });
}

bool refuses(std::string_view word) {
  bool code = word.size() == 3 && (word[0] == '4' || word[0] == '5') &&
              std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
  return code || is_word(word, "reject") || is_word(word, "defer") || is_word(word, "defer_if_permit");
}

// RFC 3463.
bool is_enhanced(std::string_view word) {
  return word.size() >= 5 && (word[0] == '4' || word[0] == '5') && word[1] == '.';
}

}  // namespace

Result<std::string> policy_recipient(std::string_view user, std::string_view delimiters) {
  std::size_t at = std::min(user.rfind('@'), user.size());
  bool is_line = std::none_of(user.begin(), user.end(),
                              [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; });
  if (!is_line || at == 0) return fail(Errc::invalid, "the user's name cannot be an address");
  if (auto other = mail::misread_name(user, delimiters))
    return fail(Errc::invalid,
                "Dovecot would answer for the user \"{}\" in place of \"{}\", which has a character of its "
                "recipient_delimiter (quota.delimiters)",
                *other, user);
  return mail::quote_local_part(user.substr(0, at)).append(user.substr(at));
}

std::string policy_request(std::string_view recipient, std::uint64_t bytes) {
  std::string out = "request=smtpd_access_policy\nprotocol_state=RCPT\nprotocol_name=LMTP\nrecipient=";
  return out.append(recipient).append("\nsize=").append(std::to_string(bytes)).append("\n\n");
}

std::string_view policy_action(std::string_view answer) {
  constexpr std::string_view name = "action=";
  while (!answer.empty()) {
    std::size_t end = std::min(answer.find('\n'), answer.size());
    if (answer.starts_with(name)) return answer.substr(name.size(), end - name.size());
    answer.remove_prefix(std::min(end + 1, answer.size()));
  }
  return {};
}

Result<Room> room_of_action(std::string_view action) {
  std::string_view rest = action;
  std::string_view verb = take_word(rest), status = take_word(rest);
  if (std::any_of(std::begin(passing), std::end(passing),
                  [&](std::string_view word) { return is_word(verb, word); }))
    return Room::enough;
  if (refuses(verb)) {
    bool enhanced = is_enhanced(status);
    if (enhanced && status.substr(1) == ".2.2") return Room::full;
    if (status == "5.2.3") return Room::never;
    if (!enhanced && (verb == "552" || verb == "452")) return Room::full;
  }
  return fail(Errc::conflict, "it answers \"{}\", which is not about a quota", action.substr(0, shown_max));
}

}  // namespace twinloft::lmtpd
