// The client's side of an LMTP (RFC 2033) or SMTP (RFC 5321) connection, without I/O.
//
//   greeting -> hello [-> starttls -> handshake -> hello] -> ready
//   ready -> envelope -> content -> replies -> ready ... -> quitting -> ended
//
// The owner passes received bytes to feed(), and sends output(). If handshake_wanted() is true, the owner
// makes the TLS handshake and calls secured(). When content_wanted() becomes true, the owner sends the rest
// of output() and then the content. It calls content_sent() once the kernel has the last byte. After an error
// of feed(), or at the end of the connection, the owner calls abandon() and destroys the session. If a
// transaction was finished by the same bytes, finished() is true first.
//
// The content is the message with its final dot, or a sequence of BDAT commands with their chunks (RFC 3030).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/mailbench/phases.h"
#include "twinloft/mailbench/reply.h"

namespace twinloft::mailbench {

enum class Protocol : std::uint8_t {
  lmtp,  // a reply for each accepted recipient
  smtp,  // one reply for all of them
};

// The outcome of an attempt for one recipient.
enum class Outcome : std::uint8_t {
  acknowledged,  // 2xx after the message
  deferred,      // 4xx, at any stage
  refused,       // 5xx, at any stage
  unknown,       // the connection ended between the message and the reply: the message may be stored
  unsent,        // the connection ended before the end of the message: the message cannot be stored
};

struct RecipientResult {
  Outcome outcome = Outcome::unsent;
  int code = 0;  // of the reply; 0: no reply
};

struct Envelope {
  std::string_view from{};
  std::vector<std::string_view> to{};  // at least one
  std::uint64_t size = 0;              // bytes, for SIZE= (RFC 1870) if the server offers it
  std::uint64_t chunks = 1;            // BDAT commands of the content
  bool eight_bit = false;              // BODY=8BITMIME (RFC 6152) if the server offers it
};

class Session {
 public:
  struct Settings {
    Protocol protocol = Protocol::lmtp;
    std::string hello = "localhost";
    bool pipelining = true;  // used if the server offers it (RFC 2920)
    bool starttls = false;   // demanded
    bool chunking = false;   // BDAT in place of DATA; demanded
  };
  // connecting: when the owner called connect(2).
  Session(Settings settings, Instant connecting) : settings_(std::move(settings)), since_(connecting) {}

  // Errors: Errc::invalid if the server lacks what the settings demand. Other errors end the connection only.
  Status feed(std::string_view bytes, Instant now);
  std::string& output() { return output_; }

  bool handshake_wanted() const { return state_ == State::handshake; }
  void secured(Instant now);
  void handshake_failed(Instant now);  // before abandon()
  bool greeted() const { return state_ != State::greeting; }

  bool ready() const { return state_ == State::ready; }
  void begin(const Envelope& envelope, Instant now);  // only if ready()
  bool content_wanted() const { return state_ == State::content; }
  void content_sent(Instant now);
  bool finished() const { return finished_; }       // the transaction has all its replies
  std::span<const RecipientResult> take_results();  // of the finished transaction, in the order of
                                                    // Envelope::to
  std::span<const RecipientResult> abandon();  // the results of an open transaction at the connection's end
  void quit();                                 // only if ready()
  bool ended() const { return state_ == State::ended; }
  bool pipelining() const { return pipelining_; }
  bool eight_bit() const { return eight_bit_; }  // the server offers 8BITMIME

  // The phases that ended since the last call. Valid until the next call of another function.
  std::span<const PhaseTime> take_times();

 private:
  enum class State {
    greeting,
    hello,
    starttls,
    handshake,
    ready,
    envelope,
    content,
    replies,
    quitting,
    ended
  };
  enum class Step { mail, rcpt, data, rset };
  struct Sent {
    Step step;
    Instant at;
  };

  Status on_reply(const Reply& reply);
  Status on_hello(const Reply& reply);
  Status take_offer(const Reply& reply);
  Status on_starttls(const Reply& reply);
  Status on_envelope(const Reply& reply);
  Status on_mail(int code);
  Status on_rcpt(int code);
  void after_recipients();
  Status on_data(int code);
  Status on_chunk(int code);
  Status on_final(int code);
  void say_hello(std::string_view verb);
  void send_mail();
  void send_rcpt(std::size_t index);
  void send(Step step, std::string_view command);
  void refuse_open(int code);  // sets this code for every recipient without a result
  void end_transaction();      // with an RSET, if the server still has a transaction
  void finish();
  void record(Phase phase, Instant began, bool good) { times_.push_back({phase, now_ - began, good}); }

  Settings settings_;
  ReplyParser parser_;
  State state_ = State::greeting;
  Instant now_, since_;  // since_: the beginning of the present phase, outside of an envelope
  bool secured_ = false, tried_helo_ = false;
  bool pipelining_ = false, size_ = false, eight_bit_ = false, offers_starttls_ = false,
       offers_chunking_ = false;
  std::string output_;
  std::vector<PhaseTime> times_, taken_times_;

  Envelope envelope_;
  std::vector<RecipientResult> results_;
  std::vector<std::size_t> accepted_;  // recipients accepted at RCPT, in the order of their replies after the
                                       // message
  std::size_t next_final_ = 0;         // index into accepted_
  std::size_t next_rcpt_ = 0;          // the recipient of the next reply to RCPT
  std::uint64_t chunks_open_ = 0;      // chunks before the last whose reply is not there
  std::deque<Sent> expected_;
  int mail_refusal_ = 0;
  bool mail_accepted_ = false;
  bool finished_ = false;
};

std::string_view to_string(Outcome outcome);

}  // namespace twinloft::mailbench
