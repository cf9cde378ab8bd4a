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
#include "twinloft/mailbench/schedule.h"
#include "twinloft/mailbench/units.h"

namespace twinloft::mailbench {

std::string draw_run_id();  // 12 hexadecimal digits

struct LoadOptions {
  std::string server;
  std::size_t clients = 8;
  unsigned threads = 1;
  Schedule::Settings schedule;
  SizeDistribution size;
  std::uint64_t users = 1, first_user = 1;
  std::string user_format = "user%u@example.org";
  std::string users_file;  // replaces user_format if not empty
  std::size_t recipients_per_message = 1;
  std::string from = "mailbench@example.net";
  std::string lhlo = "mailbench.invalid";
  std::string run = draw_run_id();
  std::uint64_t messages_per_connection = 0;  // 0: no limit
  bool pipelining = true;
  std::uint64_t seed = 1;
  unsigned attempts = 1;  // of a message; 1: no retry
  Duration retry_delay = std::chrono::seconds(1);
  Duration timeout = std::chrono::seconds(300);         // of a reply
  Duration connect_timeout = std::chrono::seconds(10);  // until the first connection
  std::string account;                                  // empty: none
  bool progress = false;
};

struct LoadStats {
  // Within the measured window.
  Histogram latency_ns;            // of messages with a reply for each recipient
  std::uint64_t acknowledged = 0;  // recipients
  std::uint64_t messages = 0;      // transactions that ended with replies
  std::uint64_t bytes = 0;         // message sizes, once for each acknowledged recipient
  std::uint64_t cpu_ns = 0;        // of the generator's threads
  std::uint64_t cpu_attempts = 0;  // attempts that ended while cpu_ns was taken
  Duration window{0};

  // Over the whole run.
  Histogram connect_ns;                          // from connect() to the end of LHLO
  std::array<std::uint64_t, 5> outcomes{};       // recipient attempts, by Outcome
  std::array<std::uint64_t, 5> last_outcomes{};  // recipients, by the outcome of their last attempt
  std::map<int, std::uint64_t> codes;            // recipient attempts by reply code, 0 without a reply
  std::map<std::string, std::uint64_t> errors;   // unexpected ends of connections, by their reason
  std::uint64_t attempts = 0, retries = 0;       // transactions; of these, repetitions
  std::uint64_t connections = 0, failed_connections = 0;
  bool pipelining = false;                           // was offered by the server, and used
  std::vector<std::uint32_t> acknowledged_per_tick;  // recipients in each kTick since the start
  static constexpr Duration kTick = std::chrono::milliseconds(100);

  void merge(const LoadStats& other);
};

struct LoadResult {
  std::string run;
  std::string account;
  LoadStats stats;
  std::uint64_t messages_started = 0;
  std::uint64_t behind = 0;  // open loop: messages that were due and not sent at the end
  bool interrupted = false;
};

// Runs a load. SIGINT, SIGTERM and SIGHUP end it early, with a result. Errors: Errc::unavailable (the server
// accepted no connection), Errc::invalid (options that contradict each other), Errc::not_found (the file of
// users), Errc::denied (the account cannot be created), or the error of writing the account.
Result<LoadResult> run_load(LoadOptions options);

// The longest time without an acknowledgement, between the first and the last. In multiples of kTick.
Duration longest_gap(const LoadStats& stats);

}  // namespace twinloft::mailbench
