// Disks, links and arbiter: performs a core's effects, later, and not always.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "node.h"
#include "twinloft/spool-repl/format/wire.h"

namespace twinloft::repl::sim {

namespace {

// A copy of the blocks' present content.
std::shared_ptr<std::vector<Page>> copy_of(const std::vector<core::IoPiece>& pieces) {
  auto out = std::make_shared<std::vector<Page>>();
  out->reserve(core::bytes_of(pieces) / block_size);
  for (const auto& p : pieces)
    for (std::uint32_t at = 0; at < p.bytes; at += block_size) out->push_back(Page::of(p.data + at));
  return out;
}

RecordMessage record_of(const core::SendRecord& r) {
  RecordMessage m{r.epoch, {}, {}};
  m.meta.reserve(r.meta_bytes);
  m.payload.reserve(core::bytes_of(r.pieces) - r.meta_bytes);
  for (const auto& p : r.pieces) {
    std::size_t of_meta = std::min<std::size_t>(p.bytes, r.meta_bytes - m.meta.size());
    m.meta.insert(m.meta.end(), p.data, p.data + of_meta);
    m.payload.insert(m.payload.end(), p.data + of_meta, p.data + p.bytes);
  }
  return m;
}

bool is_bulky(const PeerMessage& m) {
  return std::holds_alternative<RecordMessage>(m) || std::holds_alternative<SyncData>(m);
}

}  // namespace

void Cluster::feed(Node& n, core::Event event) {
  if (!n.alive()) return;
  bool request = std::holds_alternative<core::ClientRequest>(event);
  n.core->tick({now_us_ * 1000});
  n.core->step(std::move(event));
  n.core->check_invariants();
  if (!request || n.draining || random_.below(2) == 0) return drain(n);
  // As in the daemon, a turn may have several requests, and another event, before the output.
  if (std::exchange(n.turn_open, true)) return coverage_.hit("turn: of several requests");
  schedule(below(60), [this, &n, life = n.life] {
    if (n.life == life && n.alive() && n.turn_open) drain(n);
  });
}

void Cluster::drain(Node& n) {
  if (n.draining) return;
  n.draining = true;
  n.turn_open = false;
  for (;;) {
    core::Output out;
    n.core->get_output(out);
    if (out.empty()) break;
    perform(n, out);
  }
  n.draining = false;
  arm_tick(n);
}

void Cluster::arm_tick(Node& n) {
  auto next = n.core->next_tick();
  if (!next) return;
  std::int64_t at = std::max(now_us_, next->ns / 1000 + 1);
  if (n.tick_at >= now_us_ && n.tick_at <= at) return;
  n.tick_at = at;
  schedule(at - now_us_, [this, &n, life = n.life] {
    if (n.life != life || !n.alive()) return;
    n.tick_at = -1;
    n.core->tick({now_us_ * 1000});
    drain(n);
  });
}

void Cluster::complete_disk(Node& n, std::uint64_t no) {
  auto it = n.pending.find(no);
  if (it == n.pending.end()) return;
  Pending p = std::move(it->second);
  n.pending.erase(it);
  if (int error = error_of(n, p); error != 0) return fail_operation(n, p, error);
  p.apply();
  feed(n, p.done());
}

// The effects of one core: disk operations end later, and messages arrive later.
class Cluster::Performer {
 public:
  Performer(Cluster& cluster, Node& node) : c_(cluster), n_(node) {}

