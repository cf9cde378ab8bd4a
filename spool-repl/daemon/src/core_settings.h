// Converts a volume's settings to those of the core, and of the handshake with each peer. Names the values
// of the core.
#pragma once

#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/format/superblock.h"

namespace twinloft::repl::daemon {

// The replica that began the newest epoch in the log. 0: none.
ReplicaId last_writer(const RecoveredLog& log);
// As docs/spool-repl.md lists them.
const char* name_of(core::NoticeKind kind);
core::Config core_config(const VolumeSettings& settings);
Agreement agreement_with(const VolumeSettings& settings, ReplicaId peer);

std::uint64_t arena_bytes_min(const VolumeSettings& settings);
// Errors: Errc::invalid (the machine has less memory than the arena).
Status fits_memory(const VolumeSettings& settings);

// Errors: Errc::conflict (the journal is of another volume or replica, or of a volume of another size).
Status fits_superblock(const VolumeSettings& settings, const Superblock& superblock);

// Errors: Errc::conflict (data area and journal are the same file or device, by two names). A missing file
// is no error here.
Status places_differ(const VolumeSettings& settings);

}  // namespace twinloft::repl::daemon
