// Copies records into archive files before they are cut off from the journal. Works on its own thread: only
// the rejoin waits for it.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/core/effects.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::daemon {

class Archiver {
 public:
  // journal_fd: must outlive the archiver. Files are in `directory`, named VOLUME-FIRST-LAST-EPOCH.tail.
  Archiver(ports::Loop& loop, int journal_fd, std::string directory, std::string volume);
  // Calls `done` on the loop's thread, with the file's path, once the file and its directory entry are
  // durable.
  void start(core::ArchiveTail tail, std::function<void(Result<std::string>)> done);

 private:
  Status store(const core::ArchiveTail& tail, const std::string& path) const;
  ports::Loop& loop_;
  int journal_fd_;
  std::string directory_, volume_;
  std::jthread thread_;
};

}  // namespace twinloft::repl::daemon
