#include "cache.h"

#include <algorithm>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

// The memory of an entry, including its nodes in the list and the table.
std::size_t bytes_of(const UserKey& key, const std::optional<UserEntry>& said) {
  constexpr std::size_t table_bytes = sizeof(UserKey) + 64;
  std::size_t bytes = sizeof(EntryStore::Entry) + table_bytes +
                      2 * (key.local_part.capacity() + key.domain.capacity());
  if (!said) return bytes;
  if (const Alias* alias = std::get_if<Alias>(&*said)) return bytes + alias->address.capacity();
  const User& user = std::get<User>(*said);
  return bytes + user.name.capacity() + user.home.capacity() + user.maildir.capacity() +
         user.agent.capacity() + user.next_hop.capacity();
}

UserEntry as_old(UserEntry said) {
  std::visit([](auto& entry) { entry.is_old = true; }, said);
  return said;
}

}  // namespace

// ---- entries

const EntryStore::Entry* EntryStore::find(const UserKey& key) {
  auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, found->second);
  return &*found->second;
}

void EntryStore::drop(std::list<Entry>::iterator entry) {
  bytes_ -= entry->bytes;
  entries_.erase(entry->key);
  by_use_.erase(entry);
}

void EntryStore::erase(const UserKey& key) {
  if (auto found = entries_.find(key); found != entries_.end()) drop(found->second);
}

void EntryStore::put(const UserKey& key, std::optional<UserEntry> said, Instant now) {
  erase(key);
  std::size_t bytes = bytes_of(key, said);
  if (bytes > bytes_max_) return;
  while (bytes_ + bytes > bytes_max_) drop(std::prev(by_use_.end()));
  by_use_.push_front({key, std::move(said), now, bytes});
  entries_.emplace(key, by_use_.begin());
  bytes_ += bytes;
}

// ---- the source over them

CachedSource::CachedSource(std::unique_ptr<UserSource> source, CacheConfig config, const Clock& clock)
    : source_(std::move(source)),
      config_(config),
      clock_(clock),
      users_(config.bytes_max / 8 * 7),
      nobody_(config.bytes_max / 8) {}

// The entry may be newer than `now`, if another look-up has stored it since.
CachedSource::Age CachedSource::age_of(const EntryStore::Entry& entry, Instant now) const {
  Duration age = std::max(now - entry.at, Duration::zero());
  if (age < (entry.said ? config_.positive : config_.negative)) return Age::fresh;
  return entry.said && age < config_.stale ? Age::old : Age::unusable;
}

std::optional<FindResult> CachedSource::find_now(const UserKey& key) {
  if (auto at_hand = source_->find_now(key); at_hand && *at_hand) return at_hand;
  Instant now = clock_.now();
  std::lock_guard lock(mutex_);
  if (auto entry = fresh(key, now)) return FindResult(std::move(*entry));
  if (!failing_) return std::nullopt;
  if (auto old = known(key, now))
    return of_known_.claim(now) ? std::nullopt : std::optional<FindResult>(std::move(old));
  return !silent_ || of_others_.claim(now) ? std::nullopt : std::optional<FindResult>(silent());
}

// True: the caller must call find(), which begins the probe.
bool CachedSource::Probe::claim(Instant now) {
  if (under_way || now < next) return false;
  due = true;
  // Allows another claim if this look-up never begins, for example because its key was evicted.
  next = now + claim_time;
  return true;
}

bool CachedSource::Probe::begin(Instant now) {
  if (under_way || (!due && now < next)) return false;
  due = false;
  under_way = true;
  return true;
}

// Ends the probe in its destructor, also after an exception.
class CachedSource::Probing {
 public:
  Probing(std::mutex& mutex, const Clock& clock) : mutex_(mutex), clock_(clock) {}
  // The pause begins at the end of the probe, so that a caller waits for at most one probe.
  ~Probing() {
    if (!probe_) return;
    std::lock_guard lock(mutex_);
    probe_->under_way = false;
    probe_->next = clock_.now() + probe_pause;
  }
  Probing(const Probing&) = delete;
  Probing& operator=(const Probing&) = delete;
  bool begin(Probe& probe, Instant now) {
    if (!probe.begin(now)) return false;
    probe_ = &probe;
    return true;
  }

