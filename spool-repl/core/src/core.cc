#include "twinloft/spool-repl/core/core.h"

#include <optional>
#include <variant>

#include "primary.h"
#include "promotion.h"
#include "read_answers.h"
#include "repair_answer.h"
#include "secondary.h"
#include "spiller.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

// The order matters: the checkpointer and the role refer to the volume.
struct Core::Parts {
  Parts(const Config& config, const RecoveredLog& recovered, Arena& arena, Arena& reads, Random& random)
      : volume(config, recovered, arena, reads, random),
        checkpointer(volume),
        repair(volume, checkpointer),
        answers(volume, repair),
        read_answers(volume, repair),
        promotion(volume),
        spiller(volume) {}
  Volume volume;
  Checkpointer checkpointer;
  Repair repair;
  RepairAnswers answers;
  ReadAnswers read_answers;
  Promotion promotion;
  Spiller spiller;
  std::optional<Promotion::Granted> granted;
  std::optional<Token> demote_command;
  std::optional<std::uint64_t> loss_synced_by;  // round of the checkpointer
  NodeState told;                               // the state that the other replicas got last
  std::variant<std::monostate, Primary, Secondary> role;

  Primary* primary() { return std::get_if<Primary>(&role); }
  Secondary* secondary() { return std::get_if<Secondary>(&role); }
  template <class F>
  void with_role(F f) {
    if (auto* p = primary())
      f(*p);
    else if (auto* s = secondary())
      f(*s);
  }
  void step(const Promote& e);
  void step(const Demote& e);
  void step(const Discard& e);
  void step(const PeerUp& e);
  void step(const PeerDown& e);
  void step(const PeerUnfit& e);
  void step(PeerInput& e);
  void step(const DiskDone& e);
  void step(JournalReadDone& e);
  void step(const ArbiterAnswer& e);
  void two_primaries(ReplicaId other, const MatchRequest& m);
  void become_primary();
  void become_secondary();
  void refuse_demotion();
  void tell_state(bool always);
  bool step_repair(ReplicaId from, PeerMessage& message);
  bool step_balanced_read(ReplicaId from, const PeerMessage& message);
  void advance_repair();
  bool may_be_promoted();
  void advance();
};

Core::Core(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Core::~Core() = default;

// Room for uncommitted records up to the send window, for a record being built, and for a record being
// received. The same again for committed blocks that are not home yet. Then the blocks under repair.
std::size_t arena_blocks_min(const Config& config) {
  return 2 * (config.send_window_bytes / block_size + 2 * record_blocks_max) + 64 + Repair::blocks_max;
}

std::size_t recovery_blocks(const Config& config, std::size_t arena_blocks) {
  return std::min(arena_blocks - std::min(arena_blocks, arena_blocks_min(config)), arena_blocks / 4 * 3);
}

Result<std::unique_ptr<Core>> Core::create(const Config& config, RecoveredLog recovered, Arena& arena,
                                           Arena& read_arena, Random& random,
                                           const std::vector<SpillChunk>& spill) {
  if (arena.size() < arena_blocks_min(config))
    return fail(Errc::invalid, "an arena of {} MiB is too small: at least {} MiB are needed",
                arena.size() * block_size >> 20, (arena_blocks_min(config) * block_size >> 20) + 1);
  TL_CHECK(read_arena.size() >= read_arena_blocks_min);
  auto parts = std::make_unique<Parts>(config, recovered, arena, read_arena, random);
  TL_TRY(parts->volume.load(std::move(recovered)));
  parts->spiller.load(spill);
  parts->role.emplace<Secondary>(parts->volume, parts->checkpointer);  // only Promote makes it primary
  std::unique_ptr<Core> core(new Core(std::move(parts)));
  core->advance();
  return core;
}

void Core::note_time(Instant now) {
  parts_->volume.now = std::max(parts_->volume.now, now);
}

void Core::step(Event event) {
  std::visit(
      [&](auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, ClientRequest>) {
          parts_->with_role([&](auto& role) { role.submit(e); });
        } else if constexpr (std::is_same_v<E, CheckpointNow>) {
          parts_->checkpointer.request_all();
        } else if constexpr (std::is_same_v<E, SetReadPolicy>) {
          parts_->volume.read_policy = e.policy;
        } else if constexpr (std::is_same_v<E, Detach>) {
          parts_->volume.fail_device("the device was detached while it was in use");
        } else {
          parts_->step(e);
        }
      },
      event);
  advance();
}

