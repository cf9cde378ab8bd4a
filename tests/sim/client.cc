// The clients: programs that use the device of a primary, of each one that thinks it is, and what they see.
#include <algorithm>
#include <cerrno>

#include "node.h"

namespace twinloft::repl::sim {

namespace {
void fill_block(std::byte* block, std::uint64_t value) {
  for (std::size_t i = 0; i < block_size; i += 8) store_le(block + i, value);
}
}  // namespace

Cluster::Node* Cluster::primary() { return client_at_ == SIZE_MAX ? nullptr : nodes_[client_at_].get(); }

bool Cluster::is_granted(const Node& n) const { return !external_ || (arbiter_.value && arbiter_.value->writer == n.id); }

// ---- requests ------------------------------------------------------------------------------------------------------

void Cluster::client_step(Node& n, std::shared_ptr<Mount> m) {
  if (n.mount != m) return;
  if (client_runs_ && !m->paused && m->open < 24) {
    std::uint64_t kind = random_.below(heavy_ ? 70 : 100);
    if (kind < 55) submit(n, core::ClientOp::write, false);
    else if (kind < 62) submit(n, core::ClientOp::write, true);
    else if (kind < 74) submit(n, core::ClientOp::flush, false);
    else if (kind < 80) submit(n, core::ClientOp::trim, random_.below(4) == 0);
    else if (kind < 84) submit(n, core::ClientOp::write_zeroes, random_.below(4) == 0);
    else submit(n, core::ClientOp::read, false);
  }
  schedule(1 + below(random_.below(8) == 0 ? 3000 : 60), [this, &n, m] { client_step(n, m); });
}

void Cluster::submit(Node& n, core::ClientOp op, bool fua) {
  std::uint64_t id = next_request_++;
  Mount& m = *n.mount;
  Request r{op, fua, n.index, n.mount, 0, m.completed, 0, 0, {}};
  if (op != core::ClientOp::flush) {
    bool large = heavy_ || random_.below(10) == 0;
    std::uint64_t most = std::min<std::uint64_t>(volume_blocks_, large ? 200 : 8);
    r.blocks = 1 + random_.below(most);
    r.lba = random_.below(volume_blocks_ - r.blocks + 1);
    if (op == core::ClientOp::read) aim_at_unreadable(n, r.lba, r.blocks);
  }
  if (op != core::ClientOp::flush && op != core::ClientOp::read) {
    r.state = history_.submit(m.path, r.lba, r.blocks, op != core::ClientOp::write);
    for (std::uint64_t b = r.lba; b < r.lba + r.blocks; ++b) m.writers[b].push_back(r.state);
  }
  if (op == core::ClientOp::write || op == core::ClientOp::read) {
    r.data = ClientMemory(r.blocks * block_size, random_.below(2) == 0);
    if (op == core::ClientOp::write)
      for (std::uint64_t b = 0; b < r.blocks; ++b) fill_block(r.data.data() + b * block_size, r.state);
  }
  if (op == core::ClientOp::read) r.errors = before_read(n, r.lba, r.blocks);
  m.open++;
  auto [it, inserted] = requests_.emplace(id, std::move(r));
  core::ClientRequest request{op, fua, it->second.lba * block_size,
                              static_cast<std::uint32_t>(it->second.blocks * block_size), it->second.data.data(), id};
  feed(n, request);
}

// Right is what was there when everything answered before had happened, or what a request under way then or since writes.
void Cluster::check_read(const Node& n, Request& r) {
  for (std::uint64_t b = 0; b < r.blocks; ++b) {
    std::uint64_t value = load_le<std::uint64_t>(r.data.data() + b * block_size);
    const auto& writers = r.mount->writers[r.lba + b];
    auto after = std::upper_bound(writers.begin(), writers.end(), r.completed_before);
    bool right = value == (after == writers.begin() ? r.mount->beginning[r.lba + b] : history_.value_of(*(after - 1)));
    right = right || std::any_of(after, writers.end(), [&](History::State s) { return history_.value_of(s) == value; });
    if (!right) violated(fmt::format("a read of block {} of replica {} returns {}", r.lba + b, n.id, value));
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
  if (error != 0) return;  // nothing was promised
  if (n.index != client_at_) coverage_.hit("role: a deposed primary answers");
  switch (r.op) {
    case core::ClientOp::flush: return promise(r.completed_before, n);
    case core::ClientOp::read: return check_read(n, r);
    default:
      r.mount->completed = std::max(r.mount->completed, r.state);
      if (r.fua) promise(r.state, n);
  }
}

// What is acknowledged is one history, whoever acknowledges it, until somebody is overruled.
void Cluster::promise(History::State state, const Node& n) {
  bool fresh = history_.promise(state);
  if (history_.promised().size() > 1 && !forced_)
    violated(fmt::format("replica {} acknowledges request {}, and another history was acknowledged up to request {}", n.id, state,
                         history_.promised().front()));
  if (min_in_sync_ > 1 && fresh && random_.below(32) == 0) check_width(state, n);
}

// Durable on as many replicas as the administrator asked for.
void Cluster::check_width(History::State state, const Node& n) {
  unsigned holders = 0;
  for (auto& each : nodes_) {
    Found found = after_power_cut(*each);
    holders += history_.any_holds(found.states, state) ? 1 : 0;
  }
  if (holders < min_in_sync_)
    violated(fmt::format("replica {} acknowledges request {}, and {} replicas have it: min_in_sync is {}", n.id, state, holders, min_in_sync_));
  coverage_.hit("min_in_sync: counted");
}

// ---- roles ---------------------------------------------------------------------------------------------------------

void Cluster::on_role(Node& n, core::RoleChange change) {
  note(fmt::format("replica {} is {}{}", n.id, change.role == core::Role::primary ? "primary" : "secondary",
                   change.lost ? ", deposed" : ""));
  if (change.role == core::Role::secondary) {
    if (change.lost) coverage_.hit("role: deposed");
    else coverage_.hit("role: demoted");
    // After a demotion in good order everything completed is everywhere.
    if (!change.lost && n.mount) promise(n.mount->completed, n);
    return unmount(n);
  }
  coverage_.hit("role: promoted");
  if (n.loss_accepted) note_accepted(n);
  for (auto& other : nodes_) {
    if (other.get() == &n || !other->mount) continue;  // one that nobody has confirmed does not answer yet
    coverage_.hit("role: promoted while another one still thinks it is primary");
    if (!external_ && !forced_) violated(fmt::format("replicas {} and {} are primary at the same time", other->id, n.id));
  }
  begin_survey(n);
}

// The client mounts: it reads everything, and what it sees is what happened.
void Cluster::begin_survey(Node& n) {
  n.survey = {++survey_no_, 0, Image(volume_blocks_), history_.promised()};
  for (std::uint64_t lba = 0; lba < volume_blocks_; lba += survey_blocks, ++n.survey.left)
    survey_.emplace(next_request_++,
                    SurveyPart{n.index, survey_no_, lba,
                               ClientMemory(std::min(survey_blocks, volume_blocks_ - lba) * block_size, random_.below(2) == 0)});
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
  if (error != 0) check_read_error(n, part.lba, part.data.size() / block_size, part.errors, fmt::format("survey of replica {}", n.id));
  if (part.survey != n.survey.no) return true;
  if (error != 0) {
    n.survey.no = 0;  // mounted again, if it still is primary
    schedule(500, [this, &n, life = n.life] {
      if (n.life != life || !n.is_primary() || n.survey.no != 0 || n.mount) return;
      auto promised = std::move(n.survey.promised);  // others may have promised more since, if it has been deposed and does not know
      begin_survey(n);
      n.survey.promised = std::move(promised);
    });
    return true;
  }
  for (std::uint64_t b = 0; b < part.data.size() / block_size; ++b)
    n.survey.image[part.lba + b] = load_le<std::uint64_t>(part.data.data() + b * block_size);
  if (--n.survey.left > 0) return true;
  n.survey.no = 0;
  mount(n, n.survey.image);
  return true;
}

// The journal had lost records whose content is in the data area in part: what that makes nobody has written.
void Cluster::note_accepted(Node& n) {
  coverage_.hit("operator: accepts a loss");
  Found found = after_power_cut(n);
  if (found.states.empty()) history_.add_mixture(found.image);
  n.loss_accepted = false;
}

// It must hold everything that was promised when its reads began: where an arbiter has granted the next one meanwhile, that one may have
// promised more before they end. Where somebody was overruled, what is missing must be elsewhere (check_kept).
void Cluster::mount(Node& n, const Image& image) {
  auto states = history_.matching(image);
  const auto& promised = external_ ? n.survey.promised : history_.promised();
  auto kept = [&](History::State s) {
    return std::count_if(promised.begin(), promised.end(), [&](History::State p) { return history_.leads_to(p, s); });
  };
  std::stable_sort(states.begin(), states.end(), [&](History::State a, History::State b) { return kept(a) < kept(b); });
  if (states.empty() || (!forced_ && static_cast<std::size_t>(kept(states.back())) < promised.size()))
    violated(fmt::format("replica {} is promoted without a promise: {}", n.id, history_.explain(image)));
  n.mount = std::make_shared<Mount>();
  n.mount->beginning = image;
  n.mount->path = {states.back(), image};
  n.mount->completed = states.back();
  if (!primary() || is_granted(n)) client_at_ = n.index;
  client_step(n, n.mount);
}

// What its device answers from now on belongs to that mount and to no other.
void Cluster::unmount(Node& n) {
  n.mount.reset();
  n.survey.no = 0;
  if (client_at_ != n.index) return;
  client_at_ = SIZE_MAX;
  for (auto& other : nodes_)
    if (other->mount && (!primary() || is_granted(*other))) client_at_ = other->index;
}

}  // namespace twinloft::repl::sim
