// What is said to a next hop over one connection, as a client of RFC 2033.
#pragma once

#include <memory>
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

// What became of one message.
struct Handed {
  std::vector<Reply> replies;  // one for each recipient
  bool reusable = false;       // the connection is as it was before
  // Nothing of the message was sent, and the hop has not said a word: on a connection that had been idle it
  // may have left before. It may be tried again on another.
  bool untouched = false;
  std::string problem;  // for the log, where the hop did not do as it should
};

class Dialogue {
 public:
  // The references outlive it.
  Dialogue(std::unique_ptr<Stream> stream, const NextHopSpec& spec, const std::string& hostname,
           const std::string& detail_delimiter, const Clock& clock)
      : stream_(std::move(stream)),
        spec_(spec),
        hostname_(hostname),
        detail_delimiter_(detail_delimiter),
        clock_(clock) {}

  // Greeting, LHLO, TLS. Errors: Errc::conflict, the hop is there and does not want us now, or not like this;
  // others as Stream's. After any the connection is of no use.
  Status open(const TlsClientContext* tls);
  // Speaks for the envelope's client from now on (XCLIENT). Errors likewise.
  Status speak_for(const Envelope& envelope);
  // Whether it does already, or never will.
  bool speaks_for(const Envelope& envelope) const { return spoken_for_ == wanted_for(envelope); }

  // Whether it can, so that nothing of the client before is left: what a client has not got
  // (ADDR=[UNAVAILABLE]) stays as it was.
  bool can_speak_for(const Envelope& envelope) const {
    return spoken_for_.empty() || speaks_for(envelope) ||
           wanted_for(envelope).find("[UNAVAILABLE]") == std::string::npos;
  }

  // To these of the envelope's recipients. `header`: what comes before the message, with LF line ends.
  Handed hand_over(const Envelope& envelope, std::span<const std::size_t> recipients, const MessageBody& body,
                   const std::string& header);

  // Nothing was said that was not asked for, the end included.
  bool is_idle() { return parser_.pending() == 0 && !stream_->has_news(); }
  void quit();
  void shut() { stream_->shut(); }

 private:
  struct Attempt;
  Instant in(std::chrono::milliseconds time) const { return clock_.now() + time; }
  Result<mail::LmtpReply> read_reply(Instant deadline);
  Result<mail::LmtpReply> ask(std::string_view command, Instant deadline);
  Status greet(Instant deadline);
  Status say_lhlo(Instant deadline);
  std::string wanted_for(const Envelope& envelope) const {
    return spec_.xclient ? xclient_command(envelope, first_offer_) : std::string();
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
  mail::LmtpOffer first_offer_;  // before anything was said of a client: afterwards it may not offer XCLIENT
                                 // any more
  std::string spoken_for_;
  bool was_used_ = false;
};

}  // namespace twinloft::lmtpd
