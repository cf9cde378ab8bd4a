// A volume before its loop starts: its files, its memory, and the core with the replayed journal.
#pragma once

#include <memory>
#include <optional>

#include "arena_memory.h"
#include "spill_store.h"
#include "storage.h"
#include "twinloft/spool-repl/core/core.h"

namespace twinloft::repl::daemon {

struct OpenedVolume {
  // link_memory: of the process; null: each link has its windows.
  // Errors: the arena is too small or larger than the machine's memory, or the journal cannot be replayed.
  static Result<std::unique_ptr<OpenedVolume>> open(const VolumeSettings& settings, Storage storage,
                                                    Random& random, const StartEvent& happened,
                                                    std::shared_ptr<core::LinkMemory> link_memory = {});

  // From the loop: the core's deadlines begin at the time of the event, not at that of the last turn.
  void step(core::Event&& event, Instant now) {
    core->note_time(now);
    core->step(std::move(event));
  }

  Storage storage;
  ArenaMemory arena_memory, read_memory;
  Superblock superblock;
  bool was_primary = false;  // by this replica's log: it began the newest epoch
  std::optional<SpillDirectory> spill;
  std::unique_ptr<core::Arena> arena, reads;
  std::unique_ptr<core::Core> core;
};

}  // namespace twinloft::repl::daemon