  void perform(core::JournalWrite& w) {
    auto blocks = copy_of(w.pieces);
    begin(latency(DiskKind::journal, blocks->size() * block_size),
          {[&n = n_, blocks, at = w.offset] { n.journal.write_durable(at, *blocks); },
           [&c = c_, &n = n_, blocks, at = w.offset] { n.journal.tear(at, *blocks, c.random_); },
           done(w.token)});
  }
  void perform(core::JournalRead& r) {
    c_.coverage_.hit("catch-up from the journal");
    auto bytes = std::make_shared<std::vector<std::byte>>(r.bytes);
    begin(latency(DiskKind::journal_read, r.bytes),
          {[&n = n_, bytes, at = r.offset] { (void)n.journal.read(at, *bytes); }, [] {},
           [t = r.token, bytes]() -> core::Event { return core::JournalReadDone{t, 0, std::move(*bytes)}; }});
  }
  void perform(core::HomeRead& r) {
    auto error = std::make_shared<int>(0);
    begin(latency(DiskKind::read),
          {[&n = n_, error, pieces = r.pieces, at = r.at.bytes()] {
             std::uint64_t offset = at;
             if (!n.alive()) return;  // the process's memory is gone
             for (const auto& p : pieces) {
               if (!n.data.read(offset, {p.data, p.bytes})) *error = EIO;
               offset += p.bytes;
             }
           },
           [] {}, [error, t = r.token]() -> core::Event { return core::DiskDone{t, *error}; }});
  }
  void perform(core::HomeWrite& w) {
    auto blocks = copy_of(w.pieces);
    begin(latency(DiskKind::home, blocks->size() * block_size),
          {[&n = n_, blocks, at = w.at.bytes()] { n.data.write_blocks(at, *blocks); },
           [&c = c_, &n = n_, blocks, at = w.at.bytes()] { n.data.tear(at, *blocks, c.random_); },
           done(w.token)});
  }
  void perform(core::HomeZero& z) {
    begin(latency(DiskKind::home),
          {[&n = n_, z] { (void)n.data.write_zeros(z.at.bytes(), z.blocks * block_size); },
           [&c = c_, &n = n_, z] { n.data.tear(z.at.bytes(), std::vector<Page>(z.blocks), c.random_); },
           done(z.token)});
  }
  void perform(core::HomeSync& s) {
    begin(latency(DiskKind::sync),
          {[&n = n_, upto = n_.data.last_write()] { n.data.sync_upto(upto); }, [] {}, done(s.token)});
  }
  void perform(core::BitmapWrite& w) {
    c_.coverage_.hit("bitmap: written");
    auto pages = std::make_shared<std::vector<Page>>();
    for (std::size_t i = 0; i < w.bytes.size(); i += block_size)
      pages->push_back(Page::of(w.bytes.data() + i));
    begin(
        latency(DiskKind::superblock),
        {[&n = n_, pages, at = w.offset] { n.journal.write_durable(at, *pages); },
         [&c = c_, &n = n_, pages, at = w.offset] { n.journal.tear(at, *pages, c.random_); }, done(w.token)});
  }
  void perform(core::SuperblockWrite& w) {
    std::byte encoded[block_size];
    encode_superblock(w.superblock, encoded);
    auto block = std::make_shared<std::vector<Page>>(1, Page::of(encoded));
    auto copy = [&n = n_, block](int i) { n.journal.write_durable(superblock_offset[i], *block); };
    begin(latency(DiskKind::superblock), {[copy] { copy(0), copy(1); },
                                          [&c = c_, &n = n_, block, copy] {
                                            // The second copy is written only once the first is durable.
                                            if (c.random_.below(2) == 0)
                                              return n.journal.tear(superblock_offset[0], *block, c.random_);
                                            copy(0);
                                            n.journal.tear(superblock_offset[1], *block, c.random_);
                                          },
                                          done(w.token)});
  }
  void perform(core::ArchiveTail& a) {
    begin(latency(DiskKind::archive), {[&c = c_, &n = n_, parts = a.parts] {
                                         c.coverage_.hit("rejoin: tail archived");
                                         for (const auto& [at, bytes] : parts) {
                                           std::vector<std::byte> part(bytes);
                                           (void)n.journal.read(at, part);
                                           c.note_archived(n, part);
                                           n.archive.insert(n.archive.end(), part.begin(), part.end());
                                         }
                                       },
                                       [] {}, done(a.token), DiskKind::archive, a.last});
  }
  void perform(core::SpillWrite& w) {
    auto bytes = std::make_shared<std::vector<std::byte>>(std::move(w.bytes));
    auto error = std::make_shared<int>(0);
    begin(latency(DiskKind::spill, bytes->size()),
          {[&n = n_, bytes, error, number = w.number] {
             if (n.spill_full)
               *error = ENOSPC;
             else if (number >= n.spill_from)
               n.spill[number] = *bytes;
           },
           [] {}, [error, t = w.token]() -> core::Event { return core::DiskDone{t, *error}; }});
  }
  void perform(core::SpillRead& r) {
    auto bytes = std::make_shared<std::vector<std::byte>>();
    c_.coverage_.hit("spill: read for a replica");
    begin(latency(DiskKind::spill), {[&n = n_, bytes, number = r.number] {
                                       if (n.spill.contains(number)) *bytes = n.spill[number];
                                     },
                                     [] {},
                                     [bytes, t = r.token]() -> core::Event {
                                       int error = bytes->empty() ? ENOENT : 0;
                                       return core::JournalReadDone{t, error, std::move(*bytes)};
                                     }});
  }
  void perform(core::SpillDrop& d) {
    if (!n_.spill.empty()) c_.coverage_.hit("spill: chunks dropped");
    n_.spill_from = d.before;
    n_.spill.erase(n_.spill.begin(), n_.spill.lower_bound(d.before));
  }
  void perform(core::ArbiterRequest& r) { c_.perform_arbiter(n_, r); }
  void perform(core::Send& s) { c_.send(n_, s.peer, std::move(s.message)); }
  void perform(core::SendRecord& r) { c_.send(n_, r.peer, record_of(r)); }
  void all_sent() {}
  void perform(core::ClosePeer& close) {
    c_.disturbances_++;
    c_.note(fmt::format("replica {} closes {}: {}", n_.id, close.peer, close.reason));
    c_.check_reason(n_, close.reason);
    Link& l = c_.link_of(n_.index, close.peer - 1);
    c_.schedule(0,
                [&c = c_, &l, side = n_.index == l.a ? 0u : 1u, no = l.connection] { c.close(l, side, no); });
  }
  void perform(core::Notice& notice) { c_.on_notice(n_, notice); }
  void perform(core::Complete& complete) { c_.on_complete(n_, complete.id, complete.error); }
  void perform(core::RoleChange& change) { c_.on_role(n_, change); }
  void perform(core::CommandDone& answer) {
    c_.note(fmt::format("replica {} answers: {}", n_.id, answer.text));
    n_.command_open = false;
    n_.refused = answer.ok ? "" : answer.text;
    c_.on_command(n_, answer);
  }

