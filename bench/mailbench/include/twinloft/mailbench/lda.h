// A load on a local delivery agent's command alone: each message is one run of the program, as an MTA or
// lmtpd would run it. It shows what the agent itself can do.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "twinloft/argv/argv.h"
#include "twinloft/mailbench/load.h"

namespace twinloft::mailbench {

struct LdaOptions {
  argv::Template command;
  // Values of macros besides those of the message, as texts of check_address_format().
  std::map<std::string, std::string> values{};
};

struct LdaResult {
  LoadResult load;  // Timing::good: exit code 0. LoadStats::codes: exit codes, with 256 for those without one
  std::uint64_t agent_cpu_ns = 0;                   // of the ended programs, in the window
  std::uint64_t agent_runs = 0;                     // that ended in it
  std::map<std::string, std::uint64_t> complaints;  // the last line of standard error, and how often
};

// The macros that have a value without LdaOptions::values: from, to, user, original_to, domain, detail, id,
// size, client, lhlo, uid, gid. Errors: as for run_load(); Errc::invalid, the command cannot be expanded for
// a user; Errc::unavailable, the program cannot be started.
Result<LdaResult> run_lda(const LoadOptions& load, const LdaOptions& lda);
std::string lda_text(const LoadOptions& load, const LdaOptions& lda, const LdaResult& result);
std::string lda_json(const LoadOptions& load, const LdaOptions& lda, const LdaResult& result);

}  // namespace twinloft::mailbench
