// The links' memory of a process. Beyond a small reserve it refuses at random, as if other links had the
// rest. It checks that a link holds no more than it took.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>

#include "marks.h"
#include "twinloft/base/random.h"
#include "twinloft/spool-repl/core/link_memory.h"

namespace twinloft::repl::sim {

class SimLinkMemory final : public core::LinkMemory {
 public:
  using Violated = std::function<void(const std::string&)>;
  SimLinkMemory(std::uint64_t reserve, SeededRandom& random, Coverage& coverage, Violated violated)
      : reserve_(reserve), random_(random), coverage_(coverage), violated_(std::move(violated)) {}

  void holds(ReplicaId peer, std::uint64_t bytes) override {
    std::uint64_t& held = held_[peer];
    if (bytes > std::max(held, reserve_))
      violated_(fmt::format("the link to replica {} holds {} bytes, and took {}", peer, bytes, held));
    held = bytes;
  }

  bool takes(ReplicaId peer, std::uint64_t more) override {
    std::uint64_t& held = held_[peer];
    if (held + more > reserve_ && random_.below(4) != 0) {
      coverage_.hit("link memory: refused");
      return false;
    }
    held += more;
    return true;
  }

 private:
  const std::uint64_t reserve_;
  SeededRandom& random_;
  Coverage& coverage_;
  const Violated violated_;
  std::map<ReplicaId, std::uint64_t> held_;
};

}  // namespace twinloft::repl::sim
