#include "twinloft/spool-repl/daemon/check.h"

#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "contents.h"
#include "core_settings.h"
#include "expiry_watch.h"
#include "spill_store.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/unix_socket.h"
#include "twinloft/spool-repl/arbiter/arbiter.h"
#include "twinloft/spool-repl/control/control.h"
#include "twinloft/spool-repl/daemon/events.h"
#include "twinloft/spool-repl/daemon/link_security.h"
#include "twinloft/spool-repl/export/fuse_export.h"
#include "twinloft/spool-repl/export/loop_device.h"
#include "twinloft/spool-repl/export/ring_export.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/journal/recovery.h"
#include "twinloft/spool-repl/journal/superblock_store.h"
#include "twinloft/spool-repl/net/address.h"
#include "twinloft/spool-repl/stream/kernel_tls.h"
#include "twinloft/tls/authority.h"

namespace twinloft::repl::daemon {

namespace {

constexpr std::int64_t certificate_seconds_warned = 30 * 86'400;
constexpr Duration own_status_time = std::chrono::seconds(2);

struct Checker {
  const VolumeSettings& s;
  Findings out;
  bool served = false;  // a process answers at its control socket
  bool own = false;     // the journal is this replica's

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
      if (errno != ENOENT)
        error("{}: {}", key, fail_errno(errno, "{}", path).error().message);
      else if (own)
        error(
            "{}: {} does not exist, and {} is this replica's journal: name the data area that belongs to it",
            key, path, s.journal);
      else
        warn("{}: {} does not exist: run `spool-repl create {}` first", key, path, s.name);
    } else if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
      error("{}: {} is neither a file nor a block device", key, path);
    } else if (S_ISREG(st.st_mode) && st.st_size == 0) {
      warn("{}: {} is empty: run `spool-repl create {}` first", key, path, s.name);
    } else if (!served) {
      // Opened as by `serve`, and closed at once.
      auto opened = io::open_direct(path, io::Access::read_write);
      if (!opened && opened.error().code != Errc::denied) error("{}: {}", key, opened.error().message);
    }
  }

  // The kernel numbers disks (/dev/sdb) in the order of their detection.
  void stable_name(const char* key, const std::string& path) {
    struct stat st{};
    if (::lstat(path.c_str(), &st) < 0 || !S_ISBLK(st.st_mode)) return;
    for (std::string_view names : {"/dev/sd", "/dev/vd", "/dev/xvd", "/dev/hd", "/dev/nvme", "/dev/loop"})
      if (path.starts_with(names))
        return warn(
            "{}: {} may be another disk after the machine's next start: use its link in /dev/disk/by-id", key,
            path);
  }

  // Before `create`, both places may have other content.
  void contents() {
    if (own) return;
    for (auto [key, path] : {std::pair{"data", &s.data}, std::pair{"journal", &s.journal}}) {
      struct stat st{};
      if (::stat(path->c_str(), &st) < 0) continue;
      bool data = path == &s.data;
      if (S_ISBLK(st.st_mode))
        device_contents(key, *path, data);
      else if (S_ISREG(st.st_mode) && st.st_size > 0 && data)
        warn(
            "{}: {} is not empty, and {} is not a journal of this replica. `spool-repl create {}` never "
            "overwrites a file; --adopt keeps it as the "
            "volume's content",
            key, *path, s.journal, s.name);
    }
  }
  void device_contents(const char* key, const std::string& path, bool data) {
    if (auto device = io::open_direct(path, io::Access::read_only);
        device && data && device->size_bytes < s.size)
      error("{}: {} has {} bytes, and size says {}: `spool-repl create {}` would refuse it", key, path,
            device->size_bytes, s.size, s.name);
    auto found = contents_of(path, s.size);
    if (!found) return error("{}: {}", key, found.error().message);
    if (found->empty())
      return warn("{}: nothing is recognised on {}: run `spool-repl create {}` first", key, path, s.name);
    std::string text = fmt::format(
        "{}: {} holds {}. `spool-repl create {}` refuses to destroy that without --overwrite{}", key, path,
        fmt::join(*found, ", "), s.name,
        data && !is_ours(*found) ? "; --adopt keeps it as the volume's content" : "");
    if (data)
      warn("{}", text);
    else
      error("{}", text);
  }

  // As `serve` checks journal and data area.
  void replica() {
    auto opened = io::open_direct(s.journal, io::Access::read_only);
    if (!opened || opened->size_bytes == 0) return;
    io::OsBlockFile journal(*opened);
    auto found = journal::read_superblock(journal);
    if (!found) {
      // A device without a label may be new. contents() has reported other content.
      if (!opened->block_device) error("journal: {}", found.error().message);
      return;
    }
    const Superblock& sb = found->superblock;
    if (!opened->block_device && s.journal_size != opened->size_bytes)
      warn("journal_size: {} MiB, and {} was made with {} MiB: the key is for `create` only",
           s.journal_size >> 20, s.journal, opened->size_bytes >> 20);
    if (Status fits = fits_superblock(s, sb); !fits) return error("{}", fits.error().message);
    own = true;
    if (journal.size_bytes() < sb.ring_offset + sb.ring_bytes)
      error("journal: {}: shorter than its superblock says: it was truncated", s.journal);
    auto data = io::open_direct(s.data, io::Access::read_only);
    if (!data || data->size_bytes == 0) return;
    io::OsBlockFile area(*data);
    if (Status fits = journal::check_data_area(sb, area); !fits) error("data: {}", fits.error().message);
  }

  // Files of the process that serves this volume are no conflict.
  void ask_server() {
    if (s.control.empty()) return;
    auto answer = control::ask(s.control, "status json", own_status_time);
    if (answer)
      served = answer->find("\"served\":false") == answer->npos;
    else if (answer.error().code == Errc::denied)
      served = true;  // a server refused this user
    else if (auto place = look_at_socket_place(s.control); !place && place.error().code != Errc::not_found)
      error("control: {}", place.error().message);
  }

  // A warning, since the volume is also served without this directory.
  void state_directory(const char* what, const std::string& path) {
    struct stat st{};
    if (::stat(path.c_str(), &st) < 0 || !S_ISDIR(st.st_mode))
      warn("{}: {} is not a directory: events, and records that are cut off at a rejoin, could not be kept",
           what, path);
  }

  void buffers() {
    std::uint64_t most = 0;
    for (const PeerSettings& p : s.peers)
      if (p.buffer) most = std::max(most, p.buffer->bytes);
    if (most == 0) return;
    if (s.spill.empty()) {
      if (most > s.journal_size / 2)
        warn("buffer: {} MiB, and without `spill` a far replica may lag by half of the journal only: {} MiB",
             most >> 20, s.journal_size >> 21);
      return;
    }
    place("spill", s.spill);  // `serve` makes it
    struct stat st{};
    bool there = ::stat(s.spill.c_str(), &st) == 0;
    std::string directory = there ? s.spill : std::filesystem::path(s.spill).parent_path().string();
    if (there && !S_ISDIR(st.st_mode)) error("spill: {} is not a directory", s.spill);
    if (Status elsewhere = check_spill_device(directory, s); !elsewhere && elsewhere.error().sys == 0)
      error("{}", elsewhere.error().message);
    struct statvfs fs{};
    if (::statvfs(directory.c_str(), &fs) == 0 && std::uint64_t{fs.f_blocks} * fs.f_frsize < most)
      warn("spill: {} is on a file system of {} MiB, and `buffer` is {} MiB", s.spill,
           std::uint64_t{fs.f_blocks} * fs.f_frsize >> 20, most >> 20);
  }

  // The places of files, links and sockets that are made when the volume is served.
  void place(const char* key, const std::string& path) {
    if (path.empty()) return;
    std::string parent = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
    struct stat st{};
    if (::stat(parent.c_str(), &st) < 0)
      error("{}: {}: {}", key, path, fail_errno(errno, "its directory {}", parent).error().message);
    else if (!S_ISDIR(st.st_mode))
      error("{}: {}: {} is not a directory", key, path, parent);
    else if (::access(parent.c_str(), W_OK) < 0 && errno == EROFS)
      error("{}: {}: {} is on a file system that is mounted read-only", key, path, parent);
  }

  // A failed look-up is a warning, since names are looked up again at each attempt.
  std::optional<net::Address> address(const char* key, const std::string& text) {
    if (Status good = net::check_address(text); !good)
      return error("{}: {}", key, good.error().message), std::nullopt;
    auto found = net::resolve(text);
    if (!found)
      return warn("{}: {}: looked up again at each attempt", key, found.error().message), std::nullopt;
    return *found;
  }

  // This does not disturb a served volume, since it does not listen. Empty: the address can be used.
  std::string trouble_at(const net::Address& at) {
    Fd fd(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int one = 1;
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.length) == 0) return "";
    if (errno == EADDRINUSE && served) return "";
    return fail_errno(errno, "{}", at.text).error().message;
  }

  void peers() {
    if (s.peers.empty()) return;
    std::vector<net::Address> listens;
    bool all_loopback = true;
    for (const std::string& text : s.listen) {
      auto at = address("listen", text);
      if (!at) continue;
      all_loopback = all_loopback && at->is_loopback();
      if (std::string trouble = trouble_at(*at); !trouble.empty())
        warn("listen: {}: `serve` tries again until it succeeds", trouble);
      listens.push_back(std::move(*at));
    }
    std::map<std::string, ReplicaId> others;
    for (const PeerSettings& p : s.peers)
      for (const std::string& text : p.addresses) {
        auto [before, fresh] = others.emplace(text, p.id);
        if (!fresh)
          error("peer.address: {} is replica {}'s, and replica {} cannot be there too", text, before->second,
                p.id);
        if (!peer_address(p, text, listens)) all_loopback = false;
      }
    security(all_loopback);
  }

  // Whether it is a loopback address, or its name is not known yet.
  bool peer_address(const PeerSettings& p, const std::string& text,
                    const std::vector<net::Address>& listens) {
    auto at = address("peer.address", text);
    if (!at) return true;
    for (const net::Address& mine : listens)
      if (at->overlaps(mine) && (!mine.is_wildcard() || at->is_loopback()))
        error("peer.address: {} is this replica's own listen address ({}): set the address of replica {}",
              text, mine.text, p.id);
    bool all_own_loopback = !listens.empty() &&
                            std::all_of(listens.begin(), listens.end(),
                                        [](const net::Address& mine) { return mine.is_loopback(); });
    if (all_own_loopback && !at->is_loopback())
      error(
          "listen: {} is reached from this machine only, and replica {} is at {}: use the address that the "
          "other machine reaches",
          listens.front().text, p.id, text);
    return at->is_loopback();
  }

  void security(bool all_loopback) {
    auto found = read_link_security(s);
    if (!found) return error("{}", found.error().message);
    bool on_cable = std::any_of(s.peers.begin(), s.peers.end(), [](const auto& p) { return p.direct_cable; });
    bool clear_text = std::all_of(s.peers.begin(), s.peers.end(), [&](const PeerSettings& p) {
      return p.direct_cable || std::all_of(p.addresses.begin(), p.addresses.end(), [](const auto& text) {
               auto at = net::numeric_address(text);
               return at && at->is_loopback();
             });
    });
    if (!found->tls && !all_loopback && !(on_cable && clear_text))
      error(
          "tls_certificate or secret_file is missing: without TLS, replication uses loopback addresses only, "
          "and direct cables that are named as such");
    if (s.accept_old_release)
      warn(
          "accept_old_release: a replica that has not spoken TLS yet is accepted in clear text. Remove the "
          "key "
          "when all replicas are upgraded");
    if (s.kernel_tls)
      if (Status has = stream::kernel_has_tls(stream::RecordCipher::aes_128_gcm); !has)
        warn("kernel_tls: OpenSSL encrypts instead: {}", has.error().message);
    for (const PeerSettings& p : s.peers)
      if (p.direct_cable)
        warn("replica {}: its link is in clear text, without proof who is at the other end", p.id);
    if (found->tls && found->tls->has_certificate()) certificate(*found->tls->expires());
  }

  void lifetime(const std::string& file, std::int64_t ends) {
    std::int64_t left = ends - OsClock().wall().seconds;
    if (left <= 0)
      error("{}: the certificate has ended on {}: renew it (spool-repl cert renew)", file, date_text(ends));
    else if (left <= certificate_seconds_warned)
      warn("{}: the certificate ends on {}: renew it (spool-repl cert renew)", file, date_text(ends));
  }

  void certificate(std::int64_t ends) {
    lifetime(s.tls.certificate, ends);
    auto pem = read_file(s.tls.certificate, 1u << 20);
    auto facts = pem ? tls::read_certificate(*pem)
                     : Result<tls::CertificateFacts>(std::unexpected(pem.error()));
    if (!facts || facts->uris.empty() || s.uuid.empty()) return;
    std::string expected = net::certificate_name(Uuid::parse(s.uuid).value(), s.replica);
    bool issued_here = std::any_of(facts->uris.begin(), facts->uris.end(),
                                   [](const std::string& uri) { return uri.starts_with("twinloft:"); });
    if (issued_here && std::find(facts->uris.begin(), facts->uris.end(), expected) == facts->uris.end())
      error("{}: the certificate is for {}, and this replica is {}", s.tls.certificate, facts->uris.front(),
            expected);
  }

  // As `serve` prepares the arbiter, without a request to it.
  void arbiter() {
    const arbiter::Settings& a = s.arbiter;
    OsClock clock;
    if (auto store = arbiter::make_store(a, s.uuid.empty() ? Uuid() : Uuid::parse(s.uuid).value(), s.replica,
                                         clock);
        !store)
      error("{}", store.error().message);
    if (a.kind != arbiter::Kind::pacemaker) return;
    for (const char* name : {"cibadmin", "crm_node"})
      if (std::string program = a.programs + "/" + name; ::access(program.c_str(), X_OK) != 0)
        error("arbiter.programs: {}", fail_errno(errno, "{}", program).error().message);
  }

  void arena() {
    std::uint64_t least = arena_bytes_min(s);
    if (s.arena < least)
      error("arena: {} MiB is too small: at least {} MiB are needed", s.arena >> 20, least >> 20);
    if (Status fits = fits_memory(s); !fits) error("{}", fits.error().message);
  }

  void fronts() {
    if (s.fuse_file.empty() && s.ublk_device.empty() && s.nbd_listen.empty())
      warn(
          "no section \"fuse\", \"ublk\" or \"nbd\": when this replica is primary, nothing can use the "
          "volume");
    place("fuse.file", s.fuse_file);
    place("fuse.device", s.fuse_device);
    place("ublk.device", s.ublk_device);
    place("control", s.control);
    place("state_file", s.state_file);
    if (!s.fuse_file.empty() && !served)
      if (Status free = fuse::check_mount_point(s.fuse_file); !free)
        error("fuse.file: {}", free.error().message);
    if (!s.fuse_file.empty() && s.fuse_transport == "io-uring")
      if (Status on = fuse::ring_is_switched_on(); !on) error("fuse.transport: {}", on.error().message);
    for (auto [key, link] :
         {std::pair{"fuse.device", &s.fuse_device}, std::pair{"ublk.device", &s.ublk_device}})
      if (Status free = exports::check_symlink(*link); !link->empty() && !free)
        error("{}: {}", key, free.error().message);
    if (s.nbd_listen.starts_with("unix:")) place("nbd.listen", s.nbd_listen.substr(5));
  }

  void ublk() {
    if (!s.ublk_device.empty() && ::access("/dev/ublk-control", F_OK) < 0)
      warn(
          "ublk: there is no /dev/ublk-control: load the kernel's module ublk_drv (Linux 6.0 and later have "
          "it), or use the section \"fuse\"");
  }

  void nbd() {
    if (s.nbd_listen.empty()) return;
    if (s.nbd_listen.starts_with("unix:/")) {
      auto place = look_at_socket_place(s.nbd_listen.substr(5));
      // Its directory was checked already.
      if (!place && place.error().code != Errc::not_found &&
          !(served && place.error().code == Errc::unavailable))
        error("nbd.listen: {}", place.error().message);
      return;
    }
    auto at = address("nbd.listen", s.nbd_listen);
    if (std::string trouble = at ? trouble_at(*at) : ""; !trouble.empty()) error("nbd.listen: {}", trouble);
    if (at && !at->is_loopback() && !s.nbd_has_tls())
      warn(
          "nbd.listen: {}: there is no authentication: any host that reaches this address can read and write "
          "the volume. Set tls_certificate, tls_key and tls_authority, or use unix:/path or a loopback "
          "address",
          s.nbd_listen);
    if (auto tls = read_nbd_tls(s); !tls)
      error("nbd: {}", tls.error().message);
    else if (*tls)
      lifetime(s.nbd_tls.certificate, *(*tls)->expires());
    if (!s.nbd_tls.authority.empty() && s.nbd_tls.authority == s.tls.authority)
      warn("nbd.tls_authority: the replicas' certificates open the export too: use an authority of its own");
  }
};

}  // namespace

