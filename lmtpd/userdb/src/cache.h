// A source with a cache of its results.
//
// A fresh entry is served from memory. For an old entry the source is asked again. If the source fails, a
// user whose entry is not older than `stale` is still served.
//
// While the source fails, one look-up at a time, and one in `probe_pause`, tries the source for known users.
// All others get their cached result at once, so a database that fails slowly does not delay them. If the
// source times out, unknown users are limited in the same way, by a separate probe: each waiting look-up
// keeps a thread and a connection. No lock is held while the source is asked.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/userdb/directory.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

// Entries by key, limited in bytes. Least recently used entries are evicted first. Not thread-safe.
class EntryStore {
 public:
  explicit EntryStore(std::size_t bytes_max) : bytes_max_(bytes_max) {}
  struct Entry {
    UserKey key;
    std::optional<UserEntry> said;
    Instant at;  // time of the result
    std::size_t bytes = 0;
  };
  // Null: no entry. Valid until the next put() or erase().
  const Entry* find(const UserKey& key);
  void put(const UserKey& key, std::optional<UserEntry> said, Instant now);
  void erase(const UserKey& key);
  std::size_t bytes() const { return bytes_; }
  std::size_t size() const { return entries_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const UserKey& k) const {
      return std::hash<std::string>()(k.local_part) * 31 + std::hash<std::string>()(k.domain);
    }
  };
  void drop(std::list<Entry>::iterator entry);

  const std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  std::list<Entry> by_use_;  // most recently used first
  std::unordered_map<UserKey, std::list<Entry>::iterator, Hash> entries_;
};

class CachedSource final : public UserSource {
 public:
  static constexpr Duration probe_pause = std::chrono::seconds(1);
  static constexpr Duration claim_time = std::chrono::seconds(30);
  static constexpr Duration line_pause = std::chrono::seconds(10);

  CachedSource(std::unique_ptr<UserSource> source, CacheConfig config, const Clock& clock);

  FindResult find(const UserKey& key) override { return ask(key, true); }
  std::optional<FindResult> find_now(const UserKey& key) override;
  FindResult find_anew(const UserKey& key) override { return ask(key, false); }

 private:
  FindResult ask(const UserKey& key, bool fresh_will_do);
  enum class Age { fresh, old, unusable };
  Age age_of(const EntryStore::Entry& entry, Instant now) const;
  std::optional<std::optional<UserEntry>> fresh(const UserKey& key, Instant now);
  std::optional<UserEntry> known(const UserKey& key, Instant now);
  // The single look-up that checks whether the source answers again.
  struct Probe {
    Instant next{};
    bool due = false;  // a caller was chosen, but has not begun
    bool under_way = false;
    bool claim(Instant now);
    bool begin(Instant now);
  };
  class Probing;
  std::unexpected<Error> silent() const;
  void keep(const UserKey& key, const std::optional<UserEntry>& said, Instant now);
  void note_failure(const Error& error, Instant now);
  void note_answer();

  std::unique_ptr<UserSource> source_;
  const CacheConfig config_;
  const Clock& clock_;
  std::mutex mutex_;
  EntryStore users_, nobody_;
  bool failing_ = false;  // no look-up has succeeded since the last failure
  bool silent_ = false;   // the last failure was a timeout
  Probe of_known_, of_others_;
  Instant next_failure_line_, next_answer_line_;  // an unstable source must not fill the log
};

}  // namespace twinloft::lmtpd
