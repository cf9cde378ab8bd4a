#include "twinloft/spool-repl/daemon/check.h"

#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "contents.h"
#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/daemon/events.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/journal/superblock_store.h"
#include "twinloft/spool-repl/net/address.h"

namespace twinloft::repl::daemon {

namespace {

constexpr std::size_t secret_bytes_min = 16;

struct Checker {
  const VolumeSettings& s;
  Findings out;

  template <class... Args>
  void error(fmt::format_string<Args...> f, Args&&... args) {
    out.errors.push_back(fmt::format("volume {}: {}", s.name, fmt::format(f, std::forward<Args>(args)...)));
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> f, Args&&... args) {
    out.warnings.push_back(fmt::format("volume {}: {}", s.name, fmt::format(f, std::forward<Args>(args)...)));
  }

  void storage(const char* key, const std::string& path) {
    struct stat st{};
    if (::stat(path.c_str(), &st) < 0) {
      if (errno == ENOENT) warn("{}: {} does not exist: run `spool-repl create {}` first", key, path, s.name);
      else error("{}: {}", key, fail_errno(errno, "{}", path).error().message);
    } else if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
      error("{}: {} is neither a file nor a block device", key, path);
    } else if (S_ISREG(st.st_mode) && st.st_size == 0) {
      warn("{}: {} is empty: run `spool-repl create {}` first", key, path, s.name);
    }
  }

  // /dev/sdb: the kernel names disks in the order in which it finds them.
  void stable_name(const char* key, const std::string& path) {
    struct stat st{};
    if (::lstat(path.c_str(), &st) < 0 || !S_ISBLK(st.st_mode)) return;
    for (std::string_view names : {"/dev/sd", "/dev/vd", "/dev/xvd", "/dev/hd", "/dev/nvme", "/dev/loop"})
      if (path.starts_with(names))
        return warn("{}: {} may be another disk after the machine's next start: use its link in /dev/disk/by-id", key, path);
  }

  // Where the journal is this replica's, the data area holds the volume; before `create` it may hold something else.
  void contents() {
    if (is_own_journal()) return;
    for (auto [key, path] : {std::pair{"data", &s.data}, std::pair{"journal", &s.journal}}) {
      struct stat st{};
      if (::stat(path->c_str(), &st) < 0 || !S_ISBLK(st.st_mode)) continue;
      auto found = contents_of(*path, s.size);
      if (!found || found->empty()) continue;
      bool data = path == &s.data;
      std::string text = fmt::format("{}: {} holds {}. `spool-repl create {}` refuses to destroy that without --overwrite{}", key, *path,
                                     fmt::join(*found, ", "), s.name, data ? "; --adopt keeps it as the volume's content" : "");
      if (data) warn("{}", text);
      else error("{}", text);
    }
  }
  bool is_own_journal() {
    auto opened = io::open_direct(s.journal, io::Access::read_only);
    if (!opened) return false;
    io::OsBlockFile file(*opened);
    auto found = journal::read_superblock(file);
    return found && found->superblock.replica == s.replica && (s.uuid.empty() || found->superblock.volume == Uuid::parse(s.uuid).value());
  }

  void directory(const char* what, const std::string& path) {
    struct stat st{};
    if (::stat(path.c_str(), &st) < 0 || !S_ISDIR(st.st_mode))
      error("{}: {} is no directory: events, and records that are cut off at a rejoin, could not be kept", what, path);
  }

  // Whether it is an address of this machine that only this machine reaches.
  bool address(const char* key, const std::string& text) {
    auto found = net::resolve(text);
    if (!found) error("{}: {}", key, found.error().message);
    return !found || found->is_loopback();
  }

  void peers() {
    if (s.peers.empty()) return;
    bool loopback = address("listen", s.listen);
    for (const PeerSettings& p : s.peers) loopback = address("peer.address", p.address) && loopback;
    if (auto secret = read_secret(s.secret_file); !secret) error("secret_file: {}", secret.error().message);
    else if (secret->empty() && !loopback)
      error("secret_file is missing: without one only loopback addresses are used for replication");
  }

  void ublk() {
    if (!s.ublk_device.empty() && ::access("/dev/ublk-control", F_OK) < 0)
      warn("ublk: there is no /dev/ublk-control: load the kernel's module ublk_drv (Linux 6.0 and later have it), or use the section \"fuse\"");
  }

  void nbd() {
    if (s.nbd_listen.empty() || s.nbd_listen.starts_with("unix:/")) return;
    if (s.nbd_listen.starts_with("unix:")) return error("nbd.listen: \"{}\": expected an absolute path", s.nbd_listen);
    if (!address("nbd.listen", s.nbd_listen))
      warn("nbd.listen: {}: there is no authentication: whoever reaches this address can read and write the volume. Use unix:/path or a loopback "
           "address, or keep everybody else out with a firewall", s.nbd_listen);
  }
};

}  // namespace

Findings check_volume(const VolumeSettings& settings) {
  Checker c{settings, {}};
  c.storage("data", settings.data);
  c.storage("journal", settings.journal);
  c.stable_name("data", settings.data);
  c.stable_name("journal", settings.journal);
  c.contents();
  c.directory(settings.archive.empty() ? "journal" : "archive", state_directory(settings));
  c.peers();
  c.ublk();
  c.nbd();
  return c.out;
}

Result<std::string> read_secret(const std::string& path) {
  if (path.empty()) return std::string();
  struct stat st{};
  if (::stat(path.c_str(), &st) == 0 && (st.st_mode & 077) != 0)
    return fail(Errc::denied, "{}: others may read the shared secret: chmod 600 it", path);
  TL_TRY_ASSIGN(std::string text, read_file(path, 4096));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.size() < secret_bytes_min)
    return fail(Errc::invalid, "{}: a shared secret needs at least {} characters", path, secret_bytes_min);
  return text;
}

}  // namespace twinloft::repl::daemon
