#include "cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/format/wire.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/journal/create.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::sim {

namespace {

constexpr std::uint64_t journal_bytes = (1u << 20) + bitmap_slots * block_size + journal_ring_bytes_min;
const Uuid volume_uuid = Uuid::parse("6f1c1c0e-8f5b-4c55-9d0a-3f0a8e0b1d10").value();

core::Config config_for(core::Role role, core::Protocol protocol, ReplicaId peer) {
  core::Config c;
  c.role = role;
  c.peers = {{peer, protocol}};
  c.send_window_bytes = 4u << 20;
  c.checkpoint_idle = std::chrono::milliseconds(50);
  return c;
}

std::vector<std::byte> copy_of(const std::vector<core::IoPiece>& pieces) {
  std::vector<std::byte> out;
  for (const auto& p : pieces) out.insert(out.end(), p.data, p.data + p.bytes);
  return out;
}

void fill_block(std::byte* block, std::uint64_t value) {
  for (std::size_t i = 0; i < block_size; i += 8) store_le(block + i, value);
}

}  // namespace

// A disk operation between its submission and its end. `apply` changes the disk, `tear` is what a power cut in the
// middle leaves.
struct Cluster::Pending {
  std::function<void()> apply;
  std::function<void()> tear;
  std::function<core::Event()> done;
};

struct Cluster::Node {
  Node(ReplicaId i, core::Role r, std::uint64_t blocks)
      : id(i), role(r), journal(fmt::format("journal{}", i), journal_bytes),
        data(fmt::format("data{}", i), (blocks + 1) * block_size) {}
  ReplicaId id;
  core::Role role;
  SimFile journal, data;
  std::unique_ptr<journal::AlignedBuffer> memory, scratch;
  std::unique_ptr<core::Arena> arena, reads;
  std::unique_ptr<core::Core> core;
  std::uint64_t life = 0;
  std::map<std::uint64_t, Pending> pending;
  std::uint64_t next_pending = 1;
  bool draining = false;
  std::int64_t tick_at = -1;
  bool alive() const { return core != nullptr; }
};

Cluster::Cluster(std::uint64_t seed, bool trace, Coverage& coverage)
    : random_(seed), trace_(trace), coverage_(coverage),
      protocol_(static_cast<core::Protocol>(random_.below(4) == 0 ? random_.below(2) : 2)),
      volume_blocks_(random_.below(3) == 0 ? 1500 : 64 + random_.below(200)), history_(volume_blocks_) {
  // Some clusters are under a load that keeps the journal's ring full, and some have a kind of operation that is slow.
  heavy_ = random_.below(6) == 0;
  if (heavy_) volume_blocks_ = 1500, history_ = History(volume_blocks_);
  for (std::int64_t& us : slow_us_)
    if (random_.below(5) == 0) us = static_cast<std::int64_t>(500 + random_.below(8000));
  primary_ = std::make_unique<Node>(1, core::Role::primary, volume_blocks_);
  secondary_ = std::make_unique<Node>(2, core::Role::secondary, volume_blocks_);
}
Cluster::~Cluster() = default;

// ---- time ----------------------------------------------------------------------------------------------------------

void Cluster::schedule(std::int64_t delay_us, std::function<void()> action) {
  events_.push({now_us_ + delay_us, next_event_++, std::move(action)});
}

void Cluster::run_until(std::function<bool()> done, std::int64_t limit_us, const char* what) {
  std::int64_t end = now_us_ + limit_us;
  while (!done()) {
    if (events_.empty() || events_.top().at > end) violated(fmt::format("never came to: {}", what));
    Event e = events_.top();
    events_.pop();
    now_us_ = e.at;
    e.action();
  }
}

void Cluster::note(const std::string& text) {
  if (trace_) fmt::print("{:>10} us  {}\n", now_us_, text);
}
void Cluster::violated(const std::string& text) { throw Violation{fmt::format("at {} us: {}", now_us_, text)}; }

// ---- nodes and disks -----------------------------------------------------------------------------------------------

void Cluster::create(Node& n) {
  auto made = journal::create_replica({volume_uuid, n.id, volume_blocks_, true}, n.journal, n.data, true);
  if (!made) violated("create: " + made.error().message);
}

