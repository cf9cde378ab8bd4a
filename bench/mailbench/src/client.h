// The state of one client of a Worker.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/mailbench/tls_client.h"
#include "twinloft/mailbench/worker.h"

namespace twinloft::mailbench {

//   backoff -> connecting -> greeting -> ready -> transaction -> ready ... -> quitting -> backoff
// Any phase changes to backoff when the connection is lost, and to ended at the end of the run.
struct Worker::Client {
  enum class Phase {
    backoff,      // no connection; `deadline` is when to try again
    connecting,   // connect(2) has not completed
    greeting,     // connected, without the last reply to LHLO; perhaps in a TLS handshake
    ready,        // between messages; `deadline` is when the next message or repetition is due
    transaction,  // a message is in flight
    quitting,     // QUIT is sent
    ended,
  };

  explicit Client(std::size_t index_in_worker) : index(index_in_worker) {}

  const std::size_t index;
  Phase phase = Phase::backoff;
  Fd fd;
  std::uint32_t generation = 0;  // of the connection: identifies events of earlier connections
  std::optional<Session> session;
  std::optional<TlsClient> tls;  // after STARTTLS
  bool output_armed = false;
  bool idle = false;           // in the worker's queue of idle clients
  bool has_connected = false;  // once

  Instant deadline;                     // the meaning depends on the phase; otherwise the time limit
  std::optional<Instant> timer_queued;  // the earliest entry of the worker's timer queue for this client
  Instant connect_started;
  Duration backoff{0};
  std::uint64_t begun_on_connection = 0;

  // The message that this client works on, if `busy`.
  bool busy = false;
  Message message;
  std::vector<std::size_t> pending;       // the recipients of this attempt
  std::vector<Outcome> pending_outcomes;  // their outcomes in the previous attempt
  unsigned attempt = 0;
  bool all_acknowledged = true;
  Instant due;       // open loop: when it was due; closed loop: `began`
  Instant began;     // of the first attempt: the first byte
  Instant retry_at;  // the earliest time of the next attempt

  // The content of this attempt as sent: pieces of `message` and of `commands`.
  std::vector<std::string_view> content;
  std::deque<std::string> commands;  // BDAT
  std::size_t piece = 0;             // of `content`: the first that is not sent
  std::size_t piece_at = 0;          // bytes of it that are sent
  Instant last_sent;                 // the call that took the last bytes of it began then
  bool whole_content_sent() const { return piece == content.size(); }
};

}  // namespace twinloft::mailbench