void Core::Parts::step(JournalReadDone& e) {
  std::uint64_t n = number_of(e.token);
  if (kind_of(e.token) == TokenKind::spill_fill) return spiller.on_journal_read(n, e.error, e.bytes);
  if (kind_of(e.token) == TokenKind::relay_read) {
    if (secondary()) secondary()->on_relay_read(n, e.error, std::move(e.bytes));
    return;
  }
  if (!primary()) return;
  if (kind_of(e.token) == TokenKind::spill_read)
    primary()->on_spill_read(n, e.error, std::move(e.bytes));
  else
    primary()->on_journal_read(n, e.error, std::move(e.bytes));
}

void Core::Parts::step(const DiskDone& e) {
  std::uint64_t n = number_of(e.token);
  switch (kind_of(e.token)) {
    case TokenKind::journal_write:
      volume.on_journal_written(n, e.error);
      break;
    case TokenKind::client_read:
      primary()->on_client_read(n, e.error);
      break;
    case TokenKind::fill_read:
      primary()->on_fill_read(n, e.error);
      break;
    case TokenKind::sync_read:
      primary()->on_sync_read(n, e.error);
      break;
    case TokenKind::home_write:
      checkpointer.on_home_written(n, e.error);
      break;
    case TokenKind::check_read:
      secondary()->on_check_read(n, e.error);
      break;
    case TokenKind::repair_read:
      repair.on_read(n, e.error);
      break;
    case TokenKind::answer_read:
      answers.on_read(n, e.error);
      break;
    case TokenKind::balanced_read:
      read_answers.on_read(n, e.error);
      break;
    case TokenKind::bitmap:
      checkpointer.on_bitmap_written(e.error);
      break;
    case TokenKind::home_sync:
      checkpointer.on_home_synced(e.error);
      break;
    case TokenKind::archive:
      secondary()->on_archived(e.error);
      break;
    case TokenKind::erase:
      secondary()->on_erased(e.error);
      break;
    case TokenKind::superblock: {
      unsigned purposes = volume.on_superblock_written(e.error);
      if (purposes & Volume::for_epoch) volume.log.release_durable();
      if (purposes & Volume::for_source) volume.disk.source_durable();
      if (purposes & Volume::for_commit) checkpointer.on_commit_durable();
      if (purposes & Volume::for_tail) checkpointer.on_tail_durable();
      if ((purposes & Volume::for_cut) && secondary()) secondary()->on_cut_durable();
      if ((purposes & Volume::for_reset) && secondary()) secondary()->on_reset_durable();
      if ((purposes & Volume::for_consistent) && secondary()) secondary()->on_consistent_durable();
      break;
    }
    case TokenKind::spill_write:
      spiller.on_written(n, e.error);
      break;
    case TokenKind::journal_read:
    case TokenKind::spill_fill:
    case TokenKind::spill_read:
    case TokenKind::relay_read:
    case TokenKind::arbiter:
      TL_CHECK_MSG(false, "this token has its own event");
  }
}

// ---- roles

void Core::Parts::step(const Promote& e) {
  if (auto* p = primary()) {
    bool alone = e.force && p->go_on_alone();
    volume.out.commands.push_back(
        {e.token, true, alone ? "continuing without the absent replicas" : "already Primary"});
    return;
  }
  if (granted || demote_command) {
    volume.out.commands.push_back({e.token, false, "a change of role is under way"});
    return;
  }
  if (secondary()->discards()) {
    if (e.token != 0)
      volume.out.commands.push_back({e.token, false, "this replica's history is being discarded"});
    return;
  }
  promotion.ask(e.token == 0 ? std::nullopt : std::optional(e.token), e.force, e.accept_loss);
}

