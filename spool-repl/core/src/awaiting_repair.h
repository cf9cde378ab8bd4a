// What came upon blocks of the data area that cannot be read: it waits until repair.h has had its say, and is
// tried again from the beginning, or fails. It holds no memory meanwhile.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "repair.h"

namespace twinloft::repl::core {

// `What` has a function repaired(): how often it has waited here.
template <class What>
class AwaitingRepair {
 public:
  static constexpr unsigned repairs_max = 4;  // of one request, which may come upon more while it is tried
                                              // again

  explicit AwaitingRepair(Repair& repair) : repair_(repair) {}

  // nullopt: it waits. Else it is given back, and fails: it was tried often enough, or `hopeless`.
  [[nodiscard]] std::optional<What> begin(What what, std::vector<Lba> blocks, bool hopeless) {
    bool enough = ++what.repaired() > repairs_max;
    if (enough && !blocks.empty()) repair_.note_lost(blocks.front());
    if (enough || hopeless) return what;
    waiting_.emplace(repair_.begin(std::move(blocks)), std::move(what));
    return std::nullopt;
  }
  // What has waited for this; nullopt: nothing here.
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
