// What a volume's settings say to the core, and to the handshake with each peer; and the names of what the
// core tells.
#pragma once

#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/format/superblock.h"

namespace twinloft::repl::daemon {

// Who began the newest epoch in the log; 0: nobody has.
ReplicaId last_writer(const RecoveredLog& log);
// As docs/spool-repl.md lists them.
const char* name_of(core::NoticeKind kind);
core::Config core_config(const VolumeSettings& settings);
Agreement agreement_with(const VolumeSettings& settings, ReplicaId peer);

std::uint64_t arena_bytes_min(const VolumeSettings& settings);
// Errc::invalid where the machine has less memory than the arena takes.
Status fits_memory(const VolumeSettings& settings);

// Errc::conflict: the journal is that of another volume or replica, or of a volume of another size.
Status fits_superblock(const VolumeSettings& settings, const Superblock& superblock);

// Errc::conflict: data area and journal are one file or device by two names. One that is missing is no matter
// of this.
Status places_differ(const VolumeSettings& settings);

}  // namespace twinloft::repl::daemon
