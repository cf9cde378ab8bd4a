// The quota of Maildirs, looked at before a message and kept with it.
//
// A message's room is held from the moment that it was found until the message is placed and counted, so
// deliveries at once do not share it. Becoming visible and being counted are one step for this process.
// Others, such as Dovecot, do not know its locks: the file is appended to in one write, and made anew by a
// rename. A delivery that finds a new file while appending, or new mail while counting, removes the file. The
// next delivery counts all. Nothing is synced: it can be made again from the mail, and is where it is
// damaged. What fails in keeping it never fails a delivery.
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

  // A Maildir that is open. `key` is its path below the spool's root.
  struct Mailbox {
    int directory;
    const std::string& key;
    QuotaLimit limit;
  };

  // Whether it would take a message of that size now.
  Result<Room> room(const Mailbox& mailbox, std::uint64_t bytes);

  // Room for one message. Given back at the end of its life, unless the message was placed.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { release(); }

   private:
    friend class MaildirQuota;
    void release();
    MaildirQuota* quota_ = nullptr;  // null: nothing is counted
    Fd directory_;
    std::string key_;
    std::int64_t bytes_ = 0;
    bool held_ = false;
    bool counted_ = false;
  };
  // `enough`, and the room is held; else `hold` stays as it was.
  Result<Room> take(const Mailbox& mailbox, std::uint64_t bytes, Hold& hold);
  // `appear` makes the message visible.
  Status place(Hold& hold, const std::function<Status()>& appear);
  // `disappear` removes it again.
  Status take_back(Hold& hold, const std::function<Status()>& disappear);

 private:
  struct Looked;
  struct Known {
    QuotaUsage used;
    bool is_count = false;  // of the mail itself, a moment ago
    bool is_sure = true;    // all of it could be read, and nothing has changed meanwhile
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
  KeyedMutex mutexes_;     // by Maildir: one at a time looks and holds, or places and counts
  std::mutex held_mutex_;  // of what is held, and of next_line_
  std::unordered_map<std::string, QuotaUsage> held_;  // by Maildir
  Instant next_line_{};                               // of the log
  std::atomic<std::uint64_t> sequence_{0};            // of temporary files
};

}  // namespace twinloft::lmtpd
