// The configuration of a next hop: the LMTP server for the mail of some users.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/connect/target.h"

namespace twinloft::lmtpd {

enum class HopTls {
  none,
  may,      // TLS if it is offered, without verification of the certificate
  encrypt,  // always TLS, without verification of the certificate
  verify,   // always TLS, with a valid certificate that has the hop's name
};
Result<HopTls> parse_hop_tls(std::string_view text);

// The address in RCPT.
enum class HopRecipient {
  address,  // the address as received
  user,     // the user's name, with the detail
  // As `user`, with the address as received in ORCPT. For Dovecot's LMTP, which takes ORCPT without offering
  // DSN.
  user_and_original,
};
Result<HopRecipient> parse_hop_recipient(std::string_view text);

// The name of Dovecot's LMTP of this machine, for users with a Sieve script. No row can have this name.
inline constexpr std::string_view local_hop_name = "delivery.sieve";

struct NextHopSpec {
  std::string name;      // as in the rows of users
  ConnectTarget target;  // its timeout is connect_timeout, which includes the greeting
  HopTls tls = HopTls::none;
  HopRecipient recipient = HopRecipient::address;
  // Between the user's name and the detail. nullopt: that of lmtpd; empty: the hop gets no detail.
  std::optional<std::string> detail_delimiter = {};
  bool xclient = false;   // send the client's address and name by XCLIENT (the hop must trust this host)
  bool xforward = false;  // send the origin of the message by XFORWARD, for the hop's log
  bool smtputf8 = true;   // the hop accepts recipients in UTF-8. Otherwise they are refused at RCPT
  std::uint32_t connections_max = 32;               // at a time; the other deliveries wait
  std::uint32_t recipients_max = 100;               // of a transaction; more recipients need several
  std::chrono::milliseconds reply_timeout{60'000};  // for the reply to a command
  // For the whole delivery of a message, from the wait for a connection to the replies to it. Making a
  // connection may take longer, by its own limit.
  std::chrono::milliseconds data_timeout{300'000};
  std::chrono::milliseconds idle_timeout{30'000};  // then an idle connection is closed
  // Its mail lies on the spool of this machine, and must be durable there before a 2xx. The hop knows each
  // user that lmtpd knows: if it denies one, the reply is temporary.
  bool local() const { return name == local_hop_name; }
};

// For the log: "next hop NAME", or Dovecot's LMTP.
std::string text_of_hop(std::string_view name);

}  // namespace twinloft::lmtpd
