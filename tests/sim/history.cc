#include "history.h"

#include <fmt/format.h>

#include <algorithm>

namespace twinloft::repl::sim {

void History::apply(const Op& op, Image& image) {
  for (std::uint64_t b = op.lba; b < op.lba + op.blocks; ++b) image[b] = op.zeros ? 0 : op.id;
}

std::size_t History::submit(std::uint64_t lba, std::uint64_t blocks, bool zeros) {
  ops_.push_back({next_id_++, lba, blocks, zeros});
  return ops_.size() - 1;
}

std::size_t History::completed_end() const {
  for (std::size_t i = ops_.size(); i > 0; --i)
    if (ops_[i - 1].completed) return i;
  return 0;
}

std::optional<std::size_t> History::matching_prefix(const Image& image, bool need_promised) const {
  return matching(base_, ops_, need_promised ? promised_ : 0, image);
}

std::optional<std::size_t> History::matching(const Image& base, const std::vector<Op>& ops_, std::size_t least,
                                             const Image& image) {
  Image state = base;
  std::size_t wrong = 0;
  for (std::size_t b = 0; b < image.size(); ++b) wrong += state[b] != image[b];
  std::optional<std::size_t> best;
  for (std::size_t k = 0;; ++k) {
    if (wrong == 0 && k >= least) best = k;
    if (k == ops_.size()) return best;
    const Op& op = ops_[k];
    for (std::uint64_t b = op.lba; b < op.lba + op.blocks; ++b) {
      std::uint64_t value = op.zeros ? 0 : op.id;
      wrong -= state[b] != image[b];
      state[b] = value;
      wrong += state[b] != image[b];
    }
  }
}

std::string History::explain(const Image& image) const {
  Image state = base_;
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
  state = base_;
  for (std::size_t k = 0; k < best_k; ++k) apply(ops_[k], state);
  std::string text = fmt::format("{} requests up to id {}, {} promised; nearest is the state after {}, with {} blocks wrong:",
                                 ops_.size(), ops_.empty() ? 0 : ops_.back().id, promised_, best_k, best_wrong);
  for (std::size_t b = 0, shown = 0; b < image.size() && shown < 8; ++b)
    if (state[b] != image[b]) text += fmt::format(" block {} holds {} not {};", b, image[b], state[b]), ++shown;
  return text;
}

bool History::restart_with(const Image& image) {
  auto common = [](const std::vector<Op>& a, const std::vector<Op>& b) {
    std::size_t n = 0;
    while (n < std::min(a.size(), b.size()) && a[n].id == b[n].id) ++n;
    return n;
  };
  std::erase_if(branches_, [&](const auto& branch) { return common(branch, ops_) < promised_; });
  auto prefix = matching(base_, ops_, promised_, image);
  if (!prefix) {
    for (auto& branch : branches_) {
      prefix = matching(base_, branch, promised_, image);
      if (!prefix) continue;
      std::swap(branch, ops_);
      break;
    }
    if (!prefix) return false;
  }
  if (*prefix < ops_.size()) branches_.push_back(ops_);
  ops_.resize(*prefix);
  // What survived is the state now, whether or not anyone was told.
  for (Op& op : ops_) op.completed = true;
  return true;
}

bool History::read_is_right(std::uint64_t lba, std::uint64_t value, std::size_t completed) const {
  std::uint64_t now = base_[lba];
  for (std::size_t k = 0; k < completed; ++k)
    if (lba >= ops_[k].lba && lba < ops_[k].lba + ops_[k].blocks) now = ops_[k].zeros ? 0 : ops_[k].id;
  if (now == value) return true;
  for (std::size_t k = completed; k < ops_.size(); ++k)
    if (lba >= ops_[k].lba && lba < ops_[k].lba + ops_[k].blocks && (ops_[k].zeros ? 0 : ops_[k].id) == value)
      return true;
  return false;
}

}  // namespace twinloft::repl::sim
