// The client's side of an LMTP connection (RFC 2033), without I/O.
//
//   greeting -> lhlo -> ready -> envelope -> content -> replies -> ready ... -> quitting -> ended
//
// The owner passes received bytes to feed(), and sends output(). When content_wanted() becomes true, the
// owner sends the rest of output() and then the message with its final dot. It calls content_sent() once the
// kernel has the last byte. After an error of feed(), or at the end of the connection, the owner calls
// abandon() and destroys the session. If a transaction was finished by the same bytes, finished() is true
// first.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/mailbench/reply.h"

namespace twinloft::mailbench {

// The outcome of an attempt for one recipient.
enum class Outcome : std::uint8_t {
  acknowledged,  // 2xx after the dot
  deferred,      // 4xx, at any stage
  refused,       // 5xx, at any stage
  unknown,       // the connection ended between the dot and the reply: the message may be stored
  unsent,        // the connection ended before the dot: the message cannot be stored
};

struct RecipientResult {
  Outcome outcome = Outcome::unsent;
  int code = 0;  // of the reply; 0: no reply
};

struct Envelope {
  std::string_view from;
  std::vector<std::string_view> to;  // at least one
  std::uint64_t size = 0;            // bytes, for SIZE= (RFC 1870) if the server offers it
};

class Session {
 public:
  struct Settings {
    std::string lhlo = "localhost";
    bool pipelining = true;  // used if the server offers it (RFC 2920)
  };
  explicit Session(Settings settings) : settings_(std::move(settings)) {}

  Status feed(std::string_view bytes);
  std::string& output() { return output_; }

  bool ready() const { return phase_ == Phase::ready; }
  void begin(const Envelope& envelope);  // only if ready()
  bool content_wanted() const { return phase_ == Phase::content; }
  void content_sent();
  bool finished() const { return finished_; }       // the transaction has all its replies
  std::span<const RecipientResult> take_results();  // of the finished transaction, in the order of
                                                    // Envelope::to
  std::span<const RecipientResult> abandon();  // the results of an open transaction at the connection's end
  void quit();                                 // only if ready()
  bool ended() const { return phase_ == Phase::ended; }
  bool pipelining() const { return pipelining_; }

 private:
  enum class Phase { greeting, lhlo, ready, envelope, content, replies, quitting, ended };
  enum class Step { mail, rcpt, data, rset };

  Status on_reply(const Reply& reply);
  Status on_lhlo(const Reply& reply);
  Status on_envelope(const Reply& reply);
  Status on_rcpt(int code);
  Status on_data(int code);
  Status on_final(int code);
  void send_mail();
  void send_rcpt(std::size_t index);
  void send(Step step, std::string_view command);
  void refuse_open(int code);  // sets this code for every recipient without a result
  void finish();

  Settings settings_;
  ReplyParser parser_;
  Phase phase_ = Phase::greeting;
  bool pipelining_ = false, size_ = false;
  std::string output_;

  Envelope envelope_;
  std::vector<RecipientResult> results_;
  std::vector<std::size_t> accepted_;  // recipients accepted at RCPT, in the order of their replies after the
                                       // dot
  std::size_t next_final_ = 0;         // index into accepted_
  std::size_t next_rcpt_ = 0;          // the recipient of the next reply to RCPT
  std::deque<Step> expected_;
  int mail_refusal_ = 0;
  bool mail_accepted_ = false;
  bool finished_ = false;
};

std::string_view to_string(Outcome outcome);

}  // namespace twinloft::mailbench
