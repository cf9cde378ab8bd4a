#include "history.h"

#include <fmt/format.h>

#include <algorithm>

namespace twinloft::repl::sim {

void History::apply(const Op& op, Image& image) {
  std::fill_n(image.begin() + static_cast<std::ptrdiff_t>(op.lba), op.blocks, value_of(op));
}

std::size_t History::submit(std::uint64_t lba, std::uint64_t blocks, bool zeros) {
  ops_.push_back({next_id_++, lba, blocks, zeros});
  note(ops_.size() - 1);
  return ops_.size() - 1;
}

void History::note(std::size_t index) {
  const Op& op = ops_[index];
  for (std::uint64_t b = op.lba; b < op.lba + op.blocks; ++b) writers_[b].push_back(static_cast<std::uint32_t>(index));
  if ((index + 1) % snapshot_every != 0) return;
  Image state = snapshots_.back();
  for (std::size_t k = index + 1 - snapshot_every; k <= index; ++k) apply(ops_[k], state);
  snapshots_.push_back(std::move(state));
}

void History::go_back_to(std::size_t prefix) {
  ops_.resize(prefix);
  snapshots_.resize(prefix / snapshot_every + 1);
  for (auto& writers : writers_)
    while (!writers.empty() && writers.back() >= prefix) writers.pop_back();
}

std::size_t History::completed_end() const {
  for (std::size_t i = ops_.size(); i > 0; --i)
    if (ops_[i - 1].completed) return i;
  return 0;
}

std::optional<std::size_t> History::matching_prefix(const Image& image, bool need_promised) const {
  return matching(ops_, need_promised ? promised_ : 0, image);
}

std::optional<std::size_t> History::matching(const std::vector<Op>& ops, std::size_t least, const Image& image) const {
  // What the image holds was written: no prefix without its newest request can match.
  std::uint64_t newest = *std::max_element(image.begin(), image.end());
  auto at_newest = std::partition_point(ops.begin(), ops.end(), [&](const Op& op) { return op.id < newest; });
  least = std::max(least, static_cast<std::size_t>(at_newest - ops.begin()) + (newest > 0 ? 1 : 0));
  if (least > ops.size()) return std::nullopt;
  // Snapshots are of ops_; a branch has its own course.
  std::size_t from = &ops == &ops_ ? least / snapshot_every : 0;
  Image state = snapshots_[from];
  std::size_t wrong = 0;
  for (std::size_t b = 0; b < image.size(); ++b) wrong += state[b] != image[b];
  std::optional<std::size_t> best;
  for (std::size_t k = from * snapshot_every;; ++k) {
    if (wrong == 0 && k >= least) best = k;
    if (k == ops.size()) return best;
    const Op& op = ops[k];
    std::uint64_t value = value_of(op);
    for (std::uint64_t b = op.lba; b < op.lba + op.blocks; ++b) {
      wrong -= state[b] != image[b];
      state[b] = value;
      wrong += state[b] != image[b];
    }
  }
}

std::string History::explain(const Image& image) const {
  Image state = snapshots_.front();
  std::size_t best_k = 0, best_wrong = SIZE_MAX;
  auto count = [&] {
    std::size_t wrong = 0;
    for (std::size_t b = 0; b < image.size(); ++b) wrong += state[b] != image[b];
    return wrong;
  };
  for (std::size_t k = 0;; ++k) {
    if (k >= promised_ && count() < best_wrong) best_wrong = count(), best_k = k;
    if (k == ops_.size()) break;
    apply(ops_[k], state);
  }
  state = snapshots_.front();
  for (std::size_t k = 0; k < best_k; ++k) apply(ops_[k], state);
  std::string text = fmt::format("{} requests up to id {}, {} promised; nearest is the state after {}, with {} blocks wrong:",
                                 ops_.size(), ops_.empty() ? 0 : ops_.back().id, promised_, best_k, best_wrong);
  for (std::size_t b = 0, shown = 0; b < image.size() && shown < 8; ++b)
    if (state[b] != image[b]) text += fmt::format(" block {} holds {} not {};", b, image[b], state[b]), ++shown;
  return text;
}

std::optional<std::size_t> History::restart_with(const Image& image) {
  auto common = [](const std::vector<Op>& a, const std::vector<Op>& b) {
    std::size_t n = 0;
    while (n < std::min(a.size(), b.size()) && a[n].id == b[n].id) ++n;
    return n;
  };
  std::erase_if(branches_, [&](const auto& branch) { return common(branch, ops_) < promised_; });
  auto prefix = matching(ops_, promised_, image);
  std::size_t kept = SIZE_MAX;
  if (!prefix) {
    for (auto& branch : branches_) {
      prefix = matching(branch, promised_, image);
      if (!prefix) continue;
      std::size_t shared = common(branch, ops_);
      kept = shared;
      auto left = ops_;
      go_back_to(shared);
      for (std::size_t k = shared; k < branch.size(); ++k) {
        ops_.push_back(branch[k]);
        note(k);
      }
      branch = std::move(left);
      break;
    }
    if (!prefix) return std::nullopt;
  }
  if (*prefix < ops_.size()) branches_.push_back(ops_);
  go_back_to(*prefix);
  // What survived is the state now, whether or not anyone was told.
  for (Op& op : ops_) op.completed = true;
  return std::min(kept, *prefix);
}

bool History::read_is_right(std::uint64_t lba, std::uint64_t value, std::size_t completed) const {
  const auto& writers = writers_[lba];
  auto after = std::lower_bound(writers.begin(), writers.end(), completed);
  if ((after == writers.begin() ? 0 : value_of(ops_[*(after - 1)])) == value) return true;
  return std::any_of(after, writers.end(), [&](std::uint32_t k) { return value_of(ops_[k]) == value; });
}

}  // namespace twinloft::repl::sim
