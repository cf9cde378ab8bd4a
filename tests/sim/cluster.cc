#include "cluster.h"

#include "sim_link_memory.h"

#include <algorithm>
#include <utility>

#include "node.h"
#include "twinloft/spool-repl/journal/create.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::sim {

namespace {

constexpr std::uint64_t volume_blocks_max = 5000;
constexpr std::uint64_t journal_bytes = journal_reserved_bytes +
                                        (bitmap_slots + digest_pages(volume_blocks_max)) * block_size +
                                        journal_ring_bytes_min;

}  // namespace

Cluster::Cluster(std::uint64_t seed, bool trace, Coverage& coverage)
    : random_(seed),
      trace_(trace),
      coverage_(coverage),
      volume_blocks_(random_.below(3) == 0 ? 1500 : 64 + random_.below(200)),
      history_(Image(volume_blocks_)) {
  SimMemory::begin_run();
  // In some clusters, the load keeps the journal's ring full. In some, one kind of disk operation is slow.
  heavy_ = random_.below(6) == 0;
  if (heavy_)
    volume_blocks_ = random_.below(3) == 0 ? volume_blocks_max : 1500,
    history_ = History(Image(volume_blocks_));
  for (std::int64_t& us : slow_us_)
    if (random_.below(5) == 0) us = 500 + below(random_.below(4) == 0 ? 60'000 : 8000);
  slow_peer_ = std::chrono::milliseconds(random_.below(2) == 0 ? 30 : 200);
  fetch_timeout_ = std::chrono::milliseconds(random_.below(2) == 0 ? 30 : 300);
  // With a small send window, the arena is small too. It has no room for the large sync window beside a full
  // ring.
  send_window_bytes_ = random_.below(2) == 0 ? 512u << 10 : 4u << 20;
  sync_window_bytes_ = random_.below(2) == 0 ? 256u << 10 : 12u << 20;
  std::size_t count = random_.below(2) == 0 ? 2 : 3 + random_.below(3);
  external_ = random_.below(2) == 0;
  on_loss_ = random_.below(2) == 0 ? core::OnPeerLoss::suspend : core::OnPeerLoss::go_on;
  for (std::size_t i = 0; i < count; ++i) {
    // The first replica is always a member.
    auto protocol = i > 0 && random_.below(5) == 0 ? static_cast<core::Protocol>(random_.below(2))
                                                   : core::Protocol::C;
    nodes_.push_back(std::make_unique<Node>(i, protocol, journal_bytes, volume_blocks_));
    for (std::size_t j = 0; j < i; ++j) links_.push_back({.a = j, .b = i});
  }
  cut_off_.resize(count);
  by_force_ = random_.below(4) == 0;
  mixed_ = random_.below(6) == 0;
  if (mixed_)
    for (Link& l : links_)
      l.protocol = static_cast<core::Protocol>(std::min<std::uint64_t>(2, random_.below(5)));
  // A replica with only A or B links that is promoted by force never gets a second member. With min_in_sync
  // 2, such a volume waits, as it should.
  std::size_t c_needed = by_force_ ? count : 2;
  auto is_c = [](auto& n) { return n->protocol == core::Protocol::C; };
  if (!mixed_ && random_.below(6) == 0 &&
      static_cast<std::size_t>(std::count_if(nodes_.begin(), nodes_.end(), is_c)) >= c_needed)
    min_in_sync_ = 2;
  if (random_.below(6) == 0) suspend_timeout_ = std::chrono::milliseconds(10 + random_.below(100));
  adopted_ = random_.below(8) == 0;
  if (random_.below(3) == 0) resync_latency_target_ = std::chrono::microseconds(200 + random_.below(3000));
  parts_ = random_.below(3) == 0;
  ask_peers_for_ = std::chrono::milliseconds(1 + random_.below(10));
  write_ack_durable_ = random_.below(6) == 0;
  read_policy_ = some_read_policy();
  balanced_read_timeout_ = std::chrono::milliseconds(random_.below(2) == 0 ? 5 : 100);
  bounds_links_ = random_.below(2) == 0;
  if (random_.below(2) == 0) {
    using WhenFull = core::BufferConfig::WhenFull;
    spills_ = random_.below(2) == 0;
    buffer_ = {64 * block_size + random_.below((spills_ ? 4 : 1) * journal_ring_bytes_min),
               random_.below(2) == 0 ? WhenFull::slow_down : WhenFull::resync};
  }
  choose_sites();
}
Cluster::~Cluster() = default;

core::ReadPolicy Cluster::some_read_policy() {
  auto kind = static_cast<core::ReadPolicy::Kind>(random_.below(6));
  return {kind, 8u << random_.below(3)};
}

// ---- time

void Cluster::schedule(std::int64_t delay_us, std::function<void()> action) {
  events_.push({now_us_ + delay_us, next_event_++, std::move(action)});
}

void Cluster::run_until(std::function<bool()> done, std::int64_t limit_us, const char* what) {
  std::int64_t end = now_us_ + limit_us;
  while (!done()) {
    if (events_.empty() || events_.top().at > end) {
      for (auto& n : nodes_) note(describe(*n));
      violated(fmt::format("not reached in time: {}", what));
    }
    Event e = events_.top();
    events_.pop();
    now_us_ = e.at;
    digest(static_cast<std::uint64_t>(e.at));
    digest(e.order);
    e.action();
  }
}

void Cluster::note(const std::string& text) {
  if (trace_) fmt::print("{:>10} us  {}\n", now_us_, text);
}
void Cluster::violated(const std::string& text) {
  throw Violation{fmt::format("at {} us: {}", now_us_, text)};
}

std::string Cluster::describe(const Node& n) {
  if (!n.alive()) return fmt::format("replica {} is down", n.id);
  auto s = n.core->status();
  std::string text = fmt::format(
      "replica {}: {} epoch {} set {:b} last {} durable {} commit {} tail {} settled {} suspended {} waiting "
      "{} ({})",
      n.id, s.role == core::Role::primary ? "primary" : "secondary", s.epoch.counter, s.in_sync, s.last.v,
      s.durable.v, s.commit.v, s.tail.v, n.core->settled(), s.suspended, s.waiting_requests, s.waits_for);
  for (const auto& p : s.peers)
    text += fmt::format("; {} {} sent {} durable {} {} {}", p.id, "SCMc"[static_cast<int>(p.connection)],
                        p.sent.v, p.durable.v, p.in_sync ? "in sync" : "", p.why);
  return text;
}

// ---- nodes

core::Config Cluster::config_of(const Node& n) {
  core::Config c;
  c.ask_peers_for = ask_peers_for_;
  c.arbiter = external_ ? core::Arbiter::external : core::Arbiter::manual;
  c.arbiter_place = external_ ? 2 : 1;
  c.on_peer_loss = on_loss_;
  for (const auto& other : nodes_)
    if (other->id != n.id && !n.without.contains(other->id))
      c.peers.push_back({other->id, mixed_ ? link_of(n.index, other->index).protocol
                                           : std::min(n.protocol, other->protocol)});
  for (core::PeerConfig& p : c.peers)
    if (p.protocol == core::Protocol::A) p.buffer = buffer_;
  c.spill = spills_;
  c.buffer_interval = std::chrono::milliseconds(2);
  c.buffer_patience = std::chrono::milliseconds(300);
  c.min_in_sync = min_in_sync_;
  c.suspend_timeout = suspend_timeout_;
  c.write_ack_durable = write_ack_durable_;
  c.send_window_bytes = send_window_bytes_;
  c.sync_window_bytes = sync_window_bytes_;
  c.checkpoint_idle = c.checkpoint_age = std::chrono::milliseconds(50);
  c.zero_blocks_a_round = 16;
  c.known_zeros_min = 2;
  c.arbiter_retry = std::chrono::milliseconds(5);
  c.slow_peer = slow_peer_;
  c.resync_latency_target = resync_latency_target_;
  c.resync_rate_min = 16u << 20;
  c.fetch_timeout = fetch_timeout_;
  c.read_policy = read_policy_;
  c.balanced_read_timeout = balanced_read_timeout_;
  add_sites(n, c);
  if (bounds_links_)
    c.link_memory = std::make_shared<SimLinkMemory>(c, random_, coverage_,
                                                    [this](const std::string& text) { violated(text); });
  if (n.settings) n.settings(c);
  return c;
}

void Cluster::create(Node& n) {
  n.damaged = n.loss_accepted = false;
  n.filled_by = 0;
  n.digests_rotted = false;
  cut_off_[n.index].clear();
  n.journal = SimFile(n.journal.name(), journal_bytes);
  n.data = SimFile(n.data.name(), n.data.size_bytes());
  n.spill.clear();
  auto made = journal::create_replica({volume_uuid, n.id, volume_blocks_, true}, n.journal, n.data, true);
  if (!made) violated("create: " + made.error().message);
}

// The data area is the volume, and all other replicas are filled from here.
void Cluster::adopt(Node& n) {
  Image image;
  for (std::uint64_t b = 0; b < volume_blocks_; ++b) {
    image.push_back(random_.below(3) == 0 ? 0 : foreign + b);
    std::vector<std::byte> block(block_size);
    for (std::size_t i = 0; i < block_size; i += 8) store_le(block.data() + i, image.back());
    n.data.write_durable(b * block_size, {Page::of(block.data())});
  }
  history_.promise(history_.add_beginning(image));
  journal::CreateOptions options{volume_uuid, n.id, volume_blocks_, true, {}};
  journal::Adoption adoption{{1, Uuid::generate(random_)}, {}};
  store_le(adoption.beginning.bytes.data(), random_.draw());
  options.adopt = adoption;
  auto made = journal::create_replica(options, n.journal, n.data, false);
  if (!made) violated("create --adopt: " + made.error().message);
  coverage_.hit("a data area is adopted");
}

void Cluster::start(Node& n) {
  if (random_.below(4) == 0) probe_damage(n);
  if (random_.below(10) == 0) damage_superblock(n);
  SimFile before = n.journal;
  auto config = config_of(n);
  std::size_t blocks = core::arena_blocks_min(config) + 200;
  n.memory.reset();
  n.memory = std::make_unique<SimMemory>(blocks * block_size);
  // All of the content that may be loaded, a part of it, or none.
  std::size_t room = core::recovery_blocks(config, blocks);
  if (random_.below(2) == 0) room = random_.below(room + 1);
  auto recovered = journal::recover(
      n.journal, n.data,
      [&](const journal::Damage& d) {
        coverage_.hit("recovery: the log ends before the damage");
        note(fmt::format("replica {}: {}", n.id, d.text));
        n.lost_disk(now_us_);
        if (!std::exchange(n.damaged, false))
          violated(fmt::format("replica {} reports damage that no fault has caused: {}", n.id, d.text));
        return Status();
      },
      n.memory->span().first(room * block_size));
  if (n.damaged) violated(fmt::format("replica {} starts without detecting the damage of its journal", n.id));
  if (recovered && !recovered->report.damage) check_proven(n, before, recovered->log);
  if (recovered && recovered->report.bitmap_pages_lost > 0)
    coverage_.hit("recovery: a page of a bitmap lost");
  if (!recovered) violated(fmt::format("replica {} does not recover: {}", n.id, recovered.error().message));
  check_records(n, recovered->log);
  if (recovered->report.digest_sectors_lost > 0) coverage_.hit("recovery: a sector of digests lost");
  if (recovered->report.torn_frames > 0) note_dropped(n, std::move(before), recovered->log);
  if (recovered->report.torn_frames > 0) coverage_.hit("recovery: torn tail with an intact record after it");
  if (recovered->report.uncommitted > 0) coverage_.hit("recovery: uncommitted records kept");
  if (recovered->report.blocks_replayed > 0) coverage_.hit("recovery: replay");
  if (!recovered->log.loaded.empty()) coverage_.hit("recovery: committed content loaded");
  if (recovered->report.blocks_replayed > 0 && !recovered->log.loaded.empty())
    coverage_.hit("recovery: the older part written home, the newer loaded");
  if (recovered->report.superblock_repaired) coverage_.hit("recovery: a copy of the superblock repaired");
  note_recovery(n, recovered->log);
  n.scratch.reset();
  n.scratch = std::make_unique<SimMemory>(core::read_arena_blocks_min * block_size);
  n.arena = std::make_unique<core::Arena>(n.memory->span());
  n.reads = std::make_unique<core::Arena>(n.scratch->span());
  auto core = core::Core::create(config, std::move(recovered->log), *n.arena, *n.reads, random_,
                                 find_spill(n));
  if (!core) violated(fmt::format("replica {} does not start: {}", n.id, core.error().message));
  n.core = std::move(*core);
  n.life++;
  n.tick_at = -1;
  n.command_open = n.gives_up = n.turn_open = false;
  n.fault.reset();
  n.failed_from.reset();
  note(fmt::format("replica {} starts, {} records, {} uncommitted", n.id, recovered->report.records,
                   recovered->report.uncommitted));
  n.core->tick({now_us_ * 1000});
  drain(n);
  // A connection takes a while, and a promotion may be requested before it is there.
  n.started_at = now_us_;
  auto soon = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(ask_peers_for_).count());
  for (Link& l : links_) {
    if (l.a != n.index && l.b != n.index) continue;
    if (random_.below(2) == 0)
      connect(l);
    else
      schedule(below(soon), [this, &l] { connect(l); });
  }
}

