// A volume's journal and data area: opened, checked to be this volume's, and replayed.
#pragma once

#include <functional>
#include <string>

#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::daemon {

struct Storage {
  io::DirectFile journal, data;
};

// Waits a moment for a predecessor that has just been killed. Errc::unavailable: another process has them.
// Nothing is written: recovery replays into the data area, which may be another volume's.
Result<Storage> open_storage(const VolumeSettings& settings);

// An event of the start: its kind, its text, and whether it is a warning.
using StartEvent = std::function<void(std::string kind, std::string text, bool serious)>;

// Replays the journal. A damaged one is kept in a copy before anything is changed. `room`: memory for content
// that is committed and not home.
Result<RecoveredLog> replay(const VolumeSettings& settings, Storage& storage, MutableByteSpan room,
                            const StartEvent& happened);

}  // namespace twinloft::repl::daemon
