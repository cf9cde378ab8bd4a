// The files of a replica that is not being served, for the commands that look at them without a server.
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

// Opens for reading, and finds out whether a process writes it: such a process has it locked, or claimed if
// it is a device. As long as it is open nobody can begin to.
Result<OpenFile> open_for_reading(const std::string& path);

std::unexpected<Error> being_served(const OpenFile& file);
int exit_code_of(const Error& error);  // of a command that needs the replica for itself

// Fills in what the command line leaves to the configuration: `journal` and `data` where they are empty.
// Errc::not_found where the configuration has no such volume. What was found there is returned.
Result<daemon::VolumeSettings> files_of(const std::string& config, const std::string& volume,
                                        std::string& journal, std::string& data);

}  // namespace twinloft::repl::ctl
