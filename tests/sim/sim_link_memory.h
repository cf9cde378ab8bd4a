// The links' memory of a process. Beyond the reserves it refuses at random or always, as if other links had
// the rest. It checks that a link holds no more than it took.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "marks.h"
#include "twinloft/base/random.h"
#include "twinloft/spool-repl/core/core.h"

namespace twinloft::repl::sim {

class SimLinkMemory final : public core::LinkMemory {
 public:
  using Violated = std::function<void(const std::string&)>;
  SimLinkMemory(const core::Config& config, SeededRandom& random, Coverage& coverage, Violated violated)
      : random_(random), coverage_(coverage), violated_(std::move(violated)), always_(random.below(2) == 0) {
    for (const core::PeerConfig& p : config.peers)
      links_[p.id].reserve = p.buffer ? core::buffered_link_reserve : core::link_reserve;
  }

  void holds(ReplicaId peer, std::uint64_t bytes) override {
    Link& link = links_.at(peer);
    if (bytes > std::max(link.held, link.reserve))
      violated_(fmt::format("the link to replica {} holds {} bytes, and took {}", peer, bytes, link.held));
    link.held = bytes;
  }

  bool takes(ReplicaId peer, std::uint64_t more, For) override {
    Link& link = links_.at(peer);
    if (link.held + more > link.reserve && (always_ || random_.below(4) != 0)) {
      coverage_.hit("link memory: refused");
      return false;
    }
    link.held += more;
    return true;
  }

 private:
  struct Link {
    std::uint64_t reserve = 0, held = 0;
  };
  SeededRandom& random_;
  Coverage& coverage_;
  const Violated violated_;
  const bool always_;
  std::map<ReplicaId, Link> links_;
};

}  // namespace twinloft::repl::sim
