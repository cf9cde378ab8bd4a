// The client, the operator, and what is checked: the client's history against the bytes on the disks.
#include <algorithm>
#include <cerrno>

#include "node.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::sim {

namespace {
void fill_block(std::byte* block, std::uint64_t value) {
  for (std::size_t i = 0; i < block_size; i += 8) store_le(block + i, value);
}
}  // namespace

// ---- the client ----------------------------------------------------------------------------------------------------

Cluster::Node* Cluster::primary() { return client_at_ == SIZE_MAX ? nullptr : nodes_[client_at_].get(); }

void Cluster::client_step() {
  if (client_runs_ && !client_paused_ && primary() && requests_.size() < 24) {
    std::uint64_t kind = random_.below(heavy_ ? 70 : 100);
    if (kind < 55) submit(core::ClientOp::write, false);
    else if (kind < 62) submit(core::ClientOp::write, true);
    else if (kind < 74) submit(core::ClientOp::flush, false);
    else if (kind < 80) submit(core::ClientOp::trim, random_.below(4) == 0);
    else if (kind < 84) submit(core::ClientOp::write_zeroes, random_.below(4) == 0);
    else submit(core::ClientOp::read, false);
  }
  schedule(1 + below(random_.below(8) == 0 ? 3000 : 60), [this] { client_step(); });
}

void Cluster::submit(core::ClientOp op, bool fua) {
  std::uint64_t id = next_request_++;
  Request r{op, fua, 0, history_.completed_end(), 0, 0, {}};
  if (op != core::ClientOp::flush) {
    bool large = heavy_ || random_.below(10) == 0;
    std::uint64_t most = std::min<std::uint64_t>(volume_blocks_, large ? 200 : 8);
    r.blocks = 1 + random_.below(most);
    r.lba = random_.below(volume_blocks_ - r.blocks + 1);
    if (op == core::ClientOp::read) aim_at_unreadable(r.lba, r.blocks);
  }
  bool writes = op != core::ClientOp::flush && op != core::ClientOp::read;
  if (writes) r.index = history_.submit(r.lba, r.blocks, op != core::ClientOp::write);
  if (op == core::ClientOp::write || op == core::ClientOp::read) {
    r.data = ClientMemory(r.blocks * block_size, random_.below(2) == 0);
    if (op == core::ClientOp::write)
      for (std::uint64_t b = 0; b < r.blocks; ++b) fill_block(r.data.data() + b * block_size, history_.id_of(r.index));
  }
  if (op == core::ClientOp::read) r.errors = before_read(*primary(), r.lba, r.blocks);
  auto [it, inserted] = requests_.emplace(id, std::move(r));
  core::ClientRequest request{op, fua, it->second.lba * block_size,
                              static_cast<std::uint32_t>(it->second.blocks * block_size), it->second.data.data(), id};
  feed(*primary(), request);
}

