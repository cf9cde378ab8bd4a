// A dialogue with a next hop over a connection, as a client (RFC 2033).
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "commands.h"
#include "hop_reply.h"
#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/connect/stream.h"
#include "twinloft/lmtpd/route/next_hop.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// The outcome of a message.
struct Handed {
  std::vector<Reply> replies;  // one for each recipient
  bool reusable = false;       // another message may follow
  // No part of the message was sent, and the hop has sent nothing, or only 421: it may have closed an idle
  // connection before. The message may be tried on another connection.
  bool untouched = false;
  bool client_refused = false;  // the hop does not take XCLIENT; nothing of the message was sent
  std::string problem;          // for the log: an error of the hop
};

class Dialogue {
 public:
  // The references must outlive the dialogue.
  Dialogue(std::unique_ptr<Stream> stream, const NextHopSpec& spec, const std::string& hostname,
           const std::string& detail_delimiter, const Clock& clock)
      : stream_(std::move(stream)),
        spec_(spec),
        hostname_(hostname),
        detail_delimiter_(detail_delimiter),
        clock_(clock) {}

  // The end of all that follows, in addition to the limit of each step.
  void end_by(Instant latest) { latest_ = latest; }
  // The hop does not take this host's XCLIENT: the connection is used without it, and for one message only.
  void speak_for_nobody() { speaks_for_nobody_ = true; }
  bool speaks_for_nobody() const { return speaks_for_nobody_; }

  // Greeting, LHLO and TLS. Errors: Errc::conflict (the hop has refused), and those of Stream. After an
  // error, the connection cannot be used.
  Status open(const TlsClientContext* tls);
  // Sends the attributes of the envelope's client (XCLIENT). Errors: as open().
  Status speak_for(const Envelope& envelope);
  // Whether the connection has these attributes already, or the hop accepts none.
  bool speaks_for(const Envelope& envelope) const { return spoken_for_ == wanted_for(envelope); }

  // Whether the new attributes replace all attributes of the earlier client: a missing one
  // (ADDR=[UNAVAILABLE]) would keep its value.
  bool can_speak_for(const Envelope& envelope) const {
    return spoken_for_.empty() || speaks_for(envelope) ||
           wanted_for(envelope).find("[UNAVAILABLE]") == std::string::npos;
  }

  // Sends the message to these recipients of the envelope. header: the fields before the message, with LF
  // line ends.
  Handed hand_over(const Envelope& envelope, std::span<const std::size_t> recipients, const MessageBody& body,
                   const std::string& header);

  // The hop has sent no unexpected output, and has not closed the connection.
  bool is_idle() { return parser_.pending() == 0 && !stream_->has_news(); }
  void quit();
  void shut() { stream_->shut(); }

 private:
  struct Attempt;
  Instant in(std::chrono::milliseconds time) const {
    Instant end = clock_.now() + time;
    return latest_ ? std::min(end, *latest_) : end;
  }
  Result<mail::LmtpReply> read_reply(Instant deadline);
  Result<mail::LmtpReply> ask(std::string_view command, Instant deadline);
  Status greet(Instant deadline);
  Status say_lhlo(Instant deadline);
  std::string wanted_for(const Envelope& envelope) const {
    return spec_.xclient && !speaks_for_nobody_ ? xclient_command(envelope, first_offer_) : std::string();
  }
  Status ask_each(const std::vector<std::string>& commands, std::vector<mail::LmtpReply>& replies);
  Status offer_recipients(Attempt& attempt);
  Status begin_body(Attempt& attempt);
  Status send_message(const MessageBody& body, const std::string& header);
  Status take_results(Attempt& attempt);
  Status reset();

  std::unique_ptr<Stream> stream_;
  const NextHopSpec& spec_;
  const std::string& hostname_;
  const std::string& detail_delimiter_;
  const Clock& clock_;
  mail::LmtpReplyParser parser_;
  mail::LmtpOffer offer_;
  mail::LmtpOffer first_offer_;  // before XCLIENT, which the hop may no longer offer afterwards
  std::string spoken_for_;
  bool was_used_ = false, speaks_for_nobody_ = false;
  std::optional<Instant> latest_;  // nullopt: only the limits of the steps
};

}  // namespace twinloft::lmtpd
