// A load run: clients, threads, results.
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
  std::string users_file;  // instead of the format, where not empty
  std::size_t recipients_per_message = 1;
  std::string from = "mailbench@example.net";
  std::string lhlo = "mailbench.invalid";
  std::string run = draw_run_id();
  std::uint64_t messages_per_connection = 0;  // 0: no limit
  bool pipelining = true;
  std::uint64_t seed = 1;
  unsigned attempts = 1;  // per message, 1: no retry
  Duration retry_delay = std::chrono::seconds(1);
  Duration timeout = std::chrono::seconds(300);         // of a reply
  Duration connect_timeout = std::chrono::seconds(10);  // of the first connection of all
  std::string account;                                  // empty: none
  bool progress = false;
};

struct LoadStats {
  // Within the measured window.
  Histogram latency_ns;            // of a message whose recipients all have a reply
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
  std::map<std::string, std::uint64_t> errors;   // ends of connections that nobody asked for, by what was
                                                 // wrong
  std::uint64_t attempts = 0, retries = 0;       // transactions begun; those of them that were a repetition
  std::uint64_t connections = 0, failed_connections = 0;
  bool pipelining = false;                           // the server offered it and it was used
  std::vector<std::uint32_t> acknowledged_per_tick;  // recipients, by kTick since the start
  static constexpr Duration kTick = std::chrono::milliseconds(100);

  void merge(const LoadStats& other);
};

struct LoadResult {
  std::string run;
  std::string account;
  LoadStats stats;
  std::uint64_t messages_started = 0;
  std::uint64_t behind = 0;  // open loop: messages that were due at the end and not sent
  bool interrupted = false;
};

// Errors: Errc::unavailable where the server never took a connection, Errc::invalid for what only shows when
// the run begins, Errc::not_found for the file of users, Errc::denied where the account can not be created;
// else what writing the account failed with. SIGINT, SIGTERM and SIGHUP end a run early,
// and a result is given.
Result<LoadResult> run_load(LoadOptions options);

// Longest time without an acknowledgement between the first and the last, to the tick.
Duration longest_gap(const LoadStats& stats);

}  // namespace twinloft::mailbench