void Cluster::start(Node& n) {
  auto recovered = journal::recover(n.journal, n.data);
  if (!recovered) violated(fmt::format("replica {} does not recover: {}", n.id, recovered.error().message));
  if (recovered->report.torn_frames > 0) coverage_.hit("recovery: torn tail with an intact record behind it");
  if (recovered->report.uncommitted > 0) coverage_.hit("recovery: uncommitted records kept");
  if (recovered->report.blocks_replayed > 0) coverage_.hit("recovery: replay");
  auto config = config_for(n.role, protocol_, n.id == 1 ? 2 : 1);
  std::size_t blocks = core::arena_blocks_min(config) + 200;
  n.memory = std::make_unique<journal::AlignedBuffer>(blocks * block_size);
  n.scratch = std::make_unique<journal::AlignedBuffer>(core::read_arena_blocks_min * block_size);
  n.arena = std::make_unique<core::Arena>(n.memory->span());
  n.reads = std::make_unique<core::Arena>(n.scratch->span());
  auto core = core::Core::create(config, std::move(recovered->log), *n.arena, *n.reads, random_);
  if (!core) violated(fmt::format("replica {} does not start: {}", n.id, core.error().message));
  n.core = std::move(*core);
  n.life++;
  n.tick_at = -1;
  note(fmt::format("replica {} starts, {} records, {} uncommitted", n.id, recovered->report.records,
                   recovered->report.uncommitted));
  n.core->tick({now_us_ * 1000});
  drain(n);
}

void Cluster::crash(Node& n, bool power) {
  if (!n.alive()) return;
  note(fmt::format("replica {} {}", n.id, power ? "loses power" : "is killed"));
  coverage_.hit(power ? "fault: power cut" : "fault: kill");
  if (link_up_) disconnect();
  n.core.reset();
  n.life++;
  // A killed process leaves its submitted operations to the kernel, which finishes them.
  for (auto& [no, p] : n.pending) (power ? p.tear : p.apply)();
  n.pending.clear();
  if (power) {
    n.journal.power_cut(random_);
    n.data.power_cut(random_);
  }
}

void Cluster::feed(Node& n, core::Event event) {
  if (!n.alive()) return;
  n.core->tick({now_us_ * 1000});
  n.core->step(std::move(event));
  drain(n);
}

void Cluster::drain(Node& n) {
  if (n.draining) return;
  n.draining = true;
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
  p.apply();
  feed(n, p.done());
}

