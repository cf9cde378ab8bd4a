// Requests that found unreadable blocks in the data area. Each waits for the repair of these blocks
// (repair.h), then starts again from the beginning, or fails. A waiting request holds no arena memory.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "repair.h"

namespace twinloft::repl::core {

// `What` has a function repaired(), which counts the waits of this request.
template <class What>
class AwaitingRepair {
 public:
  static constexpr unsigned repairs_max = 4;  // of one request: a retry may find more unreadable blocks

  explicit AwaitingRepair(Repair& repair) : repair_(repair) {}

  // nullopt: the request waits. Otherwise it is returned and fails, after repairs_max waits or if `hopeless`.
  [[nodiscard]] std::optional<What> begin(What what, std::vector<Lba> blocks, bool hopeless) {
    bool enough = ++what.repaired() > repairs_max;
    if (enough && !blocks.empty()) repair_.note_lost(blocks.front());
    if (enough || hopeless) return what;
    waiting_.emplace(repair_.begin(std::move(blocks)), std::move(what));
    return std::nullopt;
  }
  // The request that waited for this repair. nullopt: none.
  std::optional<What> take(Repair::Ticket ticket) {
    auto node = waiting_.extract(ticket);
    if (node.empty()) return std::nullopt;
    return std::move(node.mapped());
  }
  bool empty() const { return waiting_.empty(); }
  std::size_t size() const { return waiting_.size(); }

 private:
  Repair& repair_;
  std::map<Repair::Ticket, What> waiting_;
};

}  // namespace twinloft::repl::core
