// The files of a replica that is not served, for commands that read them without a server.
#pragma once

#include <string>
#include <vector>

#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/io/direct_file.h"

namespace twinloft::repl::ctl {

struct OpenFile {
  io::DirectFile file;
  Fd claim;
  bool in_use = false;
};

// Opens a file for reading, and finds out whether a process writes to it, by the process's lock, or its
// claim of a device. While the file is open, no process can begin to write.
Result<OpenFile> open_for_reading(const std::string& path);

std::unexpected<Error> being_served(const OpenFile& file);
int exit_code_of(const Error& error);  // of a command that needs the replica alone

// Sets an empty `journal` or `data` from the configuration. Returns the volume's settings. Errors:
// Errc::not_found (the configuration has no such volume).
Result<daemon::VolumeSettings> files_of(const std::string& config, const std::string& volume,
                                        std::string& journal, std::string& data);

}  // namespace twinloft::repl::ctl