void Cluster::crash(Node& n, bool power) {
  if (!n.alive()) return;
  note(fmt::format("replica {} {}", n.id, power ? "loses power" : "is killed"));
  coverage_.hit(power ? "fault: power cut" : "fault: kill");
  note_crash(n, power);
  note_repairs(n);
  disturbances_++;
  n.core.reset();
  n.life++;
  for (Link& l : links_)
    if (l.a == n.index || l.b == n.index) disconnect(l);
  // The kernel finishes the submitted operations of a killed process.
  for (auto& [no, p] : n.pending) (power ? p.tear : p.apply)();
  n.pending.clear();
  if (power) {
    n.journal.power_cut(random_);
    n.data.power_cut(random_);
  }
  std::erase_if(survey_, [&](const auto& part) { return part.second.node == n.index; });
  std::erase_if(requests_, [&](const auto& r) { return r.second.node == n.index; });  // they get no answer
  unmount(n);
}

void Cluster::revive_later(Node& n) {
  schedule(100 + below(30000), [this, &n, life = n.life] {
    if (n.life == life && !n.alive()) start(n);
  });
}

// ---- the course of a run

void Cluster::note_ring() {
  for (auto& n : nodes_) {
    if (!n->alive()) continue;
    auto status = n->core->status();
    if (status.resync_held_to > 0) coverage_.hit("resync: slowed down for clients");
    if (status.journal_used > status.journal_size - (3u << 20)) coverage_.hit("fault on a full ring");
  }
}

