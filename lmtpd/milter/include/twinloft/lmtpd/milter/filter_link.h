// One filter over one connection. Blocks; each wait has a time limit.
//
// Events that the filter does not answer are collected, and leave together with the next event that it
// answers.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/connect/stream.h"
#include "twinloft/lmtpd/milter/conversation.h"
#include "twinloft/lmtpd/milter/filter_spec.h"

namespace twinloft::lmtpd::milter {

// Takes the changes of a filter at the end of a message, in order. An error ends the dialogue.
using TakeChange = std::function<Status(Change&&)>;

class FilterLink {
 public:
  // The references outlive the link.
  FilterLink(std::unique_ptr<Stream> stream, const FilterSpec& spec, const Clock& clock)
      : stream_(std::move(stream)), spec_(spec), clock_(clock) {}

  // Negotiates. Errors, here and below: those of Stream, Errc::invalid (the filter breaks the protocol),
  // Errc::exhausted (a bound of this side), and those of `take`. After an error, the link cannot be used.
  Status open();

  // Says the event and returns the verdict. `most`: no wait ends later.
  Result<Verdict> say(const Event& event, const Macros& macros, Instant most);
  // Whether say() blocks: the filter answers the event, or much is to be sent.
  bool would_block(const Event& event) const {
    return collected_.size() + event_bytes_max >= collected_max || conversation_.would_answer(event);
  }
  // As say(EndOfBody{}), with the filter's changes.
  Result<Verdict> end_message(const Macros& macros, Instant most, const TakeChange& take);

  // The filter forgets the message, if there is one. Does not block: a filter that reads nothing is left.
  Status abort();
  // Another client follows. False: this filter needs a new connection for it.
  Result<bool> begin_another_client();
  // Likewise.
  void quit();
  void shut() { stream_->shut(); }

  bool in_message() const { return conversation_.in_message(); }
  bool has_deferred_client() const { return conversation_.has_deferred_client(); }
  // Between two messages: gives back the buffers of a large one.
  void free_memory();
  bool is_idle() { return !reader_.has_rest() && !stream_->has_news(); }
  const Agreement& agreement() const { return conversation_.agreement(); }

 private:
  static constexpr std::size_t collected_max = 128 * 1024;   // bytes before they are sent
  static constexpr std::size_t kept_max = 8 * 1024;          // bytes of a buffer between two messages
  static constexpr std::size_t event_bytes_max = 32 * 1024;  // of a command, with its macros
  static constexpr std::size_t read_bytes = 16 * 1024;

  Instant in(std::chrono::milliseconds time, Instant most) const {
    return std::min(clock_.now() + time, most);
  }
  Status flush(Instant deadline);
  Result<Heard> hear(Instant deadline);
  Result<Verdict> say(const Event& event, const Macros& macros, std::chrono::milliseconds time, Instant most,
                      const TakeChange* take);

  std::unique_ptr<Stream> stream_;
  const FilterSpec& spec_;
  const Clock& clock_;
  Conversation conversation_;
  PacketReader reader_;
  std::string collected_;
  bool broken_ = false;  // the stream has failed, perhaps within a packet
};

}  // namespace twinloft::lmtpd::milter
