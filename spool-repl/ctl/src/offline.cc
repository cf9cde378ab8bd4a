#include "offline.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "commands.h"

namespace twinloft::repl::ctl {

Result<OpenFile> open_for_reading(const std::string& path) {
  TL_TRY_ASSIGN(io::DirectFile file, io::open_direct(path, io::Access::read_only));
  OpenFile out{std::move(file), Fd(), false};
  if (out.file.block_device) {
    out.claim = Fd(::open(path.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC));
    out.in_use = !out.claim && errno == EBUSY;
  } else {
    out.in_use = ::flock(out.file.fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  }
  return out;
}

std::unexpected<Error> being_served(const OpenFile& f) {
  return fail(Errc::unavailable,
              "{}: in use: what is in it changes while it is read. Stop spool-repl serve, or give a "
              "snapshot or copy of journal and data area with --journal and --data",
              f.file.path);
}

int exit_code_of(const Error& e) {
  return e.code == Errc::unavailable ? exit_unavailable : exit_failed;
}

Result<daemon::VolumeSettings> files_of(const std::string& config, const std::string& volume,
                                        std::string& journal, std::string& data) {
  TL_TRY_ASSIGN(daemon::NodeSettings node, daemon::load_config(config));
  for (const auto& v : node.volumes) {
    if (v.name != volume) continue;
    if (journal.empty()) journal = v.journal;
    if (data.empty()) data = v.data;
    return v;
  }
  return fail(Errc::not_found, "no volume \"{}\" in {}", volume, config);
}

}  // namespace twinloft::repl::ctl
