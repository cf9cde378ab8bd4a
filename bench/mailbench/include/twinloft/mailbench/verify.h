// Verifies that a spool has the messages of accounts: each acknowledged message, complete, and once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/mailbench/histogram.h"
#include "twinloft/mailbench/imap_client.h"

namespace twinloft::mailbench {

struct VerifyOptions {
  std::vector<std::string> accounts{};  // of different runs. Messages of other runs are ignored
  // One of the two: a directory above Maildirs, or an IMAP server.
  std::string spool{};
  std::string imap{};
  std::vector<std::string> maildir_formats{};  // of `spool`. Empty: by Delivered-To
  ImapClient::Security imap_security = ImapClient::Security::clear;
  TlsSettings imap_tls{};
  std::string imap_user_format = "%u";
  std::string imap_password{};

  Duration wait{0};                    // until every acknowledged message is there, and the queues are empty
  std::vector<std::string> queues{};   // directories of an MTA: empty if they hold no file
  unsigned threads = 0;                // 0: four for each processor, since they wait for the disk
  bool check_head = true;              // also checks mailbench's header lines
  bool strict_deferred = false;        // after 4xx in all attempts, a stored message is a problem
  bool allow_deferred_copies = false;  // an attempt that ended in 4xx may have stored a second copy
  std::size_t problems_shown = 20;     // of each kind
};

// The problems of a message or a file.
enum class ProblemKind {
  lost,          // acknowledged, but not stored
  damaged,       // stored, with other content than was sent
  duplicate,     // stored more often than the attempts allow
  refused,       // refused permanently, but stored
  deferred,      // deferred in every attempt, but stored (strict_deferred)
  misdelivered,  // stored for a user who is not among the recipients
  unlisted,      // stored with the id of this run, but not listed in its complete account
  nobody,        // stored in a Maildir of an unknown recipient
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
  std::uint64_t acknowledged = 0;          // (message, recipient) pairs that must be stored
  std::uint64_t acknowledged_found = 0;    // of these: stored, intact, and not too often
  std::uint64_t extra_copies_allowed = 0;  // second copies after an attempt without a reply
  std::uint64_t unknown_present = 0;   // not acknowledged, with an attempt without a reply: stored, which is
                                       // allowed
  std::uint64_t unknown_absent = 0;    // the same, not stored
  std::uint64_t deferred_present = 0;  // deferred in every attempt, and stored: allowed without
                                       // strict_deferred
  std::uint64_t refused = 0;           // pairs that were refused permanently
  std::uint64_t unlisted_allowed = 0;  // files that an incomplete account does not list
  std::uint64_t files = 0, foreign = 0, unmarked = 0,
                left_in_tmp = 0;  // foreign: of other runs; unmarked: without an id
  std::uint64_t bytes = 0;
  std::uint64_t queued = 0;  // files in VerifyOptions::queues at the end
  // If the accounts tell when they started, and the messages are files: when those that were acknowledged
  // came.
  Histogram delay_ns;       // from the acknowledgement to the file
  Duration delivery{0};     // from the start of the first run to the last file
  std::uint64_t dated = 0;  // messages in these figures
  bool accounts_complete = true;
  std::vector<std::uint64_t> problem_counts = std::vector<std::uint64_t>(kProblemKinds);
  std::vector<Problem> problems;            // at most VerifyOptions::problems_shown of each kind
  std::vector<std::string> unmarked_files;  // some of them. A lost message may be one of these
  bool good() const;                        // no problem, and nothing queued
};

// Errors: of the input, such as Errc::not_found and Errc::corrupt. Problems of the spool are in the result.
Result<VerifyResult> run_verify(const VerifyOptions& options);

std::string verify_text(const VerifyOptions& options, const VerifyResult& result);
std::string verify_json(const VerifyOptions& options, const VerifyResult& result);

}  // namespace twinloft::mailbench
