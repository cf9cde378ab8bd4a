#include "commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "twinloft/base/utf8.h"
#include "twinloft/lmtpd/proto/path.h"
#include "twinloft/lmtpd/proto/xtext.h"
#include "twinloft/mail/address.h"

namespace twinloft::lmtpd {

namespace {

using Attributes = std::vector<std::pair<const char*, std::string>>;

// A command line has at most 512 bytes (RFC 5321 section 4.5.3.1.4). Postfix accepts longer lines, with
// attributes of at most this length.
constexpr std::size_t attribute_bytes_max = 255;

std::string attribute_command(const char* verb, const Attributes& attributes,
                              const std::set<std::string, std::less<>>& offered) {
  std::string out;
  for (const auto& [name, value] : attributes)
    if (offered.contains(name))
      out += fmt::format(" {}={}", name,
                         value.empty()
                             ? "[UNAVAILABLE]"
                             : encode_xtext(std::string_view(value).substr(0, attribute_bytes_max)));
  return out.empty() ? out : verb + out + "\r\n";
}

std::string address_attribute(const std::string& address) {
  if (address == "unix") return {};
  return address.find(':') == std::string::npos ? address : "IPV6:" + address;
}

// The user's name as an address, with the detail before the "@".
std::string user_address(const Recipient& recipient, std::string_view delimiter) {
  std::string_view name = recipient.user.name;
  std::size_t at = std::min(name.rfind('@'), name.size());
  std::string local_part(name.substr(0, at));
  if (!recipient.detail.empty() && !delimiter.empty()) (local_part += delimiter.front()) += recipient.detail;
  return mail::quote_local_part(local_part).append(name.substr(at));
}

// Whether every server can parse the address: a dot-atom or a quoted string, and a host name. RFC 3461 allows
// any text in ORCPT, but Dovecot refuses the recipient then.
bool is_plain_address(std::string_view text) {
  const std::size_t at = text.rfind('@');
  if (at == std::string_view::npos || !is_ascii(text)) return false;
  std::string_view local_part = text.substr(0, at), domain = text.substr(at + 1);
  auto in_host = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.'; };
  bool host = !domain.empty() && std::ranges::all_of(domain, in_host) && domain.find("..") == domain.npos &&
              domain.front() != '.' && domain.front() != '-' && domain.back() != '.' && domain.back() != '-';
  bool quoted = local_part.size() >= 2 && local_part.starts_with('"') && local_part.ends_with('"');
  return host && (quoted || mail::quote_local_part(local_part) == local_part);
}

}  // namespace

bool says_smtputf8(const Envelope& envelope, std::span<const std::size_t> recipients, HopRecipient which,
                   const mail::LmtpOffer& offer) {
  if (!offer.smtputf8 || envelope.smtputf8) return offer.smtputf8;
  bool beyond_ascii = !is_ascii(envelope.from), all_utf8 = is_utf8(envelope.from);
  for (std::size_t i : recipients) {
    const Recipient& recipient = envelope.recipients[i];
    const std::string& address = which == HopRecipient::user_and_original ? recipient.user.name
                                                                          : recipient.text;
    beyond_ascii = beyond_ascii || !is_ascii(address);
    all_utf8 = all_utf8 && is_utf8(address);
  }
  return beyond_ascii && all_utf8;
}

std::string mail_command(const Envelope& envelope, std::uint64_t size, const mail::LmtpOffer& offer,
                         bool utf8) {
  std::string out = fmt::format("MAIL FROM:<{}>", envelope.from);
  if (offer.size) out += fmt::format(" SIZE={}", size);
  if (envelope.body_8bitmime && offer.eight_bit_mime) out += " BODY=8BITMIME";
  if (utf8) out += " SMTPUTF8";
  if (offer.dsn && !envelope.ret.empty()) out += " RET=" + envelope.ret;
  if (offer.dsn && !envelope.envelope_id.empty()) out += " ENVID=" + encode_xtext(envelope.envelope_id);
  return out + "\r\n";
}

bool needs_smtputf8(const Recipient& recipient, HopRecipient which, std::string_view detail_delimiter) {
  if (which == HopRecipient::user_and_original) return !is_ascii(user_address(recipient, detail_delimiter));
  return !is_ascii(with_ascii_domain(recipient.text, recipient.domain));
}

std::string rcpt_command(const Recipient& recipient, HopRecipient which, std::string_view detail_delimiter,
                         const mail::LmtpOffer& offer, bool utf8) {
  std::string address = which == HopRecipient::address ? recipient.text
                                                       : user_address(recipient, detail_delimiter);
  if (!utf8 && !is_ascii(address)) address = with_ascii_domain(recipient.text, recipient.domain);
  std::string out = fmt::format("RCPT TO:<{}>", address);
  if (which == HopRecipient::user_and_original)
    return out + (is_plain_address(recipient.text) ? " ORCPT=rfc822;" + encode_xtext(recipient.text) : "") +
           "\r\n";
  if (offer.dsn && !recipient.notify.empty()) out += " NOTIFY=" + recipient.notify;
  bool plain_original = is_ascii(recipient.original_to) && !recipient.original_type.empty();
  if (offer.dsn && !recipient.original_to.empty() && plain_original)
    out += fmt::format(" ORCPT={};{}", recipient.original_type, encode_xtext(recipient.original_to));
  return out + "\r\n";
}

std::string xclient_command(const Envelope& envelope, const mail::LmtpOffer& offer) {
  return attribute_command("XCLIENT",
                           {{"ADDR", address_attribute(envelope.client)},
                            {"NAME", envelope.client_name},
                            {"PROTO", "LMTP"},
                            {"HELO", envelope.lhlo}},
                           offer.xclient);
}

std::string xforward_command(const Envelope& envelope, const mail::LmtpOffer& offer) {
  const Origin& origin = envelope.origin;
  bool known = !(origin.name.empty() && origin.address.empty() && origin.helo.empty() &&
                 origin.ident.empty());
  if (!known)
    return attribute_command("XFORWARD",
                             {{"ADDR", address_attribute(envelope.client)},
                              {"NAME", envelope.client_name},
                              {"HELO", envelope.lhlo},
                              {"IDENT", envelope.id}},
                             offer.xforward);
  return attribute_command("XFORWARD",
                           {{"ADDR", address_attribute(origin.address)},
                            {"NAME", origin.name},
                            {"HELO", origin.helo},
                            {"IDENT", origin.ident}},
                           offer.xforward);
}

}  // namespace twinloft::lmtpd
