// What the replies of a next hop are for our client.
#pragma once

#include "twinloft/lmtpd/proto/reply.h"
#include "twinloft/mail/lmtp_reply.h"

namespace twinloft::lmtpd {

// What the hop has answered.
enum class Stage {
  sender,     // MAIL
  recipient,  // RCPT
  body,       // DATA
  message,    // the message's end
};
// 2xx, 4xx and 5xx are passed on, with the hop's enhanced code and text. But a 5xx which says that we have
// spoken badly to it, or may not speak to it at all, is the fault of nobody's message, and becomes 451; and
// 421 does, which to our client would be the end of its connection.
Reply reply_of_hop(const mail::LmtpReply& reply, Stage stage);

}  // namespace twinloft::lmtpd
