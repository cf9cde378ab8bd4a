// Another LMTP server that some users' mail is for: what the configuration says of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/connect/target.h"

namespace twinloft::lmtpd {

enum class HopTls {
  none,
  may,      // where it is offered; whom it is with is not verified
  encrypt,  // always; likewise
  verify,   // always, and its certificate has to be good, and to have its name
};
Result<HopTls> parse_hop_tls(std::string_view text);

// What RCPT says to it.
enum class HopRecipient {
  address,  // the address as it came
  user,     // the user's name, with the detail
};
Result<HopRecipient> parse_hop_recipient(std::string_view text);

struct NextHopSpec {
  std::string name;      // as users' rows have it
  ConnectTarget target;  // its timeout is connect_timeout, and holds until the hop has greeted too
  HopTls tls = HopTls::none;
  HopRecipient recipient = HopRecipient::address;
  bool xclient = false;   // tell it the client's address and name as its own client's (it has to trust this
                          // host)
  bool xforward = false;  // tell it whom the MTA had the message from, for its log
  bool smtputf8 = true;   // it takes recipients beyond ASCII; else they are refused at RCPT
  std::uint32_t connections_max = 32;               // at once; the other deliveries wait
  std::uint32_t recipients_max = 100;               // of one transaction; more go in several
  std::chrono::milliseconds reply_timeout{60'000};  // for the reply to a command
  std::chrono::milliseconds data_timeout{300'000};  // for all replies to recipients, for a message to be
                                                    // taken, and then for the replies to it
  std::chrono::milliseconds idle_timeout{30'000};   // then a connection without use is closed
};

}  // namespace twinloft::lmtpd
