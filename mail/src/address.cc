#include "twinloft/mail/address.h"

#include <algorithm>

namespace twinloft::mail {

std::string quote_local_part(std::string_view text) {
  constexpr std::string_view
      atext = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-/=?^_`{|}~.";
  bool plain = !text.empty() && text.front() != '.' && text.back() != '.' &&
               text.find("..") == std::string_view::npos &&
               std::all_of(text.begin(), text.end(), [&](char c) {
                 return static_cast<unsigned char>(c) >= 0x80 || atext.find(c) != std::string_view::npos;
               });
  if (plain) return std::string(text);
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::optional<std::string_view> misread_name(std::string_view user, std::string_view delimiters) {
  const std::string_view local_part = user.substr(0, std::min(user.rfind('@'), user.size()));
  const std::size_t found = local_part.find_first_of(delimiters);
  if (found == std::string_view::npos) return std::nullopt;
  return local_part.substr(0, found);
}

}  // namespace twinloft::mail