void Cluster::perform(Node& n, core::Output& out) {
  auto begin = [&](std::int64_t latency_us, Pending p) {
    std::uint64_t no = n.next_pending++;
    n.pending.emplace(no, std::move(p));
    schedule(latency_us, [this, &n, no, life = n.life] {
      if (n.life == life) complete_disk(n, no);
    });
  };
  auto latency = [&](DiskKind kind, std::uint64_t bytes = 0) {
    auto us = static_cast<std::int64_t>(20 + random_.below(random_.below(10) == 0 ? 5000 : 300));
    std::int64_t slow = slow_us_[static_cast<std::size_t>(kind)];
    if (slow > 0) us += static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(slow)));
    return heavy_ ? us + static_cast<std::int64_t>(bytes / 1000) : us;  // 1 GB/s
  };
  auto done = [](core::Token t) { return [t]() -> core::Event { return core::DiskDone{t, 0}; }; };
  auto nothing = [] {};

  for (auto& w : out.journal_writes) {
    auto bytes = std::make_shared<std::vector<std::byte>>(copy_of(w.pieces));
    begin(latency(DiskKind::journal, bytes->size()), {[&n, bytes, at = w.offset] { n.journal.write_durable(at, *bytes); },
                      [this, &n, bytes, at = w.offset] { n.journal.tear(at, *bytes, random_); }, done(w.token)});
  }
  for (auto& r : out.journal_reads) {
    coverage_.hit("catch-up from the journal");
    auto bytes = std::make_shared<std::vector<std::byte>>(r.bytes);
    begin(latency(DiskKind::read, r.bytes), {[&n, bytes, at = r.offset] { (void)n.journal.read(at, *bytes); }, nothing,
                      [t = r.token, bytes]() -> core::Event { return core::JournalReadDone{t, 0, std::move(*bytes)}; }});
  }
  for (auto& r : out.home_reads)
    begin(latency(DiskKind::read), {[&n, pieces = r.pieces, at = r.lba.v * block_size] {
                        std::uint64_t offset = at;
                        if (!n.alive()) return;  // its memory is gone with it
                        for (const auto& p : pieces) {
                          (void)n.data.read(offset, {p.data, p.bytes});
                          offset += p.bytes;
                        }
                      },
                      nothing, done(r.token)});
  for (auto& w : out.home_writes) {
    auto bytes = std::make_shared<std::vector<std::byte>>(copy_of(w.pieces));
    begin(latency(DiskKind::home, bytes->size()), {[&n, bytes, at = w.lba.v * block_size] { (void)n.data.write(at, *bytes); },
                      [this, &n, bytes, at = w.lba.v * block_size] { n.data.tear(at, *bytes, random_); },
                      done(w.token)});
  }
  for (auto& z : out.home_zeros)
    begin(latency(DiskKind::home), {[&n, z] { (void)n.data.write_zeros(z.lba.v * block_size, z.blocks * block_size); },
                      [this, &n, z] {
                        std::vector<std::byte> zeros(z.blocks * block_size);
                        n.data.tear(z.lba.v * block_size, zeros, random_);
                      },
                      done(z.token)});
  for (auto& s : out.home_syncs)
    begin(latency(DiskKind::sync), {[&n, upto = n.data.last_write()] { n.data.sync_upto(upto); }, nothing, done(s.token)});
  for (auto& w : out.superblock_writes) {
    auto block = std::make_shared<std::vector<std::byte>>(block_size);
    encode_superblock(w.superblock, *block);
    auto copy = [&n, block](int i) { n.journal.write_durable(superblock_offset[i], *block); };
    begin(latency(DiskKind::superblock), {[copy] { copy(0), copy(1); },
                      [this, &n, block, copy] {
                        // The second copy is begun only when the first is durable.
                        if (random_.below(2) == 0) return n.journal.tear(superblock_offset[0], *block, random_);
                        copy(0);
                        n.journal.tear(superblock_offset[1], *block, random_);
                      },
                      done(w.token)});
  }
  for (auto& s : out.sends) {
    if (auto* message = std::get_if<core::Send>(&s)) {
      send(n, std::move(message->message));
      continue;
    }
    auto& r = std::get<core::SendRecord>(s);
    std::vector<std::byte> bytes = copy_of(r.pieces);
    send(n, RecordMessage{r.epoch, {bytes.begin(), bytes.begin() + r.meta_bytes},
                          {bytes.begin() + r.meta_bytes, bytes.end()}});
  }
  for (auto& c : out.closes) {
    note(fmt::format("replica {} closes: {}", n.id, c.reason));
    schedule(0, [this, no = connection_] {
      if (link_up_ && connection_ == no) disconnect();
    });
  }
  for (auto& notice : out.notices) {
    note(fmt::format("replica {}: {}", n.id, notice.text));
    if (notice.text.find("cut off") != std::string::npos) coverage_.hit("rejoin: divergent tail cut off");
  }
  for (auto& c : out.completions) on_complete(c.id, c.error);
}

// ---- the link ------------------------------------------------------------------------------------------------------

void Cluster::connect() {
  if (!primary_->alive() || !secondary_->alive() || link_cut_ || link_up_) return;
  link_up_ = true;
  connection_++;
  deliver_at_[0] = deliver_at_[1] = now_us_;
  note("link up");
  feed(*primary_, core::PeerUp{2});
  feed(*secondary_, core::PeerUp{1});
}

void Cluster::disconnect() {
  link_up_ = false;
  connection_++;
  note("link down");
  feed(*primary_, core::PeerDown{2});
  feed(*secondary_, core::PeerDown{1});
  schedule(static_cast<std::int64_t>(100 + random_.below(5000)), [this] { connect(); });
}

// In order, as TCP delivers; encoded and decoded as on the wire.
void Cluster::send(Node& from, PeerMessage message) {
  if (!link_up_) return;
  Node& to = from.id == 1 ? *secondary_ : *primary_;
  // Its first ack says that what it had beyond the primary's history is gone from its disk.
  if (std::holds_alternative<Ack>(message)) secondary_follows_ = true;
  auto bytes = std::make_shared<std::vector<std::byte>>();
  encode_peer_message(message, *bytes);
  std::int64_t& last = deliver_at_[from.id - 1];
  last = std::max(last, now_us_ + static_cast<std::int64_t>(10 + random_.below(random_.below(20) == 0 ? 8000 : 200)));
  schedule(last - now_us_, [this, &to, bytes, type = wire_type(message), from_id = from.id, no = connection_] {
    if (!link_up_ || connection_ != no) return;
    auto decoded = decode_peer_message(type, *bytes);
    if (!decoded) violated("a message does not decode: " + decoded.error().message);
    feed(to, core::PeerInput{from_id, std::move(*decoded)});
  });
}

