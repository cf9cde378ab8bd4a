// The account of a run: one line for each outcome of each recipient. Format:
// docs/formats/mailbench-account.md.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

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
  int code = 0;                // 0 where there was no reply
  unsigned attempt = 1;        // counts from 1
  std::uint64_t since_us = 0;  // microseconds since the run's start
};

void append_line(const AccountLine& line, std::string& out);  // with the line feed
Result<AccountLine> parse_line(std::string_view line);        // without it; views point into `line`
Result<Hash128> parse_digest(std::string_view hex);

// Appends lines as they are given, from several threads. What append() was given is in the kernel when it
// returns.
class AccountWriter {
 public:
  // The file is new, or exists and is empty: an account belongs to one run.
  static Result<AccountWriter> create(const std::string& path, std::string_view run);
  AccountWriter(AccountWriter&& other) noexcept : fd_(std::move(other.fd_)), path_(std::move(other.path_)) {}

  Status append(std::string_view lines);
  // The run never began: leaves an empty file, which the next try may use. Only before the first append().
  Status discard();
  // Writes the closing line and syncs: the run listed every attempt that it made.
  Status close();

 private:
  Status sync_file_and_name();
  AccountWriter(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  std::mutex mutex_;
  Fd fd_;
  std::string path_;
  std::uint64_t line_count_ = 0;
};

// Reads an account line by line. A last line without line feed (the generator was killed) is left out.
class AccountReader {
 public:
  static Result<AccountReader> open(const std::string& path);
  // False at the end. Errors (Errc::corrupt) name the file and the line's number.
  Result<bool> next(AccountLine& line);
  const std::string& run() const { return run_; }
  bool complete() const { return complete_; }  // after the end: the closing line was there
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
  std::uint64_t line_number_ = 0, line_count_ = 0;
  bool complete_ = false, torn_ = false, end_of_file_ = false;
};

}  // namespace twinloft::mailbench