void Core::Parts::step(const Demote& e) {
  if (!primary()) {
    promotion.give_up("demoted meanwhile");
    volume.out.commands.push_back({e.token, true, "already Secondary"});
    return;
  }
  if (demote_command) {
    volume.out.commands.push_back({e.token, false, "a demotion is under way"});
    return;
  }
  demote_command = e.token;
  primary()->demote();
}

void Core::Parts::step(const Discard& e) {
  if (primary()) {
    volume.out.commands.push_back({e.token, false, "this replica is Primary: demote it first"});
  } else if (granted || promotion.busy()) {
    volume.out.commands.push_back({e.token, false, "a promotion is under way: `demote` cancels it"});
  } else {
    secondary()->discard(e);
  }
}

void Core::Parts::become_primary() {
  TL_CHECK(granted && secondary() && secondary()->settled() && !promotion.busy());
  Promotion::Granted g = std::move(*granted);
  granted.reset();
  if (volume.disk.inconsistent() || volume.disk.refilling()) volume.accept_loss();
  auto& p = role.emplace<Primary>(volume, checkpointer, repair);
  volume.out.notices.push_back({(g.grounds.flags & epoch_by_force) != 0, g.text, NoticeKind::role,
                                volume.sb.replica, g.epoch.counter});
  volume.out.role_changes.push_back({Role::primary});
  if (g.command) volume.out.commands.push_back({*g.command, true, g.text});
  tell_state(true);
  p.start(g.epoch, g.in_sync, std::move(g.value), g.grounds);
  TL_CHECK(p.epoch() == g.epoch && !volume.disk.inconsistent());
}

void Core::Parts::become_secondary() {
  TL_CHECK(primary()->may_step_down());
  bool lost = primary()->lost();
  if (!lost) primary()->tell_commit();
  role.emplace<Secondary>(volume, checkpointer);
  volume.tail_limit = UINT64_MAX;
  volume.out.role_changes.push_back({Role::secondary, lost});
  if (!lost)
    volume.out.notices.push_back({false, fmt::format("replica {} is Secondary", volume.sb.replica),
                                  NoticeKind::role, volume.sb.replica});
  if (demote_command)
    volume.out.commands.push_back(
        {*demote_command, !lost, lost ? "another primary has taken over" : "Secondary"});
  demote_command.reset();
  tell_state(true);
}

// After a failure, missing writes never become durable on other replicas. The command would wait forever.
void Core::Parts::refuse_demotion() {
  if (!demote_command || !primary() || !volume.failed || primary()->lost()) return;
  primary()->stay();
  std::string text = fmt::format(
      "Cannot demote: the device has failed ({}), and its last writes are not on the other replicas. Restart "
      "spool-repl on this machine: the volume then starts as Secondary",
      volume.failure);
  volume.out.commands.push_back({*demote_command, false, std::move(text)});
  demote_command.reset();
}

void Core::Parts::tell_state(bool always) {
  // This runs with every event, so the whole state is built only after a difference.
  bool is_told = told.primary == (primary() != nullptr) && told.inconsistent == volume.disk.inconsistent() &&
                 told.epoch == volume.told_epoch();
  if (!always && is_told) return;
  NodeState now = volume.node_state(primary() != nullptr);
  told = now;
  for (const Link& l : volume.links) {
    volume.end_split_brain_if_one_history(l);
    if (secondary()) volume.note_split_brain_of_secondaries(l);
  }
  for (const Link& l : volume.links)
    if (l.up) volume.out.sends.push_back(Send{l.config.id, now});
}

void Core::Parts::step(const ArbiterAnswer& e) {
  promotion.on_arbiter(e);
  if (auto* p = primary()) p->on_arbiter(e);
}

// ---- links

