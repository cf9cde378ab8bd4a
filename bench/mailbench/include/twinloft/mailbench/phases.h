// The phases of a message's way, and their latencies. Successes and failures are kept apart, since a server
// that refuses quickly is not a fast server.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "twinloft/base/clock.h"
#include "twinloft/mailbench/histogram.h"

namespace twinloft::mailbench {

enum class Phase : std::uint8_t {
  connect,   // from connect(2) to the greeting
  starttls,  // from STARTTLS to the end of the handshake
  hello,     // LHLO or EHLO, and the reply
  mail,
  rcpt,     // for each recipient
  data,     // to the reply 354
  message,  // from the last byte of the message to the last reply
};
inline constexpr std::array kPhases = {Phase::connect, Phase::starttls, Phase::hello,  Phase::mail,
                                       Phase::rcpt,    Phase::data,     Phase::message};
std::string_view to_string(Phase phase);

struct PhaseTime {
  Phase phase;
  Duration took;
  bool good;  // a positive reply. Phase::message: for every recipient that was accepted before
};

// Latencies in nanoseconds.
struct Timing {
  Histogram good, failed;

  void record(Duration took, bool is_good) {
    (is_good ? good : failed).record(static_cast<std::uint64_t>(took.count()));
  }
  void merge(const Timing& other) {
    good.merge(other.good);
    failed.merge(other.failed);
  }
};

using PhaseTimings = std::array<Timing, kPhases.size()>;

}  // namespace twinloft::mailbench
