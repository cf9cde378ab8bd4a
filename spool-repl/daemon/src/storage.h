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

// Waits a short time for an earlier process that was just killed. Writes nothing, since recovery writes to
// the data area, which may be of another volume. Errors: Errc::unavailable (another process has the files).
Result<Storage> open_storage(const VolumeSettings& settings);

// An event of the start: its kind, its text, and whether it is a warning.
using StartEvent = std::function<void(std::string kind, std::string text, bool serious)>;

// Replays the journal. A damaged journal is copied before any change. room: memory for content that is
// committed and not home.
Result<RecoveredLog> replay(const VolumeSettings& settings, Storage& storage, MutableByteSpan room,
                            const StartEvent& happened);

}  // namespace twinloft::repl::daemon
