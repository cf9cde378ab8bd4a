// Proves an account against a spool.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::mailbench {

struct VerifyOptions {
  std::vector<std::string> accounts{};  // each of another run; messages of other runs are left alone
  std::string spool{};
  std::vector<std::string> maildir_formats{};  // empty: by Delivered-To
  unsigned threads = 0;                        // 0: four for each processor, since they wait for the disk
  bool check_head = true;                      // the header lines too, not only the body
  bool strict_deferred = false;                // a recipient whose attempts all ended in 4xx must not have it
  bool allow_deferred_copies = false;  // an attempt that ended in 4xx may have left a copy beside the right
                                       // one
  std::size_t problems_shown = 20;     // of each kind
};

// What is wrong with a message, or a file.
enum class ProblemKind {
  lost,          // acknowledged, and no file has it
  damaged,       // there, and not what was sent
  duplicate,     // more copies than attempts may have left
  refused,       // refused for good, and there all the same
  deferred,      // deferred in every attempt, and there all the same (strict_deferred)
  misdelivered,  // in the Maildir of one who is not among its recipients
  unlisted,      // of this run, and a complete account does not know it
  nobody,        // whose Maildir it is can not be told
};
inline constexpr std::size_t kProblemKinds = 8;
std::string_view to_string(ProblemKind kind);

struct Problem {
  ProblemKind kind;
  std::string id, recipient;
  std::string path;  // relative to the spool; empty for `lost`
  std::string detail;
};

struct VerifyResult {
  std::uint64_t acknowledged = 0;          // (message, recipient) pairs that must be there
  std::uint64_t acknowledged_found = 0;    // of them: there, intact, and not too often
  std::uint64_t extra_copies_allowed = 0;  // second copies after an attempt without a reply
  std::uint64_t unknown_present = 0;  // never acknowledged, an attempt ended without a reply, there: allowed
  std::uint64_t unknown_absent = 0;
  std::uint64_t deferred_present = 0;  // every attempt ended in 4xx, there: allowed unless strict
  std::uint64_t refused = 0;           // pairs refused for good
  std::uint64_t unlisted_allowed = 0;  // files that an incomplete account does not know
  std::uint64_t files = 0, foreign = 0, unmarked = 0,
                left_in_tmp = 0;  // foreign: of other runs; unmarked: no id
  std::uint64_t bytes = 0;
  bool accounts_complete = true;
  std::vector<std::uint64_t> problem_counts = std::vector<std::uint64_t>(kProblemKinds);
  std::vector<Problem> problems;            // at most VerifyOptions::problems_shown of each kind
  std::vector<std::string> unmarked_files;  // some of them: where a message is lost, it may be one of these
  bool good() const;
};

// Errors are of the input (Errc::not_found, Errc::corrupt ...), never of what the spool holds.
Result<VerifyResult> run_verify(const VerifyOptions& options);

std::string verify_text(const VerifyOptions& options, const VerifyResult& result);
std::string verify_json(const VerifyOptions& options, const VerifyResult& result);

}  // namespace twinloft::mailbench
