// The writer of an open intake log: group commit of messages and cancels, and of marks.
//
// Deliveries call it on their own threads. While one group is being written, the next one gathers. One of the
// threads that wait for a gathered group writes it for all. Marks are shared in the same way: one setxattr
// marks all names that were settled before it began. docs/decisions/intake-log.md has the reasons.
//
// After an error the log takes no more messages. It stays so until a replay on a fresh mount.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/intake/log_core.h"
#include "twinloft/lmtpd/intake/log_directory.h"
#include "twinloft/lmtpd/spool/durability.h"

namespace twinloft::lmtpd {

// Thread-safe. The functions that return a Status, and append(), block; the others do not.
class IntakeLog {
 public:
  // files outlive it. The other arguments are those of LogCore.
  IntakeLog(LogFiles& files, const LogCore::Config& config, const intake_log::Scan& scan,
            intake_log::Mark mark);
  IntakeLog(const IntakeLog&) = delete;
  IntakeLog& operator=(const IntakeLog&) = delete;

  struct Appended {
    std::uint64_t first = 0;  // the number of the first name's entry; the other names' numbers follow
    // An error: it is unknown whether a replay will find the message. Its entries are then not for settle()
    // and cancel().
    Status durable;
  };
  // Appends the message, and waits until it is durable. nullopt: nothing was appended, since there is no room
  // or the log takes no messages. Otherwise end() is due, once all entries are settled or cancelled.
  std::optional<Appended> append(const PlannedMessage& message);
  // The name is in its Maildir. After success a replay leaves the entry alone, as far as the name survives.
  Status settle(std::uint64_t entry);
  // The name is not in its Maildir, and will not be. Durable after success.
  Status cancel(std::uint64_t entry);
  void end();

  // Makes what is marked durable, so that its space may be used again.
  Status checkpoint();
  // No more messages are taken.
  void stop();
  // After stop(), with no message in flight: makes everything durable and leaves the log empty.
  Status retire();
  // After retire() has succeeded: what a scan of the segments would find, and the mark.
  struct Ending {
    intake_log::Scan scan;
    std::vector<std::byte> mark;
  };
  Ending ending() const;

  bool takes_messages() const;
  bool idle() const;                           // no message is in flight
  bool wants_checkpoint() const;               // much of the space is in use
  std::uint64_t messages() const;              // appended so far
  std::optional<std::string> failure() const;  // the first error

 private:
  using Lock = std::unique_lock<std::mutex>;
  std::uint64_t open_group() const;
  // Waits until the group with this number is durable. Writes it, if no other thread does. number: of the
  // open group, or of one before.
  Status reach_group(Lock& lock, std::uint64_t number);
  void write_open_group(Lock& lock);
  // Waits until a mark is set that began after this call.
  Status reach_mark(Lock& lock);
  void write_mark(Lock& lock);
  void fail(Lock& lock, const Error& error);

  LogFiles& files_;
  mutable std::mutex mutex_;  // for the members below
  LogBuffer one_, two_;       // of the groups
  LogCore core_;
  bool writing_group_ = false;
  std::optional<Error> group_failure_;             // nothing more is appended
  std::optional<std::uint64_t> failed_group_;      // the one whose write failed
  std::array<std::condition_variable, 2> groups_;  // by the group's parity
  std::uint64_t asked_marks_ = 0, set_marks_ = 0;
  std::uint64_t marked_prefix_ = 0;  // of the mark as it is set
  bool writing_mark_ = false;
  std::optional<Error> mark_failure_;
  std::uint64_t refused_marks_ = 0;  // up to this one, for lack of space
  Error refusal_;
  std::condition_variable marks_;
  bool stopped_ = false;
  std::optional<std::string> failure_;
  std::uint64_t messages_ = 0, in_flight_ = 0;
};

}  // namespace twinloft::lmtpd
