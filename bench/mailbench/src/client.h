// The state of one client of a Worker.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/mailbench/worker.h"

namespace twinloft::mailbench {

//   backoff -> connecting -> greeting -> ready -> transaction -> ready ... -> quitting -> backoff
// From any of them to backoff when the connection is lost, and to ended when the run is over.
struct Worker::Client {
  enum class Phase {
    backoff,      // no connection; `deadline` is when to try again
    connecting,   // connect(2) is under way
    greeting,     // connected; LHLO is not answered yet
    ready,        // between messages; `deadline` is when the next is due, or its repetition
    transaction,  // a message is under way
    quitting,     // QUIT is sent
    ended,
  };

  explicit Client(std::size_t index_in_worker) : index(index_in_worker) {}

  const std::size_t index;
  Phase phase = Phase::backoff;
  Fd fd;
  std::uint32_t generation = 0;  // of the connection: tells events of an earlier one apart
  std::optional<Session> session;
  bool output_armed = false;

  Instant deadline;                     // what it means depends on the phase; else the time limit
  std::optional<Instant> timer_queued;  // the earliest entry of the worker's timer queue for this client
  Instant connect_started;
  Duration backoff{0};
  std::uint64_t begun_on_connection = 0;

  // The message that this client works on, if `busy`.
  bool busy = false;
  Message message;
  std::vector<std::size_t> pending;       // its recipients that this attempt is for
  std::vector<Outcome> pending_outcomes;  // what the attempt before made of them
  unsigned attempt = 0;
  bool all_replied = true;
  Instant began;               // of the first attempt: the first byte, or when it was due
  Instant retry_at;            // the next attempt is not before
  std::size_t content_at = 0;  // bytes of the content that are sent
};

}  // namespace twinloft::mailbench