void Cluster::inject_fault() {
  note_buffers();
  if (spills_ && random_.below(3) == 0) harm_spill();
  note_ring();
  check_all("before the fault");
  if (random_.below(4) == 0) {
    read_policy_ = some_read_policy();
    for (auto& n : nodes_)
      if (n->alive()) feed(*n, core::SetReadPolicy{read_policy_});
  }
  if (random_.below(3) == 0) return inject_partial_fault();
  bool power = random_.below(3) != 0;
  if (random_.below(12) == 0) return random_.below(3) == 0 ? begin_chain() : change_settings();
  std::uint64_t kind = random_.below(19);
  if (kind < 6) {
    crash_one(power);
  } else if (kind == 6) {
    coverage_.hit("fault: everything dies at once");
    for (auto& n : nodes_) crash(*n, power), revive_later(*n);
  } else if (kind < 8) {
    cut_link();
  } else if (kind == 8) {
    partition();
  } else if (kind == 9) {
    isolate();
  } else if (kind == 10 && (!external_ || random_.below(2) == 0)) {
    Node& n = *nodes_[random_.below(nodes_.size())];
    // Without force, a disk is lost only while the primary is alive and has everything.
    if (by_force_ || (primary_holds_all() && &n != primary())) lose_disk(n);
  } else if (kind == 10) {
    coverage_.hit("fault: the arbiter is away");
    arbiter_.reachable = false;
    schedule(below(50000), [this] { arbiter_.reachable = true; });
  } else if (kind == 11) {
    rot();
  } else if (kind < 15) {
    random_.below(2) == 0 ? make_latent() : make_wrong();
  } else {
    inject_change(kind - 15);
  }
}

