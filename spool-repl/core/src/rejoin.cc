#include "rejoin.h"

#include <algorithm>

#include "twinloft/base/check.h"
#include "twinloft/base/errno_text.h"

namespace twinloft::repl::core {

namespace {
constexpr unsigned erases_max = 32;  // in flight
}

const Rejoin::Reset* Rejoin::wanted_reset() const {
  if (auto* r = std::get_if<Resetting>(&state_)) return &r->wanted;
  auto* c = std::get_if<Cutting>(&state_);
  return c && c->then ? &*c->then : nullptr;
}

bool Rejoin::stores_reset() const {
  auto* r = std::get_if<Resetting>(&state_);
  return r && std::holds_alternative<Stores>(r->step);
}

bool Rejoin::archives() const {
  if (auto* c = std::get_if<Cutting>(&state_)) return std::holds_alternative<Archives>(c->step);
  if (auto* r = std::get_if<Resetting>(&state_)) return std::holds_alternative<Archives>(r->step);
  return std::holds_alternative<Abandoned>(state_);
}

void Rejoin::advance() {
  try_cut();
  try_reset();
}

void Rejoin::drop() {
  if (stores_reset()) return;
  if (auto* c = std::get_if<Cutting>(&state_)) {
    c->then.reset();
  } else if (auto* a = std::get_if<Abandoned>(&state_)) {
    a->then.reset();
  } else if (auto* r = std::get_if<Resetting>(&state_)) {
    if (auto* step = std::get_if<Archives>(&r->step))
      state_ = Abandoned{step->from, std::nullopt};
    else
      state_ = Steady{};
  }
  v_.hold_checkpoint = false;
}

Rejoin::Archives Rejoin::archive_from(RecordNo first) {
  const LogRecord& last = v_.log.at(v_.log.end() - 1);
  ArchiveTail archive{
      make_token(TokenKind::archive, 0), v_.log.at(first).first, last.mark.lsn, last.epoch, {}};
  for (RecordNo no = first; no < v_.log.end(); ++no)
    archive.parts.push_back({v_.journal_offset(v_.log.at(no).pos), v_.log.at(no).total_blocks * block_size});
  Archives step{archive.first};
  v_.out.archives.push_back(std::move(archive));
  return step;
}

std::optional<Rejoin::ArchiveFailed> Rejoin::on_archived(int error) {
  TL_CHECK(archives());
  if (auto* r = std::get_if<Resetting>(&state_)) return on_reset_archived(*r, error);
  if (auto* a = std::get_if<Abandoned>(&state_)) {
    std::optional<Cut> then = a->then;
    state_ = Steady{};
    if (then) cut(*then);
    return std::nullopt;
  }
  auto& c = std::get<Cutting>(state_);
  Lsn from = std::get<Archives>(c.step).from;
  c.step = WaitsForJournal{};
  if (error != 0) {
    ArchiveFailed failed{c.cut.to.lsn, error, false};
    c.step = Erases{};  // an earlier cut may have left frames to erase
    erase();
    return failed;
  }
  // A later Begin may have moved the cut to an earlier record. Then more must be archived.
  if (c.cut.to.lsn + 1 < from)
    try_cut();
  else
    finish_cut(c);
  return std::nullopt;
}

// ---- a tail is cut off

void Rejoin::cut(Cut wanted) {
  TL_CHECK(!resets());
  TL_CHECK(v_.log.find(wanted.to).has_value());
  if (auto* a = std::get_if<Abandoned>(&state_)) {
    a->then = wanted;
    return;
  }
  auto* under_way = std::get_if<Cutting>(&state_);
  if (under_way && archives()) {  // continues after the archive
    under_way->cut = wanted;
    return;
  }
  state_ = Cutting{wanted, WaitsForJournal{}, {}};
  try_cut();
}

// A failed journal write leaves no record to archive.
void Rejoin::try_cut() {
  auto* c = std::get_if<Cutting>(&state_);
  if (!c || !std::holds_alternative<WaitsForJournal>(c->step)) return;
  if (v_.journal_in_flight > 0 || v_.failed) return;
  auto common = v_.log.find(c->cut.to);
  TL_CHECK(common.has_value());
  if (*common == v_.log.end()) return finish_cut(*c);
  c->step = archive_from(*common);
}

void Rejoin::finish_cut(Cutting& c) {
  TL_CHECK(v_.journal_in_flight == 0);
  auto common = v_.log.find(c.cut.to);
  TL_CHECK(common.has_value() && v_.log.committed_end() <= *common);
  if (*common < v_.log.end())
    v_.out.notices.push_back({false,
                              fmt::format("records {} to {} are not in the primary's history and are cut off",
                                          c.cut.to.lsn.v + 1, v_.log.last_mark().lsn.v),
                              NoticeKind::tail_cut, c.cut.primary});
  for (RecordNo no = *common; no < v_.log.end(); ++no) {
    v_.release_memory(v_.log.at(no));
    cut_off_.push_back(v_.log.at(no).pos);
  }
  v_.log.cut(*common);
  v_.far.on_cut();
  TL_CHECK(v_.log.last_mark() == c.cut.to);
  v_.sb.epochs.cut_behind(c.cut.to.lsn);
  v_.sb.cut_for = c.cut.newest;
  v_.sb.incarnation++;
  v_.sb.cut_lsn = c.cut.to.lsn;
  v_.sb.cut_incarnation = v_.sb.incarnation;
  c.step = Stores{};
  v_.write_superblock(Volume::for_cut);
}

std::optional<Rejoin::Cut> Rejoin::on_cut_durable() {
  auto* c = std::get_if<Cutting>(&state_);
  if (!c || !std::holds_alternative<Stores>(c->step)) return std::nullopt;  // another cut has begun
  TL_CHECK(v_.log.last_mark() == c->cut.to && v_.sb.cut_lsn == c->cut.to.lsn);
  c->step = Erases{};
  return erase();
}

// The superblock names only the last cut, and each start counts as a cut. So the frames of this cut must be
// gone before the next start. New records need not overwrite them: a record that does not fit before the
// ring's end starts at its beginning.
std::optional<Rejoin::Cut> Rejoin::erase() {
  auto& c = std::get<Cutting>(state_);
  TL_CHECK(std::holds_alternative<Erases>(c.step));
  if (v_.failed) return std::nullopt;
  alignas(block_size) static std::byte zeros[block_size];
  for (; erasing_ < erases_max && !cut_off_.empty(); cut_off_.pop_back(), ++erasing_, ++v_.journal_in_flight)
    v_.out.journal_writes.push_back(
        {make_token(TokenKind::erase, 0), v_.journal_offset(cut_off_.back()), {{zeros, block_size}}});
  if (erasing_ > 0) return std::nullopt;
  Cut done = c.cut;
  if (std::optional<Reset> then = std::move(c.then))
    state_ = Resetting{std::move(*then), Waits{}};
  else
    state_ = Steady{};
  return done;
}

std::optional<Rejoin::Cut> Rejoin::on_erased(int error) {
  TL_CHECK(erasing_ > 0 && v_.journal_in_flight > 0);
  --erasing_;
  --v_.journal_in_flight;
  if (error != 0) {
    v_.fail_device(fmt::format("the journal failed a write ({})", errno_text(error)));
    return std::nullopt;
  }
  auto* c = std::get_if<Cutting>(&state_);
  if (!c || !std::holds_alternative<Erases>(c->step)) return std::nullopt;
  return erase();
}

// ---- the log is given up

void Rejoin::reset(Reset wanted) {
  TL_CHECK(!resets());
  v_.hold_checkpoint = true;
  if (auto* c = std::get_if<Cutting>(&state_))
    c->then = std::move(wanted);
  else if (auto* a = std::get_if<Abandoned>(&state_))
    state_ = Resetting{std::move(wanted), Archives{a->from}};
  else
    state_ = Resetting{std::move(wanted), Waits{}};
  try_reset();
}

// Before a resync, committed records are on other replicas too, so only later records are archived. A history
// that is given up is on no other replica, so all of its records are archived.
RecordNo Rejoin::given_up_from(const Reset& reset) const {
  return reset.gives_up ? v_.log.first() : v_.log.committed_end();
}

// Commits and writes home the records up to the source's point `since`, so that the data area is one point of
// the history. False: not done yet.
bool Rejoin::settle_base(const Reset& reset) {
  v_.commit_upto(std::max(v_.log.committed_end(), v_.log.end_upto(reset.to.since.lsn)),
                 [](const LogRecord&) {});
  bool home = v_.committed.empty() && v_.home_end >= v_.log.committed_end();
  // Without the log, a start could not rebuild changed digests. They must be written first.
  bool known = !v_.digests.changed();
  v_.hold_checkpoint = home && known;
  if (!home)
    checkpointer_.request();
  else if (!known && checkpointer_.idle())
    checkpointer_.request_sync();
  return home && known && checkpointer_.idle();
}

void Rejoin::try_reset() {
  auto* r = std::get_if<Resetting>(&state_);
  auto* waits = r ? std::get_if<Waits>(&r->step) : nullptr;
  if (!waits || v_.log.durable_end() != v_.log.end() || v_.journal_in_flight > 0 || v_.failed) return;
  // A superblock with Consistent is in flight. The superblock with Inconsistent must come after it.
  if (target_.ends()) return;
  if (!r->wanted.to.whole && !v_.disk.syncing() && !settle_base(r->wanted)) return;
  if (!checkpointer_.idle()) return;
  RecordNo from = given_up_from(r->wanted);
  if (!waits->archived && from < v_.log.end())
    r->step = archive_from(from);
  else
    store(*r);
}

std::optional<Rejoin::ArchiveFailed> Rejoin::on_reset_archived(Resetting& r, int error) {
  Lsn archived = std::get<Archives>(r.step).from;
  RecordNo from = given_up_from(r.wanted);
  if (error != 0) {
    ArchiveFailed failed{v_.log.mark_before(from).lsn, error, true};
    r.step = Waits{};
    drop();
    return failed;
  }
  r.step = Waits{from == v_.log.end() || archived <= v_.log.at(from).first};
  try_reset();
  return std::nullopt;
}

void Rejoin::store(Resetting& r) {
  TL_CHECK(v_.journal_in_flight == 0 && v_.log.durable_end() == v_.log.end());
  TL_CHECK(checkpointer_.idle() && cut_off_.empty() && !target_.ends());
  const SyncBegin& to = r.wanted.to;
  if (r.wanted.gives_up)
    v_.out.notices.push_back(
        {true,
         fmt::format("the history here, up to LSN {}, is discarded for the history of replica {}: this "
                     "replica is Inconsistent until a resync has filled it",
                     v_.log.last_mark().lsn.v, r.wanted.source),
         NoticeKind::discarded, r.wanted.source});
  else
    v_.out.notices.push_back(
        {true,
         fmt::format("{} resync from replica {}: this replica is Inconsistent until it is finished",
                     to.whole ? "full" : "bitmap", r.wanted.source),
         NoticeKind::resync_begun, r.wanted.source});
  std::optional<LogPoint> base = base_for(to);
  forget_history(r.wanted);
  v_.log.reset(to.from, to.from_epoch);
  v_.far.on_reset(v_.now);
  v_.committed.clear();
  v_.home_end = v_.log.first();
  v_.recovered_end = {};  // belongs to the old log
  v_.disk.begin_sync(to.epoch, base);
  Superblock& sb = v_.sb;
  sb.tail_pos = v_.log.tail_pos();
  sb.tail = to.from;
  sb.tail_epoch = to.from_epoch;
  sb.epochs = to.epochs;
  sb.arbiter = v_.config.arbiter_place;
  sb.incarnation++;
  sb.cut_lsn = to.from.lsn;
  sb.cut_incarnation = sb.incarnation;
  r.step = Stores{};
  v_.write_superblock(Volume::for_reset);
}

// The point up to which the content here is a history. The next resync needs it.
std::optional<LogPoint> Rejoin::base_for(const SyncBegin& to) const {
  if (to.whole) return std::nullopt;
  if (v_.disk.syncing()) return v_.disk.base();
  return LogPoint{v_.log.epoch_before(v_.log.committed_end()), v_.commit_lsn()};
}

void Rejoin::forget_history(const Reset& reset) {
  const SyncBegin& to = reset.to;
  // Blocks of the resync are marked for the other replicas as they arrive. Earlier marks stay valid if their
  // `since` is part of the offered history.
  for (DirtyMap& d : v_.dirty)
    if (!history_holds(to.epochs, to.from.lsn, d.slot().since_epoch, d.slot().since.lsn)) d.forget();
  for (Link& l : v_.links) l.covered_end = 0;
  // A full resync leaves no history here, and ends all split brains. Otherwise only that with the source
  // ends.
  std::erase_if(v_.sb.split_brains, [&](const SplitBrain& s) { return to.whole || s.with == reset.source; });
  if (v_.home_end < v_.log.committed_end()) v_.distrusts_disk = true;
  for (RecordNo no = v_.log.first(); no < v_.log.end(); ++no) v_.release_memory(v_.log.at(no));
}

std::optional<Rejoin::Reset> Rejoin::on_reset_durable() {
  if (!stores_reset()) return std::nullopt;
  Reset done = std::move(std::get<Resetting>(state_).wanted);
  TL_CHECK(v_.disk.syncing() && v_.log.first() == v_.log.end() && v_.log.last_mark() == done.to.from);
  state_ = Steady{};
  v_.hold_checkpoint = false;
  return done;
}

void Rejoin::check_invariants() const {
  TL_CHECK(erasing_ <= v_.journal_in_flight);
  bool erased = cut_off_.empty() && erasing_ == 0;
  TL_CHECK(erased || std::holds_alternative<Cutting>(state_) || v_.failed);
  if (steady() || std::holds_alternative<Abandoned>(state_)) TL_CHECK(!v_.hold_checkpoint);
  if (auto* c = std::get_if<Cutting>(&state_)) {
    bool cut = std::holds_alternative<Stores>(c->step);
    TL_CHECK(!cut || v_.log.last_mark() == c->cut.to);
    TL_CHECK(v_.log.find(c->cut.to).has_value());
  }
  if (stores_reset()) {
    TL_CHECK(v_.disk.syncing() && v_.log.first() == v_.log.end() && v_.committed.empty());
    TL_CHECK(!target_.fills() && !target_.ends());
  }
}

}  // namespace twinloft::repl::core