// ---- the client ----------------------------------------------------------------------------------------------------

void Cluster::client_step() {
  if (client_runs_ && primary_->alive() && requests_.size() < 24) {
    std::uint64_t kind = random_.below(heavy_ ? 70 : 100);
    if (kind < 55) submit(core::ClientOp::write, false);
    else if (kind < 62) submit(core::ClientOp::write, true);
    else if (kind < 74) submit(core::ClientOp::flush, false);
    else if (kind < 80) submit(core::ClientOp::trim, random_.below(4) == 0);
    else if (kind < 84) submit(core::ClientOp::write_zeroes, random_.below(4) == 0);
    else submit(core::ClientOp::read, false);
  }
  schedule(static_cast<std::int64_t>(1 + random_.below(random_.below(8) == 0 ? 3000 : 60)), [this] { client_step(); });
}

void Cluster::submit(core::ClientOp op, bool fua) {
  std::uint64_t id = next_request_++;
  Request r{op, fua, 0, history_.completed_end(), 0, 0, {}};
  if (op != core::ClientOp::flush) {
    bool large = heavy_ || random_.below(10) == 0;
    std::uint64_t most = std::min<std::uint64_t>(volume_blocks_, large ? 200 : 8);
    r.blocks = 1 + random_.below(most);
    r.lba = random_.below(volume_blocks_ - r.blocks + 1);
  }
  bool writes = op != core::ClientOp::flush && op != core::ClientOp::read;
  if (writes) r.index = history_.submit(r.lba, r.blocks, op != core::ClientOp::write);
  if (op == core::ClientOp::write || op == core::ClientOp::read) {
    r.data.resize(r.blocks * block_size);
    if (op == core::ClientOp::write)
      for (std::uint64_t b = 0; b < r.blocks; ++b) fill_block(r.data.data() + b * block_size, history_.id_of(r.index));
  }
  auto [it, inserted] = requests_.emplace(id, std::move(r));
  core::ClientRequest request{op, fua, it->second.lba * block_size,
                              static_cast<std::uint32_t>(it->second.blocks * block_size), it->second.data.data(), id};
  feed(*primary_, request);
}

void Cluster::on_complete(std::uint64_t id, int error) {
  auto it = requests_.find(id);
  if (it == requests_.end()) violated(fmt::format("request {} is completed twice or was never made", id));
  Request r = std::move(it->second);
  requests_.erase(it);
  if (error != 0) violated(fmt::format("request {} fails with errno {} and no disk has failed", id, error));
  switch (r.op) {
    case core::ClientOp::flush:
      history_.promise(r.completed_before);
      break;
    case core::ClientOp::read:
      for (std::uint64_t b = 0; b < r.blocks; ++b) {
        std::uint64_t value = load_le<std::uint64_t>(r.data.data() + b * block_size);
        if (!history_.read_is_right(r.lba + b, value, r.completed_before))
          violated(fmt::format("a read of block {} returns {}", r.lba + b, value));
      }
      break;
    default:
      history_.complete(r.index);
      if (r.fua) history_.promise(r.index + 1);
  }
}

// ---- faults and checks ---------------------------------------------------------------------------------------------

// What a person would find who pulled the plug now: recovery on copies of the disks.
Image Cluster::image_after_power_cut(const Node& n) {
  SimFile journal = n.journal, data = n.data;
  SeededRandom torn(random_.draw());
  if (n.alive()) {
    journal.power_cut(torn);
    data.power_cut(torn);
  }
  auto recovered = journal::recover(journal, data);
  if (!recovered) violated(fmt::format("replica {} would not recover: {}", n.id, recovered.error().message));
  std::vector<std::byte> bytes(volume_blocks_ * block_size);
  (void)data.read(0, bytes);
  for (const StoredRecord& r : recovered->log.records) {
    if (r.body.mark().lsn <= recovered->log.commit) continue;
    std::size_t at = 0;
    for (const Extent& e : r.body.extents) {
      std::size_t n_bytes = std::size_t{e.blocks} * block_size;
      if (e.kind == ExtentKind::zeros) {
        std::memset(bytes.data() + e.lba.v * block_size, 0, n_bytes);
        continue;
      }
      std::memcpy(bytes.data() + e.lba.v * block_size, r.payload.data() + at, n_bytes);
      at += n_bytes;
    }
  }
  Image image(volume_blocks_);
  for (std::uint64_t b = 0; b < volume_blocks_; ++b) {
    image[b] = load_le<std::uint64_t>(bytes.data() + b * block_size);
    for (std::size_t i = 8; i < block_size; i += 8)
      if (load_le<std::uint64_t>(bytes.data() + b * block_size + i) != image[b])
        violated(fmt::format("replica {}: block {} is torn", n.id, b));
  }
  return image;
}