// A chunk is lost or damaged, or the spill's disk is full for a while.
void Cluster::harm_spill() {
  Node* at_work = nullptr;
  for (auto& each : nodes_)
    if (!each->spill.empty()) at_work = each.get();
  Node& n = at_work ? *at_work : *nodes_[random_.below(nodes_.size())];
  if (random_.below(3) == 0) {
    coverage_.hit("fault: a full spill");
    n.spill_full = true;
    return schedule(below(60'000), [&n] { n.spill_full = false; });
  }
  if (n.spill.empty()) return;
  auto at = n.spill.begin();
  std::advance(at, random_.below(n.spill.size()));
  if (random_.below(2) == 0) {
    coverage_.hit("fault: a chunk of the spill is lost");
    n.spill.erase(at);
  } else {
    coverage_.hit("fault: a chunk of the spill is damaged");
    at->second[random_.below(at->second.size())] ^= std::byte{0x40};
  }
}

std::vector<SpillChunk> Cluster::find_spill(Node& n) {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, bytes] : n.spill) numbers.push_back(number);
  auto found = usable_spill(
      numbers,
      [&](std::uint64_t number, bool) -> Result<std::vector<std::byte>> { return n.spill.at(number); },
      volume_uuid, n.id);
  if (!found.empty()) coverage_.hit("spill: found at a start");
  n.spill_from = 0;
  return found;
}