void Core::Parts::step(const PeerUp& e) {
  Link* link = volume.find_link(e.peer);
  if (!link) {
    volume.out.closes.push_back({e.peer, "not a peer of this volume"});
    return;
  }
  link->up = true;
  link->unfit.clear();
  link->other_arbiter = false;
  link->refused = false;
  link->knows_buffers = e.knows_buffers;
  link->knows_reads = e.knows_reads;
  link->knows_relays = e.knows_relays;
  link->since = volume.now;
  link->connection++;
  link->state.reset();
  volume.out.sends.push_back(Send{e.peer, volume.node_state(primary() != nullptr)});
  promotion.peer_up(e.peer);
  with_role([&](auto& r) { r.peer_up(e.peer); });
}

void Core::Parts::step(const PeerDown& e) {
  Link* link = volume.find_link(e.peer);
  if (!link) return;
  if (link->up) link->since = volume.now;
  link->up = false;
  link->said = link->refused ? link->state : std::nullopt;
  link->state.reset();
  promotion.peer_down(e.peer);
  with_role([&](auto& r) { r.peer_down(e.peer); });
}

void Core::Parts::step(const PeerUnfit& e) {
  Link* link = volume.find_link(e.peer);
  if (!link || link->up || link->unfit == e.why) return;
  link->unfit = e.why;
  link->other_arbiter = e.other_arbiter;
  volume.out.notices.push_back({true, e.why, NoticeKind::refused, e.peer});
}

void Core::Parts::step(PeerInput& e) {
  Link* link = volume.find_link(e.peer);
  if (!link || !link->up) return;
  if (std::holds_alternative<Refuse>(e.message)) link->refused = true;
  if (auto* state = std::get_if<NodeState>(&e.message)) {
    link->state = *state;
    volume.end_split_brain_if_one_history(*link);
    if (secondary()) volume.note_split_brain_of_secondaries(*link);
    promotion.peer_state(e.peer, *state);
    with_role([&](auto& r) { r.peer_state(e.peer, *state); });
  } else if (auto* claim = std::get_if<Claim>(&e.message)) {
    if (primary() || granted)
      volume.out.sends.push_back(
          Send{e.peer,
               ClaimReply{claim->attempt, false, fmt::format("replica {} is Primary", volume.sb.replica)}});
    else
      promotion.handle(e.peer, *claim, secondary()->follows());
  } else if (auto* reply = std::get_if<ClaimReply>(&e.message)) {
    promotion.handle(e.peer, *reply);
  } else if (auto* m = std::get_if<MatchRequest>(&e.message); m && (primary() || granted)) {
    two_primaries(e.peer, *m);
  } else if (!step_repair(e.peer, e.message) && !step_balanced_read(e.peer, e.message)) {
    if (m) promotion.give_up(fmt::format("replica {} is Primary", e.peer));
    with_role([&](auto& r) { r.peer_input(e.peer, std::move(e.message)); });
  }
}

// True: the message was a question or an answer of a repair.
bool Core::Parts::step_repair(ReplicaId from, PeerMessage& message) {
  if (auto* question = std::get_if<FetchBlock>(&message)) {
    if (question->lba.v >= volume.sb.volume_blocks)
      volume.refuse_link(from, "request for a block beyond the volume's end");
    else
      answers.ask(from, *question);
    return true;
  }
  auto* answer = std::get_if<FetchedBlock>(&message);
  if (answer && !repair.handle(from, *answer)) volume.refuse_link(from, "unrequested block");
  return answer != nullptr;
}

// True: the message was a question or an answer of a balanced read. A primary that has stepped down may still
// get answers.
bool Core::Parts::step_balanced_read(ReplicaId from, const PeerMessage& message) {
  if (const auto* question = std::get_if<ReadBlocks>(&message)) {
    std::uint64_t all = volume.sb.volume_blocks;
    if (question->lba.v >= all || question->blocks > all - question->lba.v)
      volume.refuse_link(from, "request for blocks beyond the volume's end");
    else if (primary())
      volume.refuse_link(from, "unexpected message of a primary: both replicas may be primary");
    else
      read_answers.ask(from, *question);
    return true;
  }
  const auto* answer = std::get_if<BlocksRead>(&message);
  if (answer && primary() && !primary()->on_blocks_read(from, *answer))
    volume.refuse_link(from, "unrequested blocks");
  return answer != nullptr;
}