Findings check_volume(const VolumeSettings& settings) {
  Checker c{settings, {}};
  c.ask_server();
  c.replica();
  c.storage("data", settings.data);
  c.storage("journal", settings.journal);
  c.stable_name("data", settings.data);
  c.stable_name("journal", settings.journal);
  c.contents();
  c.state_directory(settings.archive.empty() ? "journal" : "archive", daemon::state_directory(settings));
  c.buffers();
  c.arena();
  c.peers();
  c.arbiter();
  c.fronts();
  c.ublk();
  c.nbd();
  return c.out;
}

namespace {

// Finds two volumes with a socket, link or mount point at the same place, which may have two names. Symbolic
// links are not followed, since they are replaced, and not used.
void check_places(const NodeSettings& node, Findings& out) {
  std::map<std::string, std::string> users;
  for (const VolumeSettings& v : node.volumes)
    for (auto [key, path] :
         {std::pair{"control", v.control},
          {"state_file", v.state_file},
          {"fuse.file", v.fuse_file},
          {"fuse.device", v.fuse_device},
          {"ublk.device", v.ublk_device},
          {"nbd.listen", v.nbd_listen.starts_with("unix:") ? v.nbd_listen.substr(5) : ""}}) {
      if (path.empty()) continue;
      std::error_code error;
      std::filesystem::path given(path),
          parent = std::filesystem::weakly_canonical(given.parent_path(), error);
      std::string place = error ? path : (parent / given.filename()).string();
      auto [before, fresh] = users.emplace(place, fmt::format("volume {}: {}", v.name, key));
      if (!fresh)
        out.errors.push_back(
            fmt::format("volume {}: {}: {} is the same as that of {}", v.name, key, path, before->second));
    }
}

// Finds two volumes with the same address and port, also if one address is a wildcard.
void check_listeners(const NodeSettings& node, Findings& out) {
  std::vector<std::pair<net::Address, std::string>> users;
  for (const VolumeSettings& v : node.volumes) {
    std::vector<std::pair<const char*, std::string>> all;
    if (!v.peers.empty())
      for (const std::string& text : v.listen) all.emplace_back("listen", text);
    if (!v.nbd_listen.starts_with("unix:")) all.emplace_back("nbd.listen", v.nbd_listen);
    for (const auto& [key, text] : all) {
      auto at = text.empty() ? Result<net::Address>(fail(Errc::not_found, "none")) : net::resolve(text);
      if (!at) continue;
      for (const auto& [other, user] : users)
        if (at->overlaps(other))
          out.errors.push_back(fmt::format("volume {}: {}: {} is already in use by {}, {}", v.name, key, text,
                                           user, other.text));
      users.emplace_back(*at, fmt::format("volume {}: {}", v.name, key));
    }
  }
}

// Finds two volumes with the same file or device. A device may have several names and device files.
void check_storage(const NodeSettings& node, Findings& out) {
  std::map<std::pair<dev_t, ino_t>, std::string> users;
  for (const VolumeSettings& v : node.volumes)
    for (auto [key, path] : {std::pair{"data", &v.data}, std::pair{"journal", &v.journal}}) {
      struct stat st{};
      if (::stat(path->c_str(), &st) < 0) continue;
      auto id = S_ISBLK(st.st_mode) ? std::pair{st.st_rdev, ino_t{0}} : std::pair{st.st_dev, st.st_ino};
      auto [before, fresh] = users.emplace(id, fmt::format("volume {}: {}", v.name, key));
      if (!fresh)
        out.errors.push_back(
            fmt::format("volume {}: {}: {} is the same as that of {}", v.name, key, *path, before->second));
    }
}

}  // namespace

