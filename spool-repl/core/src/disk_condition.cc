#include "twinloft/spool-repl/core/disk_condition.h"

#include <algorithm>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

// Converts a variant to a variant with more alternatives.
template <class To, class From>
To widened(const From& from) {
  return std::visit([](const auto& alternative) -> To { return alternative; }, from);
}

}  // namespace

DiskCondition::DiskCondition(const DiskState& found) : state_(widened<State>(found)) {}

DiskState DiskCondition::stored() const {
  return std::visit(
      Overloaded{[](const AcceptingLoss& s) { return widened<DiskState>(s.lost); },
                 [](const Finishing&) { return DiskState(); }, [](const auto& s) { return DiskState(s); }},
      state_);
}

bool DiskCondition::inconsistent() const {
  return damaged() || syncing() || finishing();
}

std::optional<LogPoint> DiskCondition::base() const {
  if (const Damaged* d = damaged()) return d->base;
  if (const Syncing* s = syncing()) return s->base;
  return std::nullopt;
}

void DiskCondition::begin_sync(const Epoch& source, const std::optional<LogPoint>& base) {
  state_ = Syncing{source, base};
}

void DiskCondition::change_source(const Epoch& source, bool keep_base) {
  auto* s = std::get_if<Syncing>(&state_);
  TL_CHECK(s != nullptr);
  s->source = source;
  if (!keep_base) s->base.reset();
  source_pending_ = true;
}

void DiskCondition::note_refill(Lsn until, const Epoch& epoch, const Epoch& of) {
  auto refill = [&](Refilling& s) {
    s.until = std::max(s.until, until);
    s.reported_in = epoch;
  };
  auto repair = [&](Damaged& s) {
    if (until <= s.until) return;
    s.until = until;
    s.of = of;
  };
  std::visit(
      Overloaded{[&](Consistent&) { state_ = Refilling{until, epoch}; }, [&](Refilling& s) { refill(s); },
                 [&](Damaged& s) { repair(s); }, [](Syncing&) {},  // the resync brings everything
                 [&](AcceptingLoss& s) { std::visit(Overloaded{refill, repair}, s.lost); },
                 [](Finishing&) { TL_CHECK_MSG(false, "no record stream begins while a resync ends"); }},
      state_);
}

void DiskCondition::refilled() {
  TL_CHECK(refilling() != nullptr);
  state_ = Consistent{};
}

void DiskCondition::finish() {
  TL_CHECK(damaged() || syncing());
  state_ = Finishing{};
}

void DiskCondition::finished() {
  if (finishing()) state_ = Consistent{};
}

void DiskCondition::accept_loss() {
  TL_CHECK(refilling() || damaged());
  if (const Refilling* r = refilling())
    state_ = AcceptingLoss{*r};
  else
    state_ = AcceptingLoss{*damaged()};
}

void DiskCondition::loss_settled() {
  TL_CHECK(accepting_loss());
  state_ = Consistent{};
}

void DiskCondition::check_invariants() const {
  TL_CHECK(!source_pending_ || syncing());
  if (const Refilling* r = refilling()) TL_CHECK(r->until > Lsn{});
}

}  // namespace twinloft::repl::core
