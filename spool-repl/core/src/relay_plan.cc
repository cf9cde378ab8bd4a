#include "relay_plan.h"

#include <algorithm>
#include <tuple>

namespace twinloft::repl::core {

namespace {

constexpr unsigned relays_max = 2;

// The replicas of a site, the best relay first.
std::vector<const RelayCandidate*> ranked(std::string_view site,
                                          const std::vector<RelayCandidate>& candidates) {
  auto serves = [&](const RelayCandidate& c) {
    return std::any_of(candidates.begin(), candidates.end(),
                       [&](const RelayCandidate& other) { return other.present == c.id; });
  };
  auto rank = [&](const RelayCandidate& c) { return std::tuple(!c.buffered, c.protocol, serves(c), c.has); };
  std::vector<const RelayCandidate*> found;
  for (const RelayCandidate& c : candidates)
    if (c.site == site) found.push_back(&c);
  std::stable_sort(found.begin(), found.end(),
                   [&](const auto* a, const auto* b) { return rank(*a) > rank(*b); });
  return found;
}

// How many relays a record passes before this replica has it.
unsigned depth(const std::map<ReplicaId, ReplicaId>& plan, ReplicaId id) {
  unsigned relays = 0;
  for (auto of = plan.find(id); of != plan.end() && relays <= plan.size(); of = plan.find(of->second))
    ++relays;
  return relays;
}

}  // namespace

std::map<ReplicaId, ReplicaId> plan_relays(std::string_view own_site,
                                           const std::vector<RelayCandidate>& candidates,
                                           const MayTake& may_take) {
  std::map<ReplicaId, ReplicaId> plan;
  // Otherwise the chain would be too long, or a circle. Those behind this replica are counted with it.
  auto fits = [&] {
    return std::all_of(candidates.begin(), candidates.end(),
                       [&](const RelayCandidate& each) { return depth(plan, each.id) <= relays_max; });
  };
  auto take = [&](const RelayCandidate& who, const RelayCandidate& relay) {
    bool waited_for = (who.buffered || !relay.buffered) && relay.protocol >= who.protocol;
    if (who.id == relay.id || plan.contains(who.id) || !waited_for || !may_take(who, relay)) return;
    plan[who.id] = relay.id;
    if (!fits()) plan.erase(who.id);
  };
  for (const RelayCandidate& c : candidates) {
    if (c.site.empty() || c.site == own_site) continue;
    auto relays = ranked(c.site, candidates);
    if (relays.front()->id == c.id) continue;
    for (const RelayCandidate* relay : relays) take(c, *relay);
  }
  for (const RelayCandidate& c : candidates)
    for (const RelayCandidate& relay : candidates)
      if (relay.id == c.through) take(c, relay);
  return plan;
}

}  // namespace twinloft::repl::core