 private:
  struct Latency {
    std::int64_t us;
    DiskKind kind;
  };
  Latency latency(DiskKind kind, std::uint64_t bytes = 0) {
    std::int64_t us = 20 + c_.below(c_.random_.below(10) == 0 ? 5000 : 300);
    std::int64_t slow = c_.slow_us_[static_cast<std::size_t>(kind)];
    if (slow > 0) us += c_.below(static_cast<std::uint64_t>(slow));
    if (kind == DiskKind::archive) us += c_.below(5000);  // the time to create a file
    return {c_.heavy_ ? us + static_cast<std::int64_t>(bytes / 1000) : us, kind};  // 1 GB/s
  }
  void begin(Latency takes, Pending p) {
    std::uint64_t no = n_.next_pending++;
    p.kind = takes.kind;
    n_.pending.emplace(no, std::move(p));
    c_.schedule(takes.us, [&c = c_, &n = n_, no, life = n_.life] {
      if (n.life == life) c.complete_disk(n, no);
    });
  }
  static std::function<core::Event()> done(core::Token t) {
    return [t]() -> core::Event { return core::DiskDone{t, 0}; };
  }

  Cluster& c_;
  Node& n_;
};

void Cluster::perform(Node& n, core::Output& out) {
  Performer performer(*this, n);
  core::perform_in_order(out, performer);
}

// Replicas of one release send each other no message that is refused for its time or its content.
void Cluster::check_reason(const Node& n, const std::string& reason) {
  for (const char* fault :
       {"relay at the wrong time", "marks of records", "unrequested", "which was not sent", "unexpected",
        "record in place of its mark", "about a relay", "had not begun", "beyond the volume",
        "than the send window allows"})
    if (reason.find(fault) != std::string::npos)
      violated(fmt::format("replica {} gets a message that does not fit: {}", n.id, reason));
}

void Cluster::on_notice(Node& n, const core::Notice& notice) {
  note(fmt::format("replica {}: {}", n.id, notice.text));
  if (notice.text.find("cut off") != std::string::npos)
    coverage_.hit("rejoin: divergent tail cut off"), n.was_cut = true;
  note_rejoin(n, notice);
  if (notice.text.find("cannot be read among blocks") != std::string::npos) restore(n, 0, volume_blocks_);
  if (notice.text.find("continuing without") != std::string::npos)
    coverage_.hit("membership: a member removed");
  if (std::size_t at = notice.text.find(" is in sync"); at != std::string::npos) {
    coverage_.hit("membership: a member added");
    note_member(n, *nodes_[static_cast<std::size_t>(std::stoi(notice.text.substr(8, at - 8))) - 1]);
  }
  if (notice.kind == core::NoticeKind::split_brain) coverage_.hit("split brain: reported");
  if (notice.kind == core::NoticeKind::failed && notice.text.starts_with("suspended for")) on_bound(n);
  if (notice.text.find("writers wait for it") != std::string::npos) coverage_.hit("buffer: writers wait");
  if (notice.kind == core::NoticeKind::buffer_eased) coverage_.hit("buffer: writers wait no more");
  if (notice.text.find("and its buffer of") != std::string::npos &&
      notice.text.find("a resync will bring") != std::string::npos)
    coverage_.hit(notice.text.find("without progress") != std::string::npos ? "buffer: full without progress"
                                                                            : "buffer: full, given up");
  if (notice.text.starts_with("the spill cannot be written")) coverage_.hit("spill: cannot be written");
  if (notice.text.starts_with("the spill ") && notice.text.find("a resync brings far") != std::string::npos)
    coverage_.hit("spill: a chunk is missing or damaged");
  if (notice.text.find("are not kept here any more") != std::string::npos)
    coverage_.hit("buffer: given up on a secondary");
  if (notice.text.find("The primary last reported") != std::string::npos)
    coverage_.hit("buffer: a forced promotion tells the last report");
  if (notice.kind == core::NoticeKind::relay &&
      notice.text.find("did not bring what it had") != std::string::npos)
    coverage_.hit("relay: it brings nothing");
  if (notice.text.find("was not durable there within") != std::string::npos)
    coverage_.hit("membership: a slow member closed");
  if (notice.text.find("more than half of the journal") != std::string::npos)
    coverage_.hit("membership: a replica far behind closed");
}

// The member had everything when the arbiter was asked. If its disk was lost since, a member's disk was lost.
void Cluster::note_member(const Node& primary, Node& member) {
  auto asked = asked_at_.find(primary.core->status().epoch.id);
  if (asked == asked_at_.end() || member.replaced_at < asked->second) member.replaced = false;
}

// How a secondary rejoins.
void Cluster::note_rejoin(Node& n, const core::Notice& notice) {
  auto says = [&](const char* what) { return notice.text.find(what) != std::string::npos; };
  if (says("full resync from replica")) coverage_.hit("resync: full");
  if (says("bitmap resync from replica")) coverage_.hit("resync: bitmap");
  if (says("resync from replica")) {
    if (n.filled_by != 0)
      coverage_.hit(n.filled_by == notice.peer ? "resync: restarted"
                                               : "resync: another source in the middle of it");
    n.filled_by = notice.peer;
  }
  if (says("resync is finished: this replica")) coverage_.hit("resync: finished"), n.filled_by = 0;
  if (notice.kind != core::NoticeKind::connected || !notice.text.starts_with("primary")) return;
  auto s = n.core->status();
  if (s.inconsistent && n.filled_by == 0) coverage_.hit("rejoin: records for a damaged journal");
  if (s.refilling) coverage_.hit("rejoin: records for a replica that was created again");
}

// ---- arbiter

void Cluster::perform_arbiter(Node& n, const core::ArbiterRequest& r) {
  using Outcome = core::ArbiterAnswer::Outcome;
  auto answer = [this, &n, life = n.life, token = r.token](Outcome outcome) {
    core::ArbiterAnswer a{token, outcome, arbiter_.value, outcome == Outcome::unknown ? "no answer" : ""};
    if (outcome == Outcome::unknown) a.current.reset();
    schedule(50 + below(500), [this, &n, life, a] {
      if (n.life == life) feed(n, a);
    });
  };
  if (!r.read) asked_at_.try_emplace(r.desired.epoch.id, now_us_);
  // The request is lost, or the answer is lost, or the request is applied after its time limit, or all is
  // well.
  std::uint64_t fate = random_.below(12);
  if (!arbiter_.reachable || n.no_arbiter || fate == 0) {
    coverage_.hit("arbiter: no answer");
    return answer(Outcome::unknown);
  }
  auto apply = [this, r] {
    if (r.read) return Outcome::granted;
    if (arbiter_.value != r.expected) return Outcome::refused;
    if (arbiter_.value) arbiter_.before.push_back(*arbiter_.value);
    arbiter_.value = r.desired;
    note(fmt::format("arbiter: epoch {} of replica {}, set {:b}", r.desired.epoch.counter, r.desired.writer,
                     r.desired.in_sync));
    return Outcome::granted;
  };
  if (fate == 1 || fate == 2) {
    coverage_.hit(fate == 1 ? "arbiter: answer lost" : "arbiter: applied late");
    if (fate == 1)
      apply();
    else
      arbiter_.late++, schedule(below(20000), [this, apply] { arbiter_.late--, apply(); });
    return answer(Outcome::unknown);
  }
  schedule(20 + below(2000), [answer, apply] { answer(apply()); });
}

// ---- links

Cluster::Link& Cluster::link_of(std::size_t a, std::size_t b) {
  for (Link& l : links_)
    if ((l.a == a && l.b == b) || (l.a == b && l.b == a)) return l;
  violated(fmt::format("no link between {} and {}", a + 1, b + 1));
}

// Like net/: a new connection of a peer ends the peer's old connection first.
void Cluster::connect(Link& l) {
  if (!nodes_[l.a]->alive() || !nodes_[l.b]->alive() || l.cut || l.up) return;
  if (nodes_[l.a]->without.contains(nodes_[l.b]->id) || nodes_[l.b]->without.contains(nodes_[l.a]->id))
    return;  // net/ refuses a replica that is not configured
  if (refuse_unfit(l)) return;
  l.up = true;
  l.up_since = now_us_;
  l.silent[0] = l.silent[1] = false;
  l.connection++;
  l.deliver_at[0] = l.deliver_at[1] = now_us_;
  note(fmt::format("link {}-{} up", l.a + 1, l.b + 1));
  for (std::size_t side : {0, 1}) {
    if (l.told[side]) coverage_.hit("fault: a second connection while the first one lives");
    tell_down(l, side);
    l.told[side] = true;
    feed(*nodes_[side == 0 ? l.a : l.b], core::PeerUp{nodes_[side == 0 ? l.b : l.a]->id});
  }
}

void Cluster::tell_down(Link& l, std::size_t side) {
  if (!std::exchange(l.told[side], false)) return;
  feed(*nodes_[side == 0 ? l.a : l.b], core::PeerDown{nodes_[side == 0 ? l.b : l.a]->id});
}

void Cluster::disconnect(Link& l) {
  if (!l.up && !l.told[0] && !l.told[1]) return;
  disturbances_++;
  l.up = false;
  l.connection++;
  note(fmt::format("link {}-{} down", l.a + 1, l.b + 1));
  tell_down(l, 0);
  tell_down(l, 1);
  schedule(100 + below(5000), [this, &l] { connect(l); });
}

// Messages sent before are in flight, and most of them arrive. The side that closed receives nothing more.
void Cluster::close(Link& l, std::size_t side, std::uint64_t connection) {
  if (l.connection != connection) return;
  if (!l.up || random_.below(4) == 0) return disconnect(l);
  l.silent[1 - side] = true;
  tell_down(l, side);
  schedule(std::max<std::int64_t>(0, l.deliver_at[side] - now_us_) + 1, [this, &l, connection] {
    if (l.connection == connection) disconnect(l);
  });
}

// In order, like TCP, encoded and decoded as on the wire. Only some of the large messages are encoded,
// because this takes longest. The choice does not depend on the seed's random numbers.
void Cluster::send(Node& from, ReplicaId to_id, PeerMessage message) {
  Node& to = *nodes_[to_id - 1];
  Link& l = link_of(from.index, to.index);
  if (!l.up) return;
  note_repair(to, message);
  note_relay(from, message);
  if (auto* ack = std::get_if<SyncAck>(&message); ack && ack->declined)
    coverage_.hit("resync: data declined");
  if (!is_bulky(message) || l.sent++ % 8 == 0) {
    std::vector<std::byte> bytes;
    encode_peer_message(message, bytes);
    auto decoded = decode_peer_message(wire_type(message), bytes);
    if (!decoded) violated("a message does not decode: " + decoded.error().message);
    message = std::move(*decoded);
  }
  digest(wire_type(message) * 64u + to_id);
  std::size_t side = from.index == l.a ? 0 : 1;
  if (l.silent[side]) return;
  if (auto* record = std::get_if<RecordMessage>(&message); record && !passes_on(from, *record)) return;
  std::int64_t& last = l.deliver_at[side];
  last = std::max(last, now_us_ + 10 + below(random_.below(20) == 0 ? 8000 : 200) +
                            (l.slow_us > 0 ? below(static_cast<std::uint64_t>(l.slow_us)) : 0));
  schedule(last - now_us_, [this, &l, &to, m = std::make_shared<PeerMessage>(std::move(message)),
                            from_id = from.id, no = l.connection] {
    if (!l.up || l.connection != no) return;
    note_received(to, *m);
    feed(to, core::PeerInput{from_id, std::move(*m)});
  });
}

}  // namespace twinloft::repl::sim