Findings check_shared(const NodeSettings& node) {
  Findings out;
  check_storage(node, out);
  check_places(node, out);
  check_listeners(node, out);
  return out;
}

Status fits_superblock(const VolumeSettings& s, const Superblock& sb) {
  if (!s.uuid.empty() && Uuid::parse(s.uuid).value() != sb.volume)
    return fail(Errc::conflict, "{}: holds volume {}, the configuration says {}: wrong path or wrong uuid",
                s.journal, sb.volume.text(), s.uuid);
  if (s.replica != sb.replica)
    return fail(Errc::conflict, "{}: is replica {}, the configuration says {}", s.journal, sb.replica,
                s.replica);
  if (std::uint64_t bytes = sb.volume_blocks * block_size; s.size != 0 && s.size != bytes)
    return fail(Errc::conflict,
                "volume.{}.size: {} bytes, and the volume was created with {}. Its size cannot be changed: "
                "set it to {}, or remove the key",
                s.name, s.size, bytes, bytes);
  return {};
}

Status places_differ(const VolumeSettings& s) {
  NodeSettings one;
  one.volumes = {s};
  Findings found;
  check_storage(one, found);
  if (!found.errors.empty()) return fail(Errc::conflict, "{}", found.errors.front());
  return {};
}

Status fits_memory(const VolumeSettings& s) {
  std::uint64_t memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (s.arena < memory) return {};
  return fail(Errc::invalid,
              "volume.{}.arena: {} MiB, and the machine has {} MiB of memory: the arena is locked in memory",
              s.name, s.arena >> 20, memory >> 20);
}

std::uint64_t arena_bytes_min(const VolumeSettings& s) {
  constexpr std::uint64_t mib = 1u << 20;
  return (core::arena_blocks_min(core_config(s)) * block_size + mib - 1) / mib * mib;
}

}  // namespace twinloft::repl::daemon
