#include "twinloft/lmtpd/sieve/lmtp_name.h"

#include "twinloft/mail/address.h"

namespace twinloft::lmtpd {

Status check_lmtp_name(std::string_view user, std::string_view delimiters) {
  auto other = mail::misread_name(user, delimiters);
  if (!other) return {};
  return fail(Errc::invalid,
              "Dovecot's LMTP would deliver to the user \"{}\" in place of \"{}\", because its "
              "recipient_delimiter is \"{}\"; use dovecot-lda ([delivery.sieve] agent), or another "
              "recipient_delimiter",
              *other, user, delimiters);
}

std::string lmtp_delimiter(std::string_view ours, std::string_view delimiters) {
  bool split_there = !ours.empty() && delimiters.find(ours.front()) != std::string_view::npos;
  return std::string((split_there ? ours : delimiters).substr(0, 1));
}

}  // namespace twinloft::lmtpd
