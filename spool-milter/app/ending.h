// When a server process of spool-milter ends: a state machine without I/O and clock.
#pragma once

#include <cstddef>
#include <optional>

#include "twinloft/base/clock.h"

namespace twinloft::spool_milter {

// What is still under way.
struct UnderWay {
  std::size_t connections = 0;  // of MTAs; looked at only when asks_for_connections()
  std::size_t questions = 0;    // being answered
};

class Ending {
 public:
  // After drain(): MTAs keep a connection for a whole SMTP session.
  static constexpr Duration drain_time = std::chrono::minutes(10);
  // After drain(), also without connections: libmilter may be within accept(2).
  static constexpr Duration settle_time = std::chrono::seconds(1);
  // After lost_libmilter(): the supervisor closes the socket shortly before its order to stop, and libmilter
  // ends then.
  static constexpr Duration lost_time = std::chrono::seconds(2);
  // patience: after stop(), for questions that are being answered.
  explicit Ending(Duration patience) : patience_(patience) {}

  void drain(Instant now) { begin(drain_, now); }
  void stop(Instant now) { begin(stop_, now); }
  void abort() { aborted_ = true; }
  // No answer is possible any more, so connections are not kept while this process drains.
  void hurry() { hurried_ = true; }
  void lost_libmilter(Instant now) { begin(lost_, now); }

  bool asks_for_connections() const { return drain_.has_value(); }

  // The exit code, or nullopt: not yet. 0: in order. 75 (EX_TEMPFAIL): questions were left unanswered. 70
  // (EX_SOFTWARE): libmilter has stopped by itself.
  std::optional<int> exit_code(const UnderWay& work, Instant now) const;

 private:
  static void begin(std::optional<Instant>& since, Instant now) {
    if (!since) since = now;
  }
  const Duration patience_;
  std::optional<Instant> drain_, stop_, lost_;
  bool aborted_ = false, hurried_ = false;
};

}  // namespace twinloft::spool_milter
