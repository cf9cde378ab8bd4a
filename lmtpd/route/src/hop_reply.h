// Converts the replies of a next hop to replies for the client.
#pragma once

#include "twinloft/lmtpd/proto/reply.h"
#include "twinloft/mail/lmtp_reply.h"

namespace twinloft::lmtpd {

// The command of the hop's reply.
enum class Stage {
  sender,     // MAIL
  recipient,  // RCPT
  body,       // DATA
  message,    // the message's end
};
// 2xx, 4xx and 5xx are passed on, with the hop's enhanced code and text. A 5xx about lmtpd's commands or its
// permission becomes 451, since it does not concern the message. 421 becomes 451 too, since it would end the
// client's connection.
Reply reply_of_hop(const mail::LmtpReply& reply, Stage stage);

}  // namespace twinloft::lmtpd