// Runs after the role, which may have committed the records that a repair waits for. A finished repair lets
// requests of the primary continue.
void Core::Parts::advance_repair() {
  if (!repair.busy() && !answers.busy() && !read_answers.busy()) return;
  std::vector<Stream> streams;
  with_role([&](auto& r) { streams = r.streams(); });
  answers.advance(streams);
  read_answers.advance(secondary() ? std::span<const Stream>(streams) : std::span<const Stream>());
  if (primary() && primary()->lost()) repair.give_up();
  repair.advance(streams);
  auto finished = repair.take_finished();
  if (finished.empty() || !primary()) return;
  primary()->on_repaired(finished);
  primary()->advance();
}

// The newer epoch stays. The older epoch yields only if the newer history has all of its acknowledged writes.
// An arbiter ensures that. Without an arbiter, the newer primary must have been a member of the older epoch.
void Core::Parts::two_primaries(ReplicaId other, const MatchRequest& m) {
  if (!primary())
    return volume.refuse_link(other, fmt::format("replica {} is being promoted", volume.sb.replica));
  // Equal counters: two replicas were promoted at the same time, by force or in a partition.
  std::uint64_t ours = primary()->epoch().counter;
  bool newer = m.epoch.counter > ours || (m.epoch.counter == ours && other < volume.sb.replica);
  bool nothing_alone = volume.config.arbiter == Arbiter::external ||
                       (volume.recorded().in_sync & set_of(other));
  if (newer && nothing_alone) {
    primary()->lose(fmt::format("replica {} is primary since epoch {}", other, m.epoch.counter));
    volume.refuse_link(other, fmt::format("replica {} steps down first", volume.sb.replica));
  } else if (newer || !nothing_alone) {
    primary()->refuse_other(
        other,
        fmt::format("split brain: replicas {} and {} both continued as primary", volume.sb.replica, other),
        true);
  } else {
    primary()->refuse_other(other,
                            fmt::format("replica {} is primary since epoch {}, which is newer than {}",
                                        volume.sb.replica, primary()->epoch().counter, m.epoch.counter),
                            false);
  }
}

// A promotion in spite of a loss keeps blocks in the data area that no record here has, and these blocks are
// unknown. Reads will show them, so they must be durable, and all digests must be forgotten. Both happen
// before the recorded loss is cleared.
bool Core::Parts::may_be_promoted() {
  if (!promotion.accepts_damage()) {
    loss_synced_by.reset();
    return secondary()->settled();
  }
  if (!loss_synced_by) {
    volume.digests.forget();
    checkpointer.request_sync();
    loss_synced_by = checkpointer.rounds_begun() + 1;
  }
  return secondary()->settled() && checkpointer.rounds_done() >= *loss_synced_by;
}

void Core::Parts::advance() {
  if (secondary()) {
    promotion.advance(may_be_promoted());
    if (auto g = promotion.take()) granted = std::move(g);
    if (granted && secondary()->settled()) become_primary();
  }
  volume.far.note_time(volume.now);
  volume.give_up_unreachable();
  with_role([](auto& r) { r.advance(); });
  advance_repair();
  if (primary() && primary()->may_step_down()) become_secondary();
  refuse_demotion();
  spiller.advance();
  // A round without blocks may end at once. No event follows. The role may wait for that, and may then ask
  // for the next round.
  for (RecordNo home = 0; home != volume.home_end;) {
    home = volume.home_end;
    checkpointer.advance();
    if (volume.home_end != home) with_role([](auto& r) { r.advance(); });
  }
  tell_state(false);
}

void Core::advance() {
  parts_->advance();
#ifndef NDEBUG
  check_invariants();
#endif
}

void Core::check_invariants() const {
  parts_->promotion.check_invariants();
  parts_->with_role([](auto& role) { role.check_invariants(); });
  // A primary has no pending promotion.
  TL_CHECK(!parts_->primary() || (!parts_->granted && !parts_->promotion.busy()));
  TL_CHECK(!parts_->demote_command || parts_->primary());
}