void Cluster::check(const Node& n, bool need_promised, const char* when) {
  Image image = image_after_power_cut(n);
  if (history_.matching_prefix(image, need_promised)) return;
  violated(fmt::format("{}: replica {} holds no {}prefix: {}", when, n.id, need_promised ? "sufficient " : "",
                       history_.explain(image)));
}

void Cluster::note_ring() {
  for (Node* n : {primary_.get(), secondary_.get()}) {
    if (!n->alive()) continue;
    auto status = n->core->status();
    if (status.journal_used > status.journal_size - (3u << 20)) coverage_.hit("fault on a full ring");
  }
}

void Cluster::inject_fault() {
  std::uint64_t kind = random_.below(10);
  bool power = random_.below(3) != 0;
  bool lose_primary = kind < 4 || kind == 8, lose_secondary = (kind >= 4 && kind < 8) || kind == 8;
  if (kind == 9) {
    link_cut_ = true;
    coverage_.hit("fault: link cut");
    if (link_up_) disconnect();
    schedule(static_cast<std::int64_t>(random_.below(20000)), [this] {
      link_cut_ = false;
      connect();
    });
  }
  // The secondary must hold every promise at this very moment, whatever happens to the primary.
  note_ring();
  if (secondary_follows_) check(*secondary_, protocol_ == core::Protocol::C, "before the fault");
  if (lose_secondary) {
    crash(*secondary_, power);
    if (secondary_follows_) check(*secondary_, protocol_ == core::Protocol::C, "after the secondary's crash");
    schedule(static_cast<std::int64_t>(100 + random_.below(20000)), [this] {
      if (!secondary_->alive()) start(*secondary_), connect();
    });
  }
  if (lose_primary && primary_->alive()) {
    crash(*primary_, power);
    check(*primary_, true, "after the primary's crash");
    auto prefix = history_.matching_prefix(image_after_power_cut(*primary_), true);
    requests_.clear();
    history_.restart_from(*prefix);
    secondary_follows_ = false;
    schedule(static_cast<std::int64_t>(100 + random_.below(20000)), [this] {
      if (!primary_->alive()) start(*primary_), connect();
    });
  }
}

void Cluster::settle_and_compare() {
  client_runs_ = false;
  link_cut_ = false;
  for (Node* n : {primary_.get(), secondary_.get()})
    if (!n->alive()) start(*n);
  connect();
  run_until([&] { return requests_.empty(); }, 60'000'000, "all requests answered");
  submit(core::ClientOp::flush, false);
  run_until([&] { return requests_.empty(); }, 60'000'000, "the last flush answered");
  std::int64_t next = 0;
  run_until(
      [&] {
        if (now_us_ >= next) {
          next = now_us_ + 1000;
          feed(*primary_, core::CheckpointNow{});
          feed(*secondary_, core::CheckpointNow{});
        }
        auto p = primary_->core->status(), s = secondary_->core->status();
        return primary_->core->settled() && secondary_->core->settled() && p.commit == p.last && s.commit == p.last;
      },
      60'000'000, "both replicas settled");
  check(*primary_, true, "at the end");
  check(*secondary_, true, "at the end");
  std::vector<std::byte> a(volume_blocks_ * block_size), b(a.size());
  (void)primary_->data.read(0, a);
  (void)secondary_->data.read(0, b);
  if (a != b) violated("the settled replicas differ");
}

void Cluster::run() {
  create(*primary_);
  create(*secondary_);
  start(*primary_);
  start(*secondary_);
  connect();
  client_step();
  std::uint64_t faults = 2 + random_.below(6);
  for (std::uint64_t i = 0; i < faults; ++i) {
    // Now and then two faults in quick succession: the second hits a start, a search for the common record, a cut.
    std::int64_t least = random_.below(3) == 0 ? 0 : 1000;
    std::int64_t until = now_us_ + least + static_cast<std::int64_t>(random_.below(least == 0 ? 25000 : 60000));
    run_until([&] { return now_us_ >= until; }, 10'000'000, "time to pass");
    inject_fault();
  }
  coverage_.hit(fmt::format("protocol {}", "ABC"[static_cast<int>(protocol_)]));
  settle_and_compare();
}

}  // namespace twinloft::repl::sim
