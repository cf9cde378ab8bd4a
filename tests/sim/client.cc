// The clients: programs that use the device of each replica that is primary or thinks so, and what they read.
#include <algorithm>
#include <cerrno>

#include "node.h"

namespace twinloft::repl::sim {

Cluster::Node* Cluster::primary() {
  return client_at_ == SIZE_MAX ? nullptr : nodes_[client_at_].get();
}

bool Cluster::is_granted(const Node& n) const {
  return !external_ || (arbiter_.value && arbiter_.value->writer == n.id);
}

// ---- requests

void Cluster::client_step(Node& n, std::shared_ptr<Mount> m) {
  if (n.mount != m) return;
  if (client_runs_ && !m->paused && m->open < 24) {
    std::uint64_t kind = m->writes_parts ? (random_.below(2) == 0 ? 70 : 90)
                                         : random_.below(heavy_ ? 70 : 100);
    if (kind < 55)
      submit(n, core::ClientOp::write, false);
    else if (kind < 62)
      submit(n, core::ClientOp::write, true);
    else if (kind < 74)
      submit(n, core::ClientOp::flush, false);
    else if (kind < 80)
      submit(n, core::ClientOp::trim, random_.below(4) == 0);
    else if (kind < 84)
      submit(n, core::ClientOp::write_zeroes, random_.below(4) == 0);
    else
      submit(n, core::ClientOp::read, false);
  }
  schedule(1 + below(random_.below(8) == 0 ? 3000 : 60), [this, &n, m] { client_step(n, m); });
}

void Cluster::submit(Node& n, core::ClientOp op, bool fua) {
  std::uint64_t id = next_request_++;
  Mount& m = *n.mount;
  Request r{op, fua, n.index, n.mount, 0, m.completed, 0, 0, {}};
  if (op != core::ClientOp::flush) place(n, r);
  if (r.changes_something()) {
    r.state = history_.submit(m.path, r.sector, r.sectors, op != core::ClientOp::write);
    for (std::uint64_t b = r.lba(); b < r.lba() + r.blocks(); ++b) m.writers[b].push_back(r.state);
    m.writes_parts = r.has_parts();
    if (r.has_parts())
      coverage_.hit(op == core::ClientOp::write ? "client: writes parts of blocks"
                                                : "client: zeroes parts of blocks");
  }
  if (op == core::ClientOp::write || op == core::ClientOp::read) {
    r.data = ClientMemory(r.sectors * sector_bytes, random_.below(2) == 0);
    if (op == core::ClientOp::write)
      for (std::uint64_t at = 0; at < r.data.size(); at += 8)
        store_le(r.data.data() + at, std::uint64_t{r.state});
  }
  if (op == core::ClientOp::read || r.has_parts()) r.errors = before_read(n, r.lba(), r.blocks());
  m.open++;
  auto [it, inserted] = requests_.emplace(id, std::move(r));
  core::ClientRequest request{op,
                              fua,
                              it->second.sector * sector_bytes,
                              static_cast<std::uint32_t>(it->second.sectors * sector_bytes),
                              it->second.data.data(),
                              id};
  feed(n, request);
}

void Cluster::place(Node& n, Request& r) {
  bool large = heavy_ || random_.below(10) == 0;
  std::uint64_t most = std::min<std::uint64_t>(volume_blocks_, large ? 200 : 8);
  std::uint64_t blocks = 1 + random_.below(most), lba = random_.below(volume_blocks_ - blocks + 1);
  bool parts = parts_ && random_.below(3) == 0;
  if (r.op == core::ClientOp::read || parts) aim_at_unreadable(n, lba, blocks);
  r.sector = lba * sectors_in_block;
  r.sectors = blocks * sectors_in_block;
  if (!parts) return;
  std::uint64_t before = random_.below(sectors_in_block), behind = random_.below(sectors_in_block);
  if (before + behind >= r.sectors) behind = 0;
  r.sector += before;
  r.sectors -= before + behind;
}

// The right values: that of the newest request answered before the read began, and those of requests in
// flight then or later.
void Cluster::check_read(const Node& n, Request& r) {
  for (std::uint64_t i = 0; i < r.sectors; ++i) {
    std::uint64_t value = load_le<std::uint64_t>(r.data.data() + i * sector_bytes), at = r.sector + i,
                  block = at / sectors_in_block;
    const auto& writers = r.mount->writers[block];
    auto covers = [&](History::State s) { return history_.covers(s, at); };
    auto after = std::upper_bound(writers.begin(), writers.end(), r.completed_before);
    auto newest = std::find_if(std::make_reverse_iterator(after), writers.rend(), covers);
    std::uint64_t known = newest != writers.rend()
                              ? history_.value_of(*newest)
                              : history_.word_of(r.mount->beginning[block], at % sectors_in_block);
    bool right = value == known || std::any_of(after, writers.end(), [&](History::State s) {
                   return covers(s) && history_.value_of(s) == value;
                 });
    if (!right)
      violated(fmt::format("a read of block {} of replica {} returns {} in its sector {}", block, n.id, value,
                           at % sectors_in_block));
  }
}

void Cluster::on_complete(Node& n, std::uint64_t id, int error) {
  digest(id * 4096 + static_cast<std::uint64_t>(error));
  if (on_surveyed(n, id, error)) return;
  auto it = requests_.find(id);
  if (it == requests_.end()) violated(fmt::format("request {} is completed twice or was never made", id));
  Request r = std::move(it->second);
  requests_.erase(it);
  r.mount->open--;
  check_device(n, r, id, error);
  if (r.changes_something() && r.has_parts()) r.mount->writes_parts = false;
  if (error != 0) return not_done(n, r);  // no promise was made
  if (n.index != client_at_) coverage_.hit("role: a deposed primary answers");
  switch (r.op) {
    case core::ClientOp::flush:
      return promise(r.completed_before, n);
    case core::ClientOp::read:
      return check_read(n, r);
    default:
      r.mount->completed = std::max(r.mount->completed, r.state);
      if (r.fua || write_ack_durable_) promise(r.state, n);
  }
}

// If the block at its edge could not be read, only this request has failed, and the device continues. A
// request that fails with the device may have been carried out.
void Cluster::not_done(const Node& n, Request& r) {
  Mount& m = *r.mount;
  if (!r.changes_something() || !r.has_parts() || m.path.tip != r.state) return;
  if (n.failed_from || n.core->status().unreadable_blocks == r.errors.untold) return;
  coverage_.hit("client: a part of a block cannot be written");
  history_.take_back(m.path);
  for (std::uint64_t b = r.lba(); b < r.lba() + r.blocks(); ++b) std::erase(m.writers[b], r.state);
}

// All primaries acknowledge one history, until an operator overrules a replica.
void Cluster::promise(History::State state, const Node& n) {
  bool fresh = history_.promise(state);
  if (history_.promised().size() > 1 && !forced_)
    violated(fmt::format(
        "replica {} acknowledges request {}, and another history was acknowledged up to request {}", n.id,
        state, history_.promised().front()));
  if (min_in_sync_ > 1 && fresh && random_.below(32) == 0) check_width(state, n);
}

// The request is durable on as many replicas as min_in_sync requires.
void Cluster::check_width(History::State state, const Node& n) {
  unsigned holders = 0;
  for (auto& each : nodes_) {
    Found found = after_power_cut(*each);
    holders += history_.any_holds(found.states, state) ? 1 : 0;
  }
  if (holders < min_in_sync_)
    violated(fmt::format("replica {} acknowledges request {}, and {} replicas have it: min_in_sync is {}",
                         n.id, state, holders, min_in_sync_));
  coverage_.hit("min_in_sync: counted");
}

// ---- roles

void Cluster::on_role(Node& n, core::RoleChange change) {
  note(fmt::format("replica {} is {}{}", n.id, change.role == core::Role::primary ? "primary" : "secondary",
                   change.lost ? ", deposed" : ""));
  if (change.role == core::Role::secondary) {
    if (change.lost)
      coverage_.hit("role: deposed");
    else
      coverage_.hit("role: demoted");
    // After a clean demotion, every completed request is on all replicas.
    if (!change.lost && n.mount) promise(n.mount->completed, n);
    return unmount(n);
  }
  coverage_.hit("role: promoted");
  check_asked(n);
  if (n.loss_accepted) note_accepted(n);
  for (auto& other : nodes_) {
    if (other.get() == &n || !other->mount)
      continue;  // a primary whose promotion is not durable has no mount yet
    coverage_.hit("role: promoted while another replica still acts as primary");
    if (!external_ && !forced_)
      violated(fmt::format("replicas {} and {} are primary at the same time", other->id, n.id));
  }
  begin_survey(n);
}

// A promoted replica has asked every reachable replica.
void Cluster::check_asked(const Node& n) {
  constexpr std::int64_t heard_of_us = 40'000;  // the maximum time from the start of a connection
  bool has_just_started = std::chrono::microseconds(now_us_ - n.started_at) < ask_peers_for_;
  if (has_just_started) coverage_.hit("role: promoted soon after the start");
  for (const Link& l : links_) {
    if (l.a != n.index && l.b != n.index) continue;
    const Node& other = *nodes_[l.a == n.index ? l.b : l.a];
    if (n.without.contains(other.id)) continue;
    if (has_just_started && std::max(l.up_since, l.refused_at) < n.started_at)
      violated(fmt::format("replica {} is promoted {} us after its start, and has not asked replica {}", n.id,
                           now_us_ - n.started_at, other.id));
    bool heard = l.up && l.told[0] && l.told[1] && !l.silent[0] && !l.silent[1] && l.slow_us == 0 &&
                 now_us_ - l.up_since > heard_of_us;
    if (heard && other.is_primary())
      violated(fmt::format("replica {} is promoted beside replica {}, which it can reach", n.id, other.id));
  }
}

// The client mounts: it reads the whole device, and the result must be a state of the history.
void Cluster::begin_survey(Node& n) {
  n.survey = {++survey_no_, 0, Image(volume_blocks_), history_.promised()};
  for (std::uint64_t lba = 0; lba < volume_blocks_; lba += survey_blocks, ++n.survey.left)
    survey_.emplace(next_request_++,
                    SurveyPart{n.index, survey_no_, lba,
                               ClientMemory(std::min(survey_blocks, volume_blocks_ - lba) * block_size,
                                            random_.below(2) == 0)});
  schedule(0, [this, &n, no = survey_no_] {
    if (n.survey.no != no) return;
    std::vector<core::ClientRequest> requests;
    for (auto& [id, part] : survey_) {
      if (part.survey != no) continue;
      part.errors = before_read(n, part.lba, part.data.size() / block_size);
      requests.push_back({core::ClientOp::read, false, part.lba * block_size,
                          static_cast<std::uint32_t>(part.data.size()), part.data.data(), id});
    }
    for (const auto& r : requests) feed(n, r);
  });
}

bool Cluster::on_surveyed(Node& n, std::uint64_t id, int error) {
  auto it = survey_.find(id);
  if (it == survey_.end()) return false;
  SurveyPart part = std::move(it->second);
  survey_.erase(it);
  if (error != 0)
    check_read_error(n, part.lba, part.data.size() / block_size, part.errors,
                     fmt::format("survey of replica {}", n.id));
  if (part.survey != n.survey.no) return true;
  if (error != 0) {
    n.survey.no = 0;  // mounts again if the replica is still primary
    schedule(500, [this, &n, life = n.life] {
      if (n.life != life || !n.is_primary() || n.survey.no != 0 || n.mount) return;
      // If it is deposed without knowing, other replicas may have promised more since.
      auto promised = std::move(n.survey.promised);
      begin_survey(n);
      n.survey.promised = std::move(promised);
    });
    return true;
  }
  for (std::uint64_t b = 0; b < part.data.size() / block_size; ++b)
    n.survey.image[part.lba + b] = history_.compose(part.data.data() + b * block_size);
  if (--n.survey.left > 0) return true;
  n.survey.no = 0;
  mount(n, n.survey.image);
  return true;
}

// The content of lost records is partly in the data area. No request has written this mixture.
void Cluster::note_accepted(Node& n) {
  coverage_.hit("operator: accepts a loss");
  Found found = after_power_cut(n);
  if (found.states.empty()) history_.add_mixture(found.image);
  n.loss_accepted = false;
}

// The image must hold every promise from before its reads began. With an arbiter, the next primary may
// promise more before the reads end. After the use of force, missing promises must be on another replica
// (check_kept).
void Cluster::mount(Node& n, const Image& image) {
  auto states = history_.matching(image);
  const auto& promised = external_ ? n.survey.promised : history_.promised();
  auto kept = [&](History::State s) {
    return std::count_if(promised.begin(), promised.end(),
                         [&](History::State p) { return history_.leads_to(p, s); });
  };
  std::stable_sort(states.begin(), states.end(),
                   [&](History::State a, History::State b) { return kept(a) < kept(b); });
  if (states.empty() || (!forced_ && static_cast<std::size_t>(kept(states.back())) < promised.size()))
    violated(fmt::format("replica {} is promoted without an acknowledged write: {}", n.id,
                         history_.explain(image)));
  n.mount = std::make_shared<Mount>();
  n.mount->beginning = image;
  n.mount->path = {states.back(), image};
  n.mount->completed = states.back();
  if (!primary() || is_granted(n)) client_at_ = n.index;
  client_step(n, n.mount);
}

// Later answers of the device belong to that mount only.
void Cluster::unmount(Node& n) {
  n.mount.reset();
  n.survey.no = 0;
  if (client_at_ != n.index) return;
  client_at_ = SIZE_MAX;
  for (auto& other : nodes_)
    if (other->mount && (!primary() || is_granted(*other))) client_at_ = other->index;
}

}  // namespace twinloft::repl::sim