void Core::tick(Instant now) {
  parts_->volume.now = now;
  parts_->promotion.note_start(now);
  advance();
}

std::optional<Instant> Core::next_tick() const {
  std::optional<Instant> next;
  // Work that was already due at the last tick() waits for an event, not for time.
  auto consider = [&](std::optional<Instant> at) {
    if (at && *at > parts_->volume.now && (!next || *at < *next)) next = at;
  };
  consider(parts_->checkpointer.next_tick());
  consider(parts_->repair.next_tick());
  consider(parts_->answers.next_tick());
  consider(parts_->read_answers.next_tick());
  consider(parts_->spiller.next_tick());
  if (auto* p = parts_->primary())
    consider(p->next_tick());
  else
    consider(parts_->promotion.next_tick());
  if (auto* s = parts_->secondary()) consider(s->next_tick());
  return next;
}

void Core::get_output(Output& out) {
  TL_CHECK(out.empty());
  if (auto* p = parts_->primary(); p && p->end_turn()) advance();
  parts_->with_role([](auto& role) { role.flush_messages(); });
  if (!parts_->volume.out.empty()) out.swap(parts_->volume.out);
  parts_->volume.outputs++;
}

VolumeStatus Core::status() const {
  const Volume& v = parts_->volume;
  VolumeStatus s = v.counters;
  s.now = v.now;
  s.role = std::holds_alternative<Primary>(parts_->role) ? Role::primary : Role::secondary;
  s.failed = v.failed;
  s.failure = v.failure;
  s.last = v.log.last_mark().lsn;
  s.durable = v.log.mark_before(v.log.durable_end()).lsn;
  s.commit = v.commit_lsn();
  s.tail = v.log.tail_mark().lsn;
  s.journal_used = v.log.used_bytes();
  s.journal_size = v.log.ring_bytes();
  s.arena_used = std::uint64_t{v.arena.used()} * block_size;
  s.arena_size = std::uint64_t{v.arena.size()} * block_size;
  s.refilling = v.disk.refilling() != nullptr;
  s.dirty_blocks = v.committed.data_blocks();
  s.behind = v.behind;
  s.spilled = v.far.spill().bytes();
  s.read_policy = v.read_policy;
  parts_->with_role([&](auto& role) { role.fill_status(s); });
  if (s.role == Role::secondary) s.waits_for = parts_->promotion.why_not();
  for (PeerStatus& p : s.peers) {
    const Link* l = v.find_link(p.id);
    bool said = l && l->said && v.now < l->since + v.config.ask_refused_for;  // the peer will reconnect soon
    const NodeState* state = l && l->state ? &*l->state : said ? &*l->said : nullptr;
    p.known = state != nullptr;
    p.seen = l && l->connection > 0;
    p.since = p.seen ? l->since : parts_->promotion.started();
    p.primary = state && state->primary;
    p.inconsistent = state && state->inconsistent;
    p.split_brain = v.split_brain_with(p.id) != nullptr;
    if (l && !l->unfit.empty()) p.connection = ConnectionState::StandAlone, p.why = l->unfit;
    if (const FarBuffer* b = v.far.find(p.id)) {
      bool waits = p.buffer && p.buffer->waits;  // only a primary knows
      p.buffer = v.far.status(*b, v.now);
      p.buffer->waits = waits;
    }
    if (const DirtyMap* d = v.find_dirty(p.id)) {
      p.dirty_blocks = d->count();
      p.dirty_known = d->slot().known;
    }
  }
  return s;
}

bool Core::settled() const {
  const Volume& v = parts_->volume;
  bool role = false;
  parts_->with_role([&](auto& r) { role = r.settled(); });
  return role && v.journal_in_flight == 0 && v.log.durable_end() == v.log.end() &&
         parts_->checkpointer.nothing_to_do() && parts_->repair.idle() && parts_->answers.idle() &&
         !parts_->read_answers.busy();
}

}  // namespace twinloft::repl::core
