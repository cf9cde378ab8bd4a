// The quota of Maildirs: checked before a message, and updated with the message.
//
// Room for a message is held until the message is visible and counted, so that simultaneous deliveries do not
// share it. For this process, becoming visible and being counted are one step.
//
// Other programs, such as Dovecot, do not know these locks. So a change is appended to the file in one write,
// and a new count replaces the file by a rename. A delivery that finds a new file while appending, or new
// mail while counting, removes the file, and the next delivery counts all mail.
//
// The file is not synced, because it can be rebuilt from the mail. An error in updating it never fails a
// delivery.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "keyed_mutex.h"
#include "maildirsize.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/spool/file_ops.h"

namespace twinloft::lmtpd {

class MaildirQuota {
 public:
  MaildirQuota(QuotaConfig config, FileOps& ops, const Clock& clock)
      : config_(std::move(config)), ops_(ops), clock_(clock) {}

  bool on() const { return config_.driver == QuotaDriver::maildir; }
  bool counts(const std::string& folder) const;

  // An open Maildir. `key` is its path below the spool's root.
  struct Mailbox {
    int directory;
    const std::string& key;
    QuotaLimit limit;
  };

  // Whether the mailbox has room for a message of this size now.
  Result<Room> room(const Mailbox& mailbox, std::uint64_t bytes);

  // Holds room for one message. The destructor gives the room back, unless the message was placed.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { release(); }

   private:
    friend class MaildirQuota;
    void release();
    MaildirQuota* quota_ = nullptr;  // null: the message does not count
    Fd directory_;
    std::string key_;
    std::int64_t bytes_ = 0;
    bool held_ = false;
    bool counted_ = false;
  };
  // If the result is `enough`, the room is held. Otherwise `hold` is unchanged.
  Result<Room> take(const Mailbox& mailbox, std::uint64_t bytes, Hold& hold);
  // `appear` makes the message visible.
  Status place(Hold& hold, const std::function<Status()>& appear);
  // `disappear` removes it again.
  Status take_back(Hold& hold, const std::function<Status()>& disappear);

 private:
  struct Looked;
  struct Known {
    QuotaUsage used;
    bool is_count = false;  // a recent count of the mail itself, not a sum of the file's changes
    bool is_sure = true;    // all mail could be read, and the mailbox has not changed during the count
  };
  Result<Room> look(const Mailbox& mailbox, std::uint64_t bytes, const QuotaUsage& more);
  Result<Room> look_beside_others(const Mailbox& mailbox, std::uint64_t bytes);
  Result<Known> usage(const Mailbox& mailbox);
  Result<Known> recount(const Mailbox& mailbox);
  Result<QuotaUsage> count(int directory, Looked& looked);
  Status count_messages(int directory, const std::string& path, QuotaUsage& sum, Looked& looked);
  Status count_files(int part, const std::string& path, QuotaUsage& sum, Looked& looked);
  void tell(const std::string& what);
  void remove_leftovers(int directory, const std::vector<std::string>& names);
  Result<std::vector<std::string>> folders(int directory);
  Result<bool> changed_since(int directory, const Looked& looked);
  Status replace_file(const Mailbox& mailbox, const QuotaUsage& used);
  void append(int directory, const std::string& key, const QuotaUsage& change);
  void forget_file(int directory, const std::string& key, std::string_view why);
  QuotaUsage held(const std::string& key);
  void change_held(const std::string& key, std::int64_t bytes, std::int64_t messages);

  const QuotaConfig config_;
  FileOps& ops_;
  const Clock& clock_;
  KeyedMutex mutexes_;                                // by Maildir: serialises look and hold, place and count
  std::mutex held_mutex_;                             // guards held_ and next_line_
  std::unordered_map<std::string, QuotaUsage> held_;  // by Maildir
  Instant next_line_{};                               // earliest time of the next log line
  std::atomic<std::uint64_t> sequence_{0};            // of temporary files
};

}  // namespace twinloft::lmtpd
