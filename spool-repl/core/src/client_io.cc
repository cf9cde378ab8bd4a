#include "client_io.h"

#include <algorithm>
#include <cerrno>

#include "request_blocks.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

ClientIo::ClientIo(Volume& volume, Checkpointer& checkpointer, Repair& repair, Pace& pace, const Term& term,
                   ReadBalance& balance)
    : v_(volume),
      checkpointer_(checkpointer),
      pace_(pace),
      term_(term),
      balance_(balance),
      pending_(volume.arena),
      repairing_reads_(repair),
      repairing_writes_(repair) {
  load_uncommitted();
}

// Records that recovery found above the commit point are part of this primary's history. Reads see them, but
// they are not acknowledged yet.
void ClientIo::load_uncommitted() {
  Log& log = v_.log;
  open_serial_ = log.end() - log.first() + 1;
  for (RecordNo no = log.first(); no < log.end(); ++no) log.at(no).serial = no - log.first() + 1;
  for (RecordNo no = log.committed_end(); no < log.end(); ++no) {
    const LogRecord& r = log.at(no);
    std::size_t at = 0;
    for (const Extent& e : r.extents) {
      if (e.kind == ExtentKind::zeros) {
        pending_.put_zeros(e.lba, e.blocks, r.serial);
        continue;
      }
      for (std::uint32_t i = 0; i < e.blocks; ++i)
        pending_.put_data(e.lba + i, r.payload_slots[at++], r.serial);
    }
  }
  if (log.committed_end() > log.first()) acked_serial_ = log.at(log.committed_end() - 1).serial;
}

BlockIndex::Found ClientIo::newest(Lba lba) const {
  auto found = pending_.find(lba);
  return found.kind != BlockIndex::Kind::absent ? found : v_.committed.find(lba);
}

void ClientIo::complete(const ClientRequest& request, int error) {
  v_.out.completions.push_back({request.id, error});
}

void ClientIo::submit(const ClientRequest& r) {
  if (term_.lost()) return complete(r, EIO);
  if (r.offset + r.length > v_.sb.volume_blocks * block_size) return complete(r, EINVAL);
  if (r.op == ClientOp::flush) return submit_flush(r);
  if (r.length == 0) return complete(r, 0);
  if (r.op == ClientOp::read) return submit_read(r);
  if (v_.failed) return complete(r, EIO);
  stalled_writes_.emplace_back().request = r;
  retry_stalled();
}

void ClientIo::retry_stalled() {
  while (!stalled_writes_.empty() && try_write(stalled_writes_.front())) stalled_writes_.pop_front();
  while (!stalled_reads_.empty() && try_read(stalled_reads_.front())) stalled_reads_.pop_front();
}

// ---- flushes and acknowledgements

void ClientIo::submit_flush(const ClientRequest& r) {
  if (v_.failed) return complete(r, EIO);
  std::uint64_t target = open_.empty() ? open_serial_ - 1 : open_serial_;
  if (!open_.empty()) want_seal_ = true;
  wait_durable(target, r);
}

void ClientIo::wait_durable(std::uint64_t serial, const ClientRequest& r) {
  if (serial <= acked_serial_) return complete(r, 0);
  TL_CHECK(waiters_.empty() || waiters_.back().serial <= serial);
  waiters_.push_back({serial, r.id, v_.now});
}

std::uint64_t ClientIo::serial_without_data() {
  return open_.empty() ? open_serial_++ : open_serial_ - 1;
}

void ClientIo::commit(RecordNo end) {
  TL_CHECK(end <= v_.log.durable_end());
  v_.commit_upto(end, [&](const LogRecord& r) {
    for (const Extent& e : r.extents) {
      if (e.kind == ExtentKind::zeros) {
        pending_.erase_zeros_if(e.lba, e.blocks, r.serial);
        continue;
      }
      for (std::uint32_t i = 0; i < e.blocks; ++i) pending_.erase_data_if(e.lba + i, r.serial);
    }
  });
}

void ClientIo::acknowledge(RecordNo end) {
  TL_CHECK(end <= v_.log.durable_end() && !term_.suspended());
  if (end > v_.log.first())
    acked_serial_ = std::max(acked_serial_, v_.log.at(end - 1).serial);
  else if (end == v_.log.end())
    acked_serial_ = std::max(acked_serial_, open_serial_ - 1);  // the log is empty: everything is home
}

void ClientIo::answer_flushes() {
  while (!waiters_.empty() && waiters_.front().serial <= acked_serial_) {
    v_.out.completions.push_back({waiters_.front().id, 0});
    if (pace_.tells(waiters_.front().since))
      pace_.answered(Pace::Kind::flush, v_.now - waiters_.front().since);
    waiters_.pop_front();
  }
}

// After fail_device(), all writes and flushes get EIO. Reads in flight end with their own result.
void ClientIo::fail_everything() {
  for (const Waiter& w : waiters_) v_.out.completions.push_back({w.id, EIO});
  waiters_.clear();
  for (Write& w : stalled_writes_) {
    drop_fills(w);
    complete(w.request, EIO);
  }
  stalled_writes_.clear();
  retry_stalled();
}

// A repair without a waiting request belongs to the resync source, or its requester is gone.
bool ClientIo::on_repaired(const Repair::Finished& finished) {
  if (auto read = repairing_reads_.take(finished.ticket)) {
    after_repair(*read, finished.ok);
    return true;
  }
  auto write = repairing_writes_.take(finished.ticket);
  if (write) after_repair(std::move(*write), finished.ok);
  return write.has_value();
}

// ---- queries

Pace::Waiting ClientIo::waiting() const {
  Pace::Waiting waiting;
  waiting.asked = !waiters_.empty() || !stalled_writes_.empty() || !reads_.empty() || !stalled_reads_.empty();
  auto note = [&](Pace::Kind kind, Instant since) {
    auto& oldest = waiting.since[static_cast<std::size_t>(kind)];
    oldest = std::min(oldest.value_or(since), since);
  };
  if (!waiters_.empty() && pace_.tells(waiters_.front().since))
    note(Pace::Kind::flush, waiters_.front().since);
  for (const auto& [op, read] : reads_)
    if (!read.remote && !read.request.here) note(Pace::Kind::read, read.request.since);
  for (const ReadRequest& r : stalled_reads_) note(Pace::Kind::read, r.since);
  return waiting;
}

bool ClientIo::nothing_under_way() const {
  return reads_.empty() && filling_.empty() && stalled_writes_.empty() && stalled_reads_.empty() &&
         repairing_reads_.empty() && repairing_writes_.empty();
}

bool ClientIo::no_room() const {
  return !stalled_writes_.empty() ||
         (want_seal_ && !open_.empty() && (v_.far.writers_wait() || !v_.log.place(record_blocks_max)));
}

std::size_t ClientIo::waiting_requests() const {
  return waiters_.size() + stalled_writes_.size() + stalled_reads_.size() + repairing_reads_.size() +
         repairing_writes_.size();
}

std::optional<Instant> ClientIo::next_tick() const {
  if (open_.empty() || v_.journal_in_flight >= v_.config.journal_writes_in_flight) return std::nullopt;
  return open_.opened_at + v_.config.seal_after;
}

}  // namespace twinloft::repl::core
