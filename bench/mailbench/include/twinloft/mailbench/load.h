// A load run: its options, its clients in threads, and its results.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/mailbench/histogram.h"
#include "twinloft/mailbench/phases.h"
#include "twinloft/mailbench/schedule.h"
#include "twinloft/mailbench/series.h"
#include "twinloft/mailbench/session.h"
#include "twinloft/mailbench/tls_client.h"
#include "twinloft/mailbench/units.h"

namespace twinloft::mailbench {

std::string draw_run_id();  // 12 hexadecimal digits

struct LoadOptions {
  std::string server;
  Protocol protocol = Protocol::lmtp;
  std::size_t clients = 8;
  unsigned threads = 1;
  Schedule::Settings schedule;
  SizeDistribution size;
  std::string messages_from;  // a directory or an mbox; replaces `size` if not empty
  std::uint64_t users = 1, first_user = 1;
  double zipf = 0;  // exponent of the users' popularity; 0: all are alike
  std::string user_format = "user%u@example.org";
  std::string users_file;  // replaces user_format if not empty
  std::size_t recipients_per_message = 1;
  std::string from = "mailbench@example.net";
  std::string hello = "mailbench.invalid";
  std::string run = draw_run_id();
  std::uint64_t messages_per_connection = 0;  // 0: no limit
  bool pipelining = true;
  bool bdat = false;
  std::uint64_t chunk = 0;  // bytes of a BDAT command; 0: the whole message
  std::optional<TlsSettings> starttls;
  std::uint64_t seed = 1;
  unsigned attempts = 1;  // of a message; 1: no retry
  Duration retry_delay = std::chrono::seconds(1);
  Duration backoff_max = std::chrono::seconds(1);       // between attempts to connect
  Duration timeout = std::chrono::seconds(300);         // of a reply
  Duration connect_timeout = std::chrono::seconds(10);  // until the first connection
  std::string account;                                  // empty: none
  bool progress = false;
};

// What the generator's own threads did in the window. A thread that has no idle time is the limit itself.
struct GeneratorStats {
  std::uint64_t cpu_ns = 0;
  std::uint64_t cpu_attempts = 0;  // attempts that ended while cpu_ns was taken
  double busiest = 0;              // the thread with the least idle time: its share, running and waiting
  double waited = 0;               // of that share: runnable, and waiting for a processor
  Histogram lag_ns;                // how long each event waited at most until it was handled
  Histogram late_ns;               // open loop: from when a message was due, although a client was free
  // Open loop: messages that were due when no client was free, or when clients had no connection yet.
  std::uint64_t without_client = 0, without_connection = 0;

  void merge(const GeneratorStats& other);
};

struct LoadStats {
  // Within the measured window. An open loop counts a message by the time when it was due.
  Timing latency;                  // good: every recipient acknowledged; failed: until that was clear
  Timing service;                  // open loop: the same from the first byte
  std::uint64_t acknowledged = 0;  // recipients
  std::uint64_t messages = 0;      // that ended, acknowledged or not
  std::uint64_t bytes = 0;         // message sizes, once for each acknowledged recipient
  GeneratorStats generator;
  Duration window{0};

  // Within the window, except Phase::connect, Phase::starttls and Phase::hello: over the whole run.
  PhaseTimings phases;

  // Over the whole run.
  std::array<std::uint64_t, 5> outcomes{};       // recipient attempts, by Outcome
  std::array<std::uint64_t, 5> last_outcomes{};  // recipients, by the outcome of their last attempt
  std::map<int, std::uint64_t> codes;            // recipient attempts by reply code, 0 without a reply
  std::map<std::string, std::uint64_t> errors;   // unexpected ends of connections, by their reason
  std::uint64_t attempts = 0, retries = 0;       // transactions; of these, repetitions
  std::uint64_t connections = 0, failed_connections = 0;
  bool pipelining = false;                           // was offered by the server, and used
  bool eight_bit_refused = false;                    // 8-bit content went to a server without 8BITMIME
  std::vector<std::uint32_t> acknowledged_per_tick;  // recipients in each kTick since the start
  static constexpr Duration kTick = std::chrono::milliseconds(100);

  void merge(const LoadStats& other);
  bool connected() const { return phase(Phase::hello).good.count() > 0; }
  Timing& phase(Phase p) { return phases[static_cast<std::size_t>(p)]; }
  const Timing& phase(Phase p) const { return phases[static_cast<std::size_t>(p)]; }
};

struct LoadResult {
  std::string run;
  std::string account;
  LoadStats stats;
  std::vector<Second> seconds;
  std::uint64_t messages_started = 0;
  std::uint64_t waiting = 0;  // open loop: messages that were due and not sent at the end of the window
  std::uint64_t behind = 0;   // open loop: messages that were due and not sent, also not during the drain
  std::uint64_t users = 0;
  std::string corpus;  // what was taken from LoadOptions::messages_from, in words
  bool interrupted = false;
};

// Runs a load. SIGINT, SIGTERM and SIGHUP end it early, with a result. Errors: Errc::unavailable (the server
// accepted no connection), Errc::invalid (options that contradict each other), Errc::not_found (the file of
// users), Errc::denied (the account cannot be created), or the error of writing the account.
Result<LoadResult> run_load(LoadOptions options);

// The ticks and seconds until then exist, also those without an event.
void cover_window(LoadResult& result, Duration until);

// The longest time without an acknowledgement, after the first one. In multiples of kTick.
Duration longest_gap(const LoadStats& stats);

}  // namespace twinloft::mailbench
