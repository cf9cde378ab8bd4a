// The memory for what is on its way to the peers. All links of a process share it.
#pragma once

#include <cstdint>

#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::core {

class LinkMemory {
 public:
  virtual ~LinkMemory() = default;
  enum class For : std::uint8_t { records, resync };
  // The link to the peer holds so many bytes now, with those that it keeps for each of the two.
  virtual void holds(ReplicaId peer, std::uint64_t bytes) = 0;
  // True: the link holds `more` bytes beside from now on. False: it has too much of what all links share. An
  // answer is never false if the link then holds no more than its reserve.
  virtual bool takes(ReplicaId peer, std::uint64_t more, For what) = 0;
};

// The reserve of a link. With less, it could get stuck.
inline constexpr std::uint64_t link_reserve = 4u << 20, buffered_link_reserve = 8u << 20;
// A buffered link has at most so many send windows on their way, if there is memory for them.
inline constexpr std::uint64_t buffered_windows = 4;

}  // namespace twinloft::repl::core
