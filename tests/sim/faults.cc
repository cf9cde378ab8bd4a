// Faults that a machine survives: failed disk operations, garbage from reads, no room for archives, and slow
// links. Also silent links, whose two ends notice at different times.
//
// A failed write is repaired by a restart of the machine, by the operator. Until then, the device must answer
// every write and flush with an error.
#include <algorithm>
#include <cerrno>

#include "node.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::sim {

void Cluster::inject_partial_fault() {
  std::uint64_t kind = random_.below(14);
  if (kind >= 10) {
    // A replica that is being filled, or has just been filled, makes a power cut of its source more
    // interesting.
    bool filling = std::any_of(nodes_.begin(), nodes_.end(),
                               [](auto& n) { return n->alive() && n->core->status().inconsistent; });
    bool at_primary = primary() && (filling ? random_.below(4) != 0 : random_.below(2) == 0);
    coverage_.hit("fault: power cuts in quick succession");
    return stutter(at_primary ? *primary() : *nodes_[random_.below(nodes_.size())],
                   1 + static_cast<unsigned>(random_.below(3)));
  }
  if (kind < 6)
    return break_disk(
        *nodes_[random_.below(2) == 0 && primary() ? client_at_ : random_.below(nodes_.size())]);
  Link& l = primary() && random_.below(2) == 0
                ? link_of(client_at_, (client_at_ + 1 + random_.below(nodes_.size() - 1)) % nodes_.size())
                : links_[random_.below(links_.size())];
  if (kind < 9) return silence(l);
  coverage_.hit("fault: a slow link");
  l.slow_us = 1000 + below(20000);
  schedule(20'000 + below(60'000), [&l] { l.slow_us = 0; });
}

// The power comes back and fails again, before or after the replica has joined the others.
void Cluster::stutter(Node& n, unsigned again) {
  if (!n.alive()) return;
  crash(n, true);
  schedule(100 + below(2000), [this, &n, again, life = n.life] {
    if (n.life != life || n.alive()) return;
    start(n);
    if (again == 0) return;
    schedule(200 + below(random_.below(2) == 0 ? 3000 : 15'000), [this, &n, again, life2 = n.life] {
      if (n.life == life2 && client_runs_) stutter(n, again - 1);
    });
  });
}

// ---- links

// Nothing arrives any more, in one direction or in both. The side that notices first closes its end. The
// other side notices by its own timeout, or by the next connection, which the replica with the lower id
// makes.
void Cluster::silence(Link& l) {
  if (!l.up) return;
  disturbances_++;
  coverage_.hit("fault: a link falls silent");
  std::uint64_t direction = random_.below(4);
  l.silent[0] = direction != 1;
  l.silent[1] = direction != 0;
  note(fmt::format("link {}-{} falls silent{}", l.a + 1, l.b + 1,
                   direction == 0   ? " forth"
                   : direction == 1 ? " back"
                                    : ""));
  std::int64_t timeout = random_.below(4) == 0 ? 250'000 : 1000 + below(20'000);
  std::size_t first = random_.below(2);
  schedule(timeout, [this, &l, first, no = l.connection] {
    if (!l.up || l.connection != no) return;
    lose(l, first);
    if (first == 0) return schedule(100 + below(5000), [this, &l] { connect(l); });
    schedule(100 + below(10'000), [this, &l, ended = l.connection] {
      if (l.up || l.connection != ended) return;
      tell_down(l, 0);
      schedule(100 + below(5000), [this, &l] { connect(l); });
    });
  });
}

void Cluster::lose(Link& l, std::size_t side) {
  l.up = false;
  l.connection++;
  note(fmt::format("link {}-{}: {} closes it", l.a + 1, l.b + 1, (side == 0 ? l.a : l.b) + 1));
  tell_down(l, side);
}

// ---- disks

void Cluster::break_disk(Node& n) {
  if (!n.alive() || n.fault || n.failed_from) return;
  static constexpr DiskKind kinds[] = {DiskKind::journal,    DiskKind::home, DiskKind::sync,
                                       DiskKind::superblock, DiskKind::read, DiskKind::journal_read,
                                       DiskKind::archive};
  DiskKind kind = kinds[random_.below(std::size(kinds))];
  DiskFault fault{kind, EIO, random_.below(2) == 0 ? 1u : UINT_MAX};
  if (kind == DiskKind::journal_read && random_.below(2) == 0) fault.error = 0;
  if ((kind == DiskKind::journal || kind == DiskKind::home) && now_us_ % 2 == 0) fault.error = ENOSPC;
  if (kind == DiskKind::archive) fault.error = ENOSPC, fault.left = UINT_MAX;
  if (kind == DiskKind::read) fault.left = 1 + static_cast<unsigned>(random_.below(3));
  n.fault = fault;
  // The disk has room again, or the cable is fixed. A disk that failed a write by then needs a repair.
  schedule(20'000 + below(80'000), [&n, life = n.life] {
    if (n.life == life) n.fault.reset();
  });
}

// For an operation that is about to end. Garbage is no error: it replaces what was read.
int Cluster::error_of(Node& n, const Pending& p) {
  if (!n.fault || n.fault->kind != p.kind) return 0;
  int error = n.fault->error;
  if (--n.fault->left == 0) n.fault.reset();
  return error != 0 ? error : -1;
}

namespace {
void put_error(core::Event& event, int error) {
  if (auto* done = std::get_if<core::DiskDone>(&event))
    done->error = error;
  else
    std::get<core::JournalReadDone>(event).error = error;
}
}  // namespace