void Cluster::note_buffers() {
  for (auto& n : nodes_) {
    if (!n->alive()) continue;
    for (const core::PeerStatus& p : n->core->status().peers) {
      if (p.buffer) coverage_.hit("a buffered link");
      if (p.buffer && n->core->status().spilled > 0) coverage_.hit("spill: in use");
      if (p.buffer && p.buffer->waits) coverage_.hit("buffer: a resync waits for the line");
    }
  }
}

void Cluster::inject_change(std::uint64_t kind) {
  switch (kind) {
    case 0:
      return detach();
    case 1:
      return change_peers();
    case 2:
      return external_ && by_force_ ? roll_back_arbiter() : flap_some_link();
    default:
      return flap_some_link();
  }
}

void Cluster::crash_one(bool power) {
  Node* at = primary();
  Node& n = at && random_.below(2) == 0 ? *at : *nodes_[random_.below(nodes_.size())];
  if (n.is_primary()) coverage_.hit("fault: the primary dies");
  crash(n, power);
  revive_later(n);
}

void Cluster::cut(Link& l, std::int64_t us) {
  l.cut = true;
  disconnect(l);
  schedule(us, [this, &l] {
    l.cut = false;
    connect(l);
  });
}

void Cluster::cut_link() {
  coverage_.hit("fault: link cut");
  cut(links_[random_.below(links_.size())], below(30000));
}

void Cluster::isolate() {
  std::size_t alone = primary() && random_.below(2) == 0 ? client_at_ : random_.below(nodes_.size());
  coverage_.hit("fault: a node cut off from all others");
  bool arbiter_too = external_ && random_.below(2) == 0;
  if (arbiter_too) {
    coverage_.hit("fault: a node cut off from all others and from the arbiter");
    nodes_[alone]->no_arbiter = true;
    // Often only once the others are reachable again, and one of them was promoted meanwhile.
    schedule(5000 + below(random_.below(3) == 0 ? 60'000 : 200'000),
             [this, alone] { nodes_[alone]->no_arbiter = false; });
  }
  note(fmt::format("replica {} is cut off{}", alone + 1, arbiter_too ? ", from the arbiter too" : ""));
  for (Link& l : links_)
    if (l.a == alone || l.b == alone) cut(l, 5000 + below(60000));
}