 private:
  std::mutex& mutex_;
  const Clock& clock_;
  Probe* probe_ = nullptr;
};

std::unexpected<Error> CachedSource::silent() const {
  return fail(Errc::timeout, "the user database did not answer a moment ago; the next attempt is soon");
}

// The caller holds mutex_.
std::optional<std::optional<UserEntry>> CachedSource::fresh(const UserKey& key, Instant now) {
  for (EntryStore* store : {&users_, &nobody_})
    if (const EntryStore::Entry* entry = store->find(key); entry && age_of(*entry, now) == Age::fresh) {
      std::optional<UserEntry> said = entry->said;
      if (Alias* alias = said ? std::get_if<Alias>(&*said) : nullptr) alias->from_memory = true;
      return said;
    }
  return std::nullopt;
}

FindResult CachedSource::ask(const UserKey& key, bool fresh_will_do) {
  Probing probing(mutex_, clock_);
  {
    std::lock_guard lock(mutex_);
    Instant now = clock_.now();
    if (auto entry = fresh_will_do ? fresh(key, now) : std::nullopt) return std::move(*entry);
    if (failing_) {
      auto old = known(key, now);
      if (old && !probing.begin(of_known_, now)) return fresh_will_do ? *old : as_old(*old);
      if (!old && silent_ && !probing.begin(of_others_, now)) return silent();
    }
  }
  FindResult found = source_->find(key);
  Instant now = clock_.now();
  if (found) {
    note_answer();
    keep(key, *found, now);
    return found;
  }
  // A wrong row is an answer of a working source, and replaces the older entry.
  if (found.error().code == Errc::invalid) {
    note_answer();
    std::lock_guard lock(mutex_);
    users_.erase(key);
    return found;
  }
  if (found.error().code != Errc::conflict && found.error().code != Errc::exhausted)
    note_failure(found.error(), now);
  std::lock_guard lock(mutex_);
  if (auto entry = known(key, now)) return fresh_will_do ? *entry : as_old(*entry);
  return found;
}

// The user, if the entry is not too old to be served while the source fails. The caller holds mutex_.
std::optional<UserEntry> CachedSource::known(const UserKey& key, Instant now) {
  const EntryStore::Entry* entry = users_.find(key);
  Age age = entry ? age_of(*entry, now) : Age::unusable;
  if (age == Age::unusable) return std::nullopt;
  return age == Age::fresh ? *entry->said : as_old(*entry->said);
}

void CachedSource::keep(const UserKey& key, const std::optional<UserEntry>& said, Instant now) {
  std::lock_guard lock(mutex_);
  (said ? nobody_ : users_).erase(key);
  if (said || config_.negative.count() > 0) (said ? users_ : nobody_).put(key, said, now);
}

void CachedSource::note_failure(const Error& error, Instant now) {
  std::size_t known = 0;
  {
    std::lock_guard lock(mutex_);
    silent_ = error.code == Errc::timeout;
    if (std::exchange(failing_, true)) return;  // the probes continue
    of_known_.next = of_others_.next = now + probe_pause;
    if (now < next_failure_line_) return;
    next_failure_line_ = now + line_pause;
    known = users_.size();
  }
  log_warning(
      "the user database does not answer: up to {} known addresses are still accepted, others get 451; {}",
      known, error.message);
}

void CachedSource::note_answer() {
  {
    std::lock_guard lock(mutex_);
    if (!std::exchange(failing_, false)) return;
    of_known_.due = of_others_.due = false;
    Instant now = clock_.now();
    if (now < next_answer_line_) return;
    next_answer_line_ = now + line_pause;
  }
  log_info("the user database answers again");
}

}  // namespace twinloft::lmtpd