void Cluster::fail_operation(Node& n, Pending& p, int error) {
  disturbances_++;
  const char* role = n.is_primary() ? "primary" : "secondary";
  static constexpr const char* names[disk_kinds] = {
      "a journal write",    "a read of the data area", "a home write", "a home sync",
      "a superblock write", "a journal read",          "an archive",   "an operation of the spill"};
  const char* name = names[static_cast<std::size_t>(p.kind)];
  note(fmt::format("replica {}: {} {}", n.id, name,
                   error < 0         ? "returns garbage"
                   : error == ENOSPC ? "fails: no room"
                                     : "fails"));
  if (error == ENOSPC && p.kind != DiskKind::archive) coverage_.hit("fault: no room on a disk");
  if (p.kind == DiskKind::journal_read && error < 0) {
    coverage_.hit("fault: a journal read returns garbage");
    p.apply();
    core::Event event = p.done();
    auto& bytes = std::get<core::JournalReadDone>(event).bytes;
    bytes[random_.below(bytes.size())] ^= static_cast<std::byte>(1 + random_.below(255));
    return feed(n, std::move(event));
  }
  bool writes = p.kind == DiskKind::journal || p.kind == DiskKind::home || p.kind == DiskKind::sync ||
                p.kind == DiskKind::superblock;
  coverage_.hit(writes ? fmt::format("fault: {} of a {} fails", name, role)
                       : fmt::format("fault: {} fails", name));
  if (p.kind == DiskKind::sync)
    n.data.fail_sync(random_);
  else if (writes)
    p.tear();
  if (writes && !n.failed_from) fail_from_now(n);
  core::Event event = p.done();
  put_error(event, error);
  feed(n, std::move(event));
  if (!n.alive()) return;
  if (writes && !n.core->status().failed)
    violated(fmt::format("replica {} does not report that {} failed", n.id, name));
  if (!writes && !n.failed_from && n.core->status().failed)
    violated(fmt::format("replica {} fails for {}", n.id, name));
  if (p.kind == DiskKind::archive) check_kept(n, p.keeps);
}

void Cluster::fail_from_now(Node& n) {
  n.failed_from = next_request_;
  schedule(1000 + below(40'000), [this, &n, power = random_.below(2) == 0, life = n.life] {
    if (n.life == life) repair(n, power);
  });
}

// suspend_timeout makes requests fail instead of waiting. Completed requests that are not acknowledged by now
// fail as after a disk failure.
void Cluster::on_bound(Node& n) {
  if (suspend_timeout_ == Duration(0))
    violated(fmt::format("replica {} fails suspended requests, and suspend_timeout is not set", n.id));
  coverage_.hit("suspension: suspend_timeout reached");
  if (!n.failed_from) fail_from_now(n);
}

void Cluster::repair(Node& n, bool power) {
  coverage_.hit("fault: a failed disk is repaired");
  crash(n, power);
  revive_later(n);
}

void Cluster::end_faults() {
  for (Link& l : links_) {
    l.slow_us = 0;
    if (l.silent[0] || l.silent[1] || l.told[0] != l.told[1]) disconnect(l);
  }
  for (auto& n : nodes_) {
    n->fault.reset();
    n->no_arbiter = false;
    if (n->alive() && n->failed_from) crash(*n, false);
  }
}

// ---- what is checked

// An error needs a reason. After a failed write, only reads succeed.
void Cluster::check_device(Node& n, const Request& r, std::uint64_t id, int error) {
  if (r.op == core::ClientOp::read) {
    if (error != 0) check_read_error(n, r.lba(), r.blocks(), r.errors, fmt::format("read {}", id));
    return;
  }
  if (error != 0 && r.has_parts() && !n.failed_from)
    return check_read_error(n, r.lba(), r.blocks(), r.errors, fmt::format("request {}", id));
  if (error != 0 && !external_ && !forced_ && !n.failed_from)
    violated(fmt::format("request {} fails with errno {}, and no disk has failed", id, error));
  if (error == 0 && n.failed_from && id >= *n.failed_from)
    violated(fmt::format("request {} succeeds after a write of replica {} failed", id, n.id));
}

// Without room for the archive, the tail is kept.
void Cluster::check_kept(const Node& n, Lsn last) {
  SimFile journal = n.journal, data = n.data;
  auto recovered = journal::recover(journal, data);
  if (!recovered) violated(fmt::format("replica {} would not recover: {}", n.id, recovered.error().message));
  const auto& records = recovered->log.records;
  if (records.empty() || records.back().body.mark().lsn < last)
    violated(
        fmt::format("replica {} has dropped the records up to {} that could not be archived", n.id, last.v));
}

// ---- marks

void Cluster::note_crash(const Node& n, bool power) {
  auto status = n.core->status();
  if (status.inconsistent) coverage_.hit("fault: a replica dies while it is filled");
  for (const auto& p : status.peers)
    if (p.sync_target) coverage_.hit("fault: the source of a resync dies");
  for (const auto& [no, p] : n.pending) {
    if (!power) continue;
    if (p.kind == DiskKind::journal) coverage_.hit("fault: power cut during a journal write");
    if (p.kind == DiskKind::home || p.kind == DiskKind::sync)
      coverage_.hit("fault: power cut during a checkpoint");
    if (p.kind == DiskKind::superblock) coverage_.hit("fault: power cut during a superblock write");
    if (p.kind == DiskKind::archive) coverage_.hit("fault: power cut during an archive");
  }
}

void Cluster::note_recovery(Node& n, const RecoveredLog& log) {
  if (is_inconsistent(log.superblock.disk)) coverage_.hit("recovery: of an Inconsistent replica");
  if (std::exchange(n.was_cut, false)) coverage_.hit("recovery: after a cut");
  if (log.records.empty()) return;
  std::uint64_t ring = log.superblock.ring_bytes;
  if (log.records.front().pos.v / ring != log.records.back().pos.v / ring)
    coverage_.hit("recovery: around the ring's end");
}

}  // namespace twinloft::repl::sim