// Each group is alone for a while. The arbiter is with one group, or with both.
void Cluster::partition() {
  std::uint64_t group = 1 + random_.below((1u << nodes_.size()) - 2);
  auto in_group = [&](std::size_t i) { return (group >> i & 1) != 0; };
  coverage_.hit("fault: two groups");
  std::uint64_t arbiter_with = random_.below(3);  // 2: with both
  note(fmt::format("groups {:b} and {:b}", group, ~group & ((1u << nodes_.size()) - 1)));
  std::int64_t us = 5000 + below(random_.below(3) == 0 ? 200'000 : 60'000);
  for (auto& n : nodes_) {
    if (!external_ || arbiter_with == 2 || in_group(n->index) == (arbiter_with == 1)) continue;
    n->no_arbiter = true;
    schedule(us + below(5000), [&n = *n] { n.no_arbiter = false; });
  }
  for (Link& l : links_)
    if (in_group(l.a) != in_group(l.b)) cut(l, us + below(10'000));
}

void Cluster::lose_disk(Node& n) {
  coverage_.hit("fault: a disk is lost");
  before_loss(n);
  crash(n, true);
  note(fmt::format("replica {}: its disk is lost, and it is created again", n.id));
  n.lost_disk(now_us_);
  create(n);
  revive_later(n);
}

// From now on there are no faults.
void Cluster::heal() {
  client_runs_ = false;
  arbiter_.reachable = true;
  for (Link& l : links_) l.cut = false;
  // A slow write must not take longer than a member may take, or members would leave and return without end.
  // One step of a resync target must fit too: reads, writes, syncs and a superblock.
  for (std::int64_t& us : slow_us_)
    us = std::min(us, static_cast<std::int64_t>(slow_peer_ / std::chrono::microseconds(8)));
  end_faults();
  settle_settings();
  for (auto& n : nodes_)
    if (!n->without.empty()) reconfigure(*n, {});
  for (auto& n : nodes_)
    if (!n->alive()) start(*n);
  for (Link& l : links_) connect(l);
}

void Cluster::settle_and_compare() {
  auto all_follow = [&] {
    Node* p = primary();
    if (!p) return false;
    auto status = p->core->status();
    if (status.suspended || status.commit != status.last) return false;
    return std::all_of(status.peers.begin(), status.peers.end(), [&](const core::PeerStatus& s) {
      return s.connection == core::ConnectionState::Connected && s.durable == status.last &&
             !s.inconsistent && !s.sync_target && (s.in_sync || s.protocol != core::Protocol::C);
    });
  };
  // No machine still waits for its repair, which comes late if its requests exceeded suspend_timeout.
  auto nothing_asked = [&] {
    return std::none_of(nodes_.begin(), nodes_.end(),
                        [](auto& n) { return n->command_open || n->failed_from; });
  };
  run_until(
      [&] { return primary() && requests_.empty() && nothing_asked() && arbiter_.late == 0 && all_follow(); },
      120'000'000, "all replicas in sync");
  operator_runs_ = false;
  submit(*primary(), core::ClientOp::flush, false);
  run_until([&] { return requests_.empty(); }, 60'000'000, "the last flush answered");
  read_everything();
  std::int64_t next = 0;
  run_until(
      [&] {
        if (now_us_ >= next) {
          next = now_us_ + 1000;
          for (auto& n : nodes_) feed(*n, core::CheckpointNow{});
        }
        // A late grant that its own replica does not know deposes the primary at the primary's next question.
        if (!primary() && !external_) violated("the primary has lost its role without a fault");
        if (!primary() && !std::exchange(operator_runs_, true)) schedule(1000, [this] { operator_step(); });
        if (!primary()) return false;
        operator_runs_ = false;
        Lsn last = primary()->core->status().last;
        return std::all_of(nodes_.begin(), nodes_.end(),
                           [&](auto& n) { return n->core->settled() && n->core->status().commit == last; });
      },
      60'000'000, "all replicas settled");
  for (auto& n : nodes_) {
    note_repairs(*n);
    check(*n, after_power_cut(*n), true, "at the end");
    for (std::uint64_t b = 0; b < volume_blocks_; ++b)
      if (!n->data.page(b).same(nodes_[0]->data.page(b)))
        violated(fmt::format("the settled replicas 1 and {} differ", n->id));
  }
}

void Cluster::run() {
  for (auto& n : nodes_) create(*n);
  if (adopted_) adopt(*nodes_[0]);
  for (auto& n : nodes_) start(*n);
  operator_step();
  std::uint64_t faults = 2 + random_.below(8);
  for (std::uint64_t i = 0; i < faults; ++i) {
    // Sometimes two faults come in quick succession, so that the second hits a start, a search for the common
    // record, or a cut.
    std::int64_t least = random_.below(3) == 0 ? 0 : 1000;
    std::int64_t until = now_us_ + least + below(least == 0 ? 25000 : 60000);
    run_until([&] { return now_us_ >= until; }, 10'000'000, "time to pass");
    inject_fault();
  }
  coverage_.hit(fmt::format("{} replicas", nodes_.size()));
  coverage_.hit(external_                             ? "external arbiter"
                : on_loss_ == core::OnPeerLoss::go_on ? "manual, continue"
                                                      : "manual, suspend");
  for (std::size_t kind = 0; kind < disk_kinds; ++kind)
    if (slow_us_[kind] > 0) coverage_.hit("fault: a slow disk");
  for (auto& n : nodes_) coverage_.hit(fmt::format("protocol {}", "ABC"[static_cast<int>(n->protocol)]));
  if (mixed_) coverage_.hit("a protocol for each link");
  if (write_ack_durable_) coverage_.hit("write_ack durable");
  note_buffers();
  if (min_in_sync_ > 1) coverage_.hit("min_in_sync 2");
  if (by_force_) coverage_.hit("an operator overrules");
  heal();
  if (by_force_) resolve();
  settle_and_compare();
  if (!trace_) return;
  for (auto& n : nodes_)
    for (std::uint64_t word : after_power_cut(*n).image) digest(word);
  note(fmt::format("digest {:016x}", digest_));
}

}  // namespace twinloft::repl::sim
