#include "twinloft/lmtpd/intake/intake_log.h"

#include <cerrno>
#include <utility>
#include <vector>

namespace twinloft::lmtpd {

using intake_log::EntryName;

IntakeLog::IntakeLog(LogFiles& files, const LogCore::Config& config, const intake_log::Scan& scan,
                     intake_log::Mark mark)
    : files_(files),
      one_(LogCore::group_bytes(config.shape)),
      two_(LogCore::group_bytes(config.shape)),
      core_(config, scan, std::move(mark), one_.bytes(), two_.bytes()),
      marked_prefix_(core_.mark().prefix()) {}

// A full open group is written first, and the message goes into the next one.
std::optional<IntakeLog::Appended> IntakeLog::append(const PlannedMessage& message) {
  std::vector<EntryName> names;
  for (const PlannedName& name : message.names) names.push_back({name.maildir, name.folder, name.name});
  Lock lock(mutex_);
  for (;;) {
    if (stopped_ || failure_) return std::nullopt;
    auto refused = core_.refusal(names, message.content.size());
    if (!refused) break;
    if (*refused != LogRefusal::group_full) return std::nullopt;
    (void)reach_group(lock, open_group());
  }
  auto ticket = core_.append(names, message.content);
  if (!ticket) return std::nullopt;
  ++messages_;
  ++in_flight_;
  Appended out{ticket->first_entry, reach_group(lock, ticket->group)};
  if (out.durable || ticket->group == failed_group_) return out;
  --in_flight_;  // its group was never written
  return std::nullopt;
}

void IntakeLog::end() {
  Lock lock(mutex_);
  --in_flight_;
}

Status IntakeLog::settle(std::uint64_t entry) {
  Lock lock(mutex_);
  core_.settle(entry);
  return reach_mark(lock);
}

Status IntakeLog::cancel(std::uint64_t entry) {
  Lock lock(mutex_);
  auto ticket = core_.cancel(entry);
  const bool cancelled = ticket && reach_group(lock, ticket->group);
  core_.settle(entry);
  // An entry that the mark calls settled is not delivered by a replay either.
  Status marked = reach_mark(lock);
  if (!cancelled) TL_TRY(marked);
  lock.unlock();
  // The name may have been there, and be durable. Its removal has to be durable before the 4xx.
  return files_.sync();
}

std::uint64_t IntakeLog::open_group() const {
  return core_.durable_groups() + (writing_group_ ? 1 : 0);
}

Status IntakeLog::reach_group(Lock& lock, std::uint64_t number) {
  while (core_.durable_groups() <= number) {
    if (group_failure_) return std::unexpected(*group_failure_);
    if (core_.wants_write())
      write_open_group(lock);
    else if (writing_group_)
      groups_[number % 2].wait(lock);
    else
      return {};  // there is nothing to write
  }
  return {};
}

void IntakeLog::write_open_group(Lock& lock) {
  writing_group_ = true;
  const LogCore::Write write = core_.begin_write();
  lock.unlock();
  Status written = files_.append(write.at.segment, write.at.offset, write.bytes);
  lock.lock();
  writing_group_ = false;
  if (written) {
    core_.written();
    groups_[(write.group + 1) % 2].notify_one();
    groups_[write.group % 2].notify_all();
    return;
  }
  core_.write_failed();
  group_failure_ = written.error();
  failed_group_ = write.group;
  for (std::condition_variable& waiting : groups_) waiting.notify_all();
  fail(lock, written.error());
}

Status IntakeLog::reach_mark(Lock& lock) {
  const std::uint64_t number = ++asked_marks_;
  while (set_marks_ < number) {
    if (mark_failure_ || refused_marks_ >= number)
      return std::unexpected(mark_failure_ ? *mark_failure_ : refusal_);
    if (!writing_mark_)
      write_mark(lock);
    else
      marks_.wait(lock);
  }
  return {};
}

void IntakeLog::write_mark(Lock& lock) {
  writing_mark_ = true;
  const std::uint64_t number = asked_marks_;
  const std::uint64_t prefix = core_.mark().prefix();
  const std::vector<std::byte> mark = core_.mark().encode();
  lock.unlock();
  Status set = files_.set_mark(mark);
  lock.lock();
  writing_mark_ = false;
  if (set) {
    set_marks_ = number;
    marked_prefix_ = prefix;
    marks_.notify_all();
    return;
  }
  // Without space for a larger mark the one before stays. A later one may find space.
  if (set.error().sys == ENOSPC || set.error().sys == EDQUOT) {
    refused_marks_ = number;
    refusal_ = set.error();
    return marks_.notify_all();
  }
  mark_failure_ = set.error();
  marks_.notify_all();
  fail(lock, set.error());
}

void IntakeLog::fail(Lock& lock, const Error& error) {
  if (failure_) return;
  failure_ = error.message;
  lock.unlock();
  // Without this attribute the failure is known to this process alone. Another process on this mount would
  // drop the entries that are not settled, which were not acknowledged.
  (void)files_.set_failure(error.message);
  lock.lock();
}

Status IntakeLog::checkpoint() {
  Lock lock(mutex_);
  if (failure_) return twinloft::fail(Errc::unavailable, "{}", *failure_);
  if (core_.is_empty()) return {};
  TL_TRY(reach_mark(lock));
  const std::uint64_t durable = marked_prefix_;
  lock.unlock();
  Status synced = files_.sync();
  lock.lock();
  if (!synced) {
    fail(lock, synced.error());
    return synced;
  }
  core_.checkpointed(durable);
  return reach_group(lock, open_group());
}

void IntakeLog::stop() {
  Lock lock(mutex_);
  stopped_ = true;
}

Status IntakeLog::retire() {
  TL_TRY(checkpoint());
  Lock lock(mutex_);
  if (core_.is_empty()) return {};
  return twinloft::fail(Errc::internal, "the intake log has entries that are not settled");
}

IntakeLog::Ending IntakeLog::ending() const {
  Lock lock(mutex_);
  return {core_.ending(), core_.mark().encode()};
}

bool IntakeLog::takes_messages() const {
  Lock lock(mutex_);
  if (stopped_ || failure_) return false;
  const auto refused = core_.refusal({}, 0);
  return !refused || *refused == LogRefusal::group_full;
}

bool IntakeLog::idle() const {
  Lock lock(mutex_);
  return in_flight_ == 0;
}

bool IntakeLog::wants_checkpoint() const {
  Lock lock(mutex_);
  return core_.checkpoint_wanted();
}

std::uint64_t IntakeLog::messages() const {
  Lock lock(mutex_);
  return messages_;
}

std::optional<std::string> IntakeLog::failure() const {
  Lock lock(mutex_);
  return failure_;
}

}  // namespace twinloft::lmtpd