void Cluster::on_complete(Node& n, std::uint64_t id, int error) {
  digest(id * 4096 + static_cast<std::uint64_t>(error));
  if (on_surveyed(n, id, error)) return;
  if (n.index != client_at_) return on_stale(n, id, error);
  auto it = requests_.find(id);
  if (it == requests_.end()) violated(fmt::format("request {} is completed twice or was never made", id));
  Request r = std::move(it->second);
  requests_.erase(it);
  check_device(n, r, id, error);
  if (error != 0) return;  // nothing was promised
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

// Asked of a primary that another one has taken the place of since: nothing that the new history lacks may be promised.
void Cluster::on_stale(Node& n, std::uint64_t id, int error) {
  auto it = stale_.find(id);
  if (it == stale_.end()) violated(fmt::format("request {} is completed twice or was never made", id));
  auto [request, fork] = std::move(it->second);
  stale_.erase(it);
  if (error != 0) return;
  bool promises = (request.op == core::ClientOp::flush && request.completed_before > fork) ||
                  (request.op != core::ClientOp::flush && request.fua && request.index >= fork);
  if (promises && took_over_without_trace(n)) throw Undecided();
  if (promises) violated(fmt::format("request {} is acknowledged by deposed replica {}", id, n.id));
  coverage_.hit("role: a deposed primary answers");
}

// The new primary died before anything of its epoch was durable anywhere, and before it knew more than it was read from. All that the
// arbiter counts follow the one before it again, and have whatever that one acknowledges. The client's history has been cut
// off where the new one was mounted, and is not put together again.
bool Cluster::took_over_without_trace(const Node& deposed) {
  if (!external_ || !arbiter_.value || primary() || survey_at_ != SIZE_MAX) return false;
  std::uint64_t epoch = deposed.core->status().epoch.counter;
  return std::all_of(nodes_.begin(), nodes_.end(), [&](auto& n) {
    bool newer = after_power_cut(*n).epoch > epoch || (n.get() != &deposed && n->is_primary());
    return !(arbiter_.value->in_sync & set_of(n->id)) || !newer;
  });
}

// Programs on the machine of the former primary know of nothing and go on for as long as its device answers.
void Cluster::ask_deposed(Node& n, std::size_t completed, std::size_t kept) {
  if (!n.is_primary() || client_at_ == n.index || !client_runs_) return;
  std::uint64_t id = next_request_++;
  bool reads = random_.below(2) == 0;
  Request r{reads ? core::ClientOp::read : core::ClientOp::flush, false, 0, completed, 0, reads ? 1u : 0u, {}};
  if (reads) {
    r.lba = random_.below(volume_blocks_);
    r.data = ClientMemory(block_size, random_.below(2) == 0);
  }
  auto& asked = stale_.emplace(id, std::pair{std::move(r), kept}).first->second.first;
  core::ClientRequest request{asked.op, false, asked.lba * block_size, static_cast<std::uint32_t>(asked.blocks * block_size),
                              asked.data.data(), id};
  schedule(below(2000), [this, &n, completed, kept, life = n.life] {
    if (n.life == life) ask_deposed(n, completed, kept);
  });
  feed(n, request);
}

// ---- roles ---------------------------------------------------------------------------------------------------------

void Cluster::on_role(Node& n, core::RoleChange change) {
  note(fmt::format("replica {} is {}{}", n.id, change.role == core::Role::primary ? "primary" : "secondary",
                   change.lost ? ", deposed" : ""));
  if (change.role == core::Role::secondary) {
    if (change.lost) coverage_.hit("role: deposed");
    else coverage_.hit("role: demoted");
    if (client_at_ == n.index) {
      // After a demotion in good order everything completed is everywhere; see what the next primary has.
      if (!change.lost) history_.promise(history_.completed_end());
      leave_client();
    }
    if (survey_at_ == n.index) survey_at_ = SIZE_MAX;
    mount_other(n);
    return;
  }
  coverage_.hit("role: promoted");
  if (client_at_ != SIZE_MAX) {
    coverage_.hit("role: promoted while another one still thinks it is primary");
    if (!external_) violated(fmt::format("replicas {} and {} are primary at the same time", client_at_ + 1, n.id));
  }
  begin_survey(n);
}

// The client mounts: it reads everything, and what it sees is what happened.
void Cluster::begin_survey(Node& n) {
  survey_at_ = n.index;
  survey_no_++;
  survey_left_ = 0;
  survey_image_.assign(volume_blocks_, 0);
  for (std::uint64_t lba = 0; lba < volume_blocks_; lba += survey_blocks, ++survey_left_)
    survey_.emplace(next_request_++,
                    SurveyPart{n.index, survey_no_, lba,
                               ClientMemory(std::min(survey_blocks, volume_blocks_ - lba) * block_size, random_.below(2) == 0)});
  schedule(0, [this, &n, no = survey_no_] {
    if (survey_no_ != no || survey_at_ != n.index) return;
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

// The client has left a node. One that was promoted before that one, and holds the grant by now, is mounted instead.
void Cluster::mount_other(const Node& left) {
  if (client_at_ != SIZE_MAX || survey_at_ != SIZE_MAX) return;
  for (auto& n : nodes_) {
    bool granted = !external_ || (arbiter_.value && arbiter_.value->writer == n->id);
    if (n->index != left.index && n->is_primary() && granted) return begin_survey(*n);
  }
}

bool Cluster::on_surveyed(Node& n, std::uint64_t id, int error) {
  auto it = survey_.find(id);
  if (it == survey_.end()) return false;
  SurveyPart part = std::move(it->second);
  survey_.erase(it);
  if (error != 0) check_read_error(n, part.lba, part.data.size() / block_size, part.errors, fmt::format("survey of replica {}", n.id));
  if (part.survey != survey_no_ || survey_at_ != n.index) return true;
  if (error != 0) {
    survey_at_ = SIZE_MAX;  // mounted again, if it still is primary
    schedule(500, [this, &n, no = survey_no_, life = n.life] {
      if (n.life == life && n.is_primary() && survey_no_ == no) begin_survey(n);
    });
  }
  for (std::uint64_t b = 0; b < part.data.size() / block_size; ++b)
    survey_image_[part.lba + b] = load_le<std::uint64_t>(part.data.data() + b * block_size);
  if (--survey_left_ > 0 || error != 0) return true;
  survey_at_ = SIZE_MAX;
  // It must hold everything that was promised.
  std::size_t completed = history_.completed_end();
  auto kept = history_.restart_with(survey_image_);
  if (!kept) violated(fmt::format("replica {} is promoted without a promise: {}", n.id, history_.explain(survey_image_)));
  for (auto& [old, r] : requests_) stale_.emplace(old, std::pair{std::move(r), *kept});
  requests_.clear();
  std::size_t former = std::exchange(client_at_, n.index);
  if (former != SIZE_MAX) ask_deposed(*nodes_[former], completed, *kept);
  for (auto& other : nodes_) other->follows = false;
  return true;
}

// The client's node is gone or no longer primary: what it answers from now on is checked, and counts for nothing.
void Cluster::leave_client() {
  client_at_ = SIZE_MAX;
  for (auto& [id, r] : requests_) stale_.emplace(id, std::pair{std::move(r), history_.promised()});
  requests_.clear();
}

bool Cluster::is_cut_off(const Node& n) const {
  return std::none_of(links_.begin(), links_.end(), [&](const Link& l) { return (l.a == n.index || l.b == n.index) && l.up; });
}

// Promotes where nobody is primary, and now and then asks for what must be refused, or swaps the roles.
void Cluster::operator_step() {
  if (!operator_runs_) return;
  Node& n = *nodes_[random_.below(nodes_.size())];
  Node* p = primary();
  if (n.alive() && !n.command_open) {
    // Whoever watches the machines sees that nobody reaches this one any more, and does not wait for it.
    bool wanted = !p || !p->alive() || random_.below(6) == 0 || (external_ && is_cut_off(*p));
    if (wanted && n.protocol == core::Protocol::C && !n.is_primary()) {
      if (p) coverage_.hit("operator: promotes beside a primary");
      n.command_open = true;
      feed(n, core::Promote{1, false});
    } else if (client_runs_ && n.is_primary() && random_.below(4) == 0) {
      // In good order: the file system is unmounted first, so nothing is under way.
      client_paused_ = true;
      n.command_open = true;
      std::int64_t give_up = now_us_ + 20'000;
      auto ask = std::make_shared<std::function<void()>>();
      *ask = [this, &n, ask, give_up, life = n.life] {
        if (n.life != life || !n.is_primary() || now_us_ > give_up) {
          n.command_open = false;
          client_paused_ = false;
          return;
        }
        if (!requests_.empty()) return schedule(200, *ask);
        client_paused_ = false;
        feed(n, core::Demote{2});
      };
      schedule(0, *ask);
    }
  }
  schedule(500 + below(8000), [this] { operator_step(); });
}

// ---- checks --------------------------------------------------------------------------------------------------------

// What a person would find who pulled the plug now: recovery on copies of the disks.
Cluster::Found Cluster::after_power_cut(const Node& n) {
  SimFile journal = n.journal, data = n.data;
  SeededRandom torn(random_.draw());
  if (n.alive()) {
    journal.power_cut(torn);
    data.power_cut(torn);
  }
  auto recovered = journal::recover(journal, data);
  if (!recovered) violated(fmt::format("replica {} would not recover: {}", n.id, recovered.error().message));
  Found found;
  std::vector<Page> content(volume_blocks_);
  for (std::uint64_t b = 0; b < volume_blocks_; ++b) content[b] = data.page(b);
  Lsn last = recovered->log.superblock.tail.lsn;
  found.epoch = recovered->log.superblock.tail_epoch.counter;
  for (const StoredRecord& r : recovered->log.records) {
    found.epoch = r.body.header.epoch.counter;
    last = r.body.mark().lsn;
    if (r.body.header.type == RecordType::epoch) found.in_sync = r.body.epoch_change.in_sync;
    if (r.body.mark().lsn <= recovered->log.commit) continue;
    const std::byte* at = r.payload.data();
    for (const Extent& e : r.body.extents)
      for (std::uint64_t b = e.lba.v; b < e.lba.v + e.blocks; ++b) {
        content[b] = e.kind == ExtentKind::zeros ? Page() : Page::of(at);
        if (e.kind != ExtentKind::zeros) at += block_size;
      }
  }
  if (found.in_sync == 0)
    for (const EpochEntry& e : recovered->log.superblock.epochs)
      if (e.start <= last) found.in_sync = e.in_sync;
  for (const Page& page : content) {
    auto word = page.word();
    if (!word) violated(fmt::format("replica {}: block {} is torn", n.id, found.image.size()));
    found.image.push_back(*word);
  }
  return found;
}

void Cluster::check(const Node& n, bool need_promised, const char* when) { check(n, after_power_cut(n).image, need_promised, when); }

void Cluster::check(const Node& n, const Image& image, bool need_promised, const char* when) {
  if (history_.matching_prefix(image, need_promised)) return;
  violated(fmt::format("{}: replica {} holds no {}prefix: {}", when, n.id, need_promised ? "sufficient " : "",
                       history_.explain(image)));
}

// Every member of the recorded set holds every promise at this very moment; the others a prefix.
void Cluster::check_followers(const char* when) {
  Node* p = primary();
  if (!p) return;
  Found found = after_power_cut(*p);
  ReplicaSet in_sync = external_ && arbiter_.value ? arbiter_.value->in_sync : found.in_sync;
  auto owes = [&](const Node& n) { return (in_sync & set_of(n.id)) != 0 && !n.replaced; };
  check(*p, found.image, owes(*p), when);
  for (auto& n : nodes_)
    if (n.get() != p && n->follows) check(*n, owes(*n), when);
}

}  // namespace twinloft::repl::sim
