// Configuration of a node: TOML, one [volume.<name>] for each volume. docs/spool-repl.md lists every key.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/log.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/arbiter/settings.h"
#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/stream/packed_stream.h"
#include "twinloft/spool-repl/stream/paths_stream.h"

namespace twinloft::repl::daemon {

// Paths of PEM files: all, or none.
struct TlsSettings {
  std::string certificate, key, authority;
  bool operator==(const TlsSettings&) const = default;
};

struct PeerSettings {
  ReplicaId id = 0;
  std::vector<std::string> addresses;  // the preferred path first
  core::Protocol protocol = core::Protocol::C;
  std::string certificate_name = {};  // in the peer's certificate; empty: as `spool-repl cert issue` names it
  bool direct_cable = false;          // clear text
  std::optional<core::BufferConfig> buffer = {};
  compress::Setting compression = compress::Method{};
  stream::BandwidthPlan bandwidth = {};
  stream::PathUse paths = stream::PathUse::spares;
  std::string site = {};  // empty: unknown
  ReplicaId through = 0;  // 0: none
  // How its traffic counts beside that of other links.
  stream::Packing packing() const {
    bool waited_for = protocol != core::Protocol::A;
    return {compression, waited_for ? stream::LinkClass::latency : stream::LinkClass::bulk};
  }
};

struct VolumeSettings {
  std::string name;
  std::string uuid;  // empty: `create` proposes one
  ReplicaId replica = 0;
  core::Role role = core::Role::secondary;  // primary: promoted at the start, as soon as that is allowed
  bool role_as_before = false;              // promoted if this replica was primary last, by its own log
  arbiter::Settings arbiter;
  core::OnPeerLoss on_peer_loss = core::OnPeerLoss::suspend;  // without an arbiter
  unsigned min_in_sync = 1;
  Duration slow_peer = std::chrono::seconds(20);
  Duration resync_latency_target = std::chrono::milliseconds(20);  // of flushes and reads; 0: a resync does
                                                                   // not slow down
  std::uint64_t resync_rate_min = 4u << 20;                        // bytes a second
  Duration suspend_timeout{0};  // 0: a suspended volume waits without limit
  core::ReadPolicy read_balancing;
  std::string site;           // where this replica stands; empty: unknown
  std::string archive;        // directory for tails that are cut off; default: beside the journal
  std::string spill;          // directory for records that far replicas lack; empty: none
  std::uint64_t size = 0;     // bytes; used by `create`
  std::string data, journal;  // paths
  std::uint64_t journal_size = 1ull << 30;  // bytes; used by `create` if it makes the file
  std::uint64_t arena = 256ull << 20;       // bytes
  std::vector<std::string> listen;
  std::string secret_file;
  TlsSettings tls;
  bool accept_old_release = false;  // replicas without TLS, by the secret, in clear text
  bool kernel_tls = false;          // the kernel encrypts what is sent, if it can
  std::string control;              // path of the control socket
  std::string state_file;  // what other programs read of the volume's state (spool-state/); empty: none
  bool status_everybody = false;  // every user may use status and events
  std::optional<gid_t> status_group;
  bool write_ack_durable = false;
  Duration seal_after = std::chrono::milliseconds(5);
  Duration peer_timeout = std::chrono::seconds(6);
  unsigned journal_writes_in_flight = 4;
  std::vector<PeerSettings> peers;
  unsigned compression_threads = 1;     // of each class, for all volumes of the process
  std::string fuse_file;                // empty: no FUSE export
  std::string fuse_device;              // link to the loop device; empty: no loop device
  std::string fuse_transport = "auto";  // or "io-uring", "dev-fuse"
  std::string ublk_device;              // link to the ublk device; empty: none. Not beside fuse_file
  std::string nbd_listen;               // "unix:/path" or host:port; empty: no NBD export
  std::string nbd_name;                 // export name; default: the volume's
  TlsSettings nbd_tls;                  // for clients over TCP; empty: without TLS
  bool nbd_has_tls() const { return !nbd_tls.certificate.empty(); }
};

struct NodeSettings {
  LogLevel log_level = LogLevel::info;
  unsigned compression_threads = 1;
  stream::BandwidthPlan bandwidth;           // of all links
  std::optional<std::uint64_t> link_memory;  // bytes: the most of all links; see link_memory_of()
  std::vector<VolumeSettings> volumes;
};

// The configured number of bytes. Or, for each link, enough for its window while the others are idle. `also`:
// volumes that are served and not in the file any more.
std::uint64_t link_memory_of(const NodeSettings& node, const std::vector<VolumeSettings>& also = {});

// Errors: all errors of the file, a line each, with file, line and key.
Result<NodeSettings> load_config(const std::string& path);

}  // namespace twinloft::repl::daemon
