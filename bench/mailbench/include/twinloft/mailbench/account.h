// The account of a run: a line for each attempt of each recipient, with its outcome.
// docs/formats/mailbench-account.md describes the format.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/hash.h"
#include "twinloft/base/result.h"
#include "twinloft/mailbench/session.h"

namespace twinloft::mailbench {

struct AccountLine {
  std::string_view id;  // "<run>-<number>"
  std::string_view recipient;
  Hash128 digest;
  std::uint64_t size = 0;  // bytes
  Outcome outcome = Outcome::unsent;
  int code = 0;                // of the reply; 0: no reply
  unsigned attempt = 1;        // from 1
  std::uint64_t since_us = 0;  // microseconds since the run's start
};

void append_line(const AccountLine& line, std::string& out);  // with the line feed
Result<AccountLine> parse_line(std::string_view line);  // without the line feed; views point into `line`
Result<Hash128> parse_digest(std::string_view hex);

// Appends lines, from several threads. Lines are in the kernel when append() returns, so they survive a kill.
class AccountWriter {
 public:
  // Creates the file, or takes an existing empty file, since an account belongs to one run. Errors: those of
  // open(2), or the file is not empty.
  // started: the time of day when the run began.
  static Result<AccountWriter> create(const std::string& path, std::string_view run, WallTime started);
  AccountWriter(AccountWriter&& other) noexcept : fd_(std::move(other.fd_)), path_(std::move(other.path_)) {}

  // After an error, nothing more is appended.
  Status append(std::string_view lines);
  bool empty() const { return line_count_ == 0 && !failed_; }  // without append() at the same time
  // Empties the file, for a run that has not begun. Only before the first append().
  Status discard();
  // Writes the closing line, which marks the account as complete, and makes the file durable.
  Status close();

 private:
  Status sync_file_and_name();
  AccountWriter(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  std::mutex mutex_;
  Fd fd_;
  std::string path_;
  std::uint64_t line_count_ = 0;
  bool failed_ = false;
};

// Reads an account line by line. A last line without a line feed, as after a kill, is not returned.
class AccountReader {
 public:
  static Result<AccountReader> open(const std::string& path);
  // False: the end. Errors: Errc::corrupt with the file and the number of the line.
  Result<bool> next(AccountLine& line);
  const std::string& run() const { return run_; }
  // Nothing: the account is of a version that did not tell it.
  std::optional<WallTime> started() const { return started_; }
  bool complete() const { return complete_; }  // after the end: the closing line was found
  bool torn() const { return torn_; }          // after the end: the last line had no line feed

 private:
  AccountReader(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Result<bool> next_text(std::string_view& text);
  Status read_head();

  std::string path_;
  Fd fd_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::string run_;
  std::optional<WallTime> started_;
  std::uint64_t line_number_ = 0, line_count_ = 0;
  bool complete_ = false, torn_ = false, end_of_file_ = false;
};

}  // namespace twinloft::mailbench
