#include "memory_bound.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/export/fuse_export.h"
#include "twinloft/spool-repl/export/nbd_server.h"
#include "twinloft/spool-repl/export/ublk_export.h"
#include "twinloft/spool-repl/format/digest.h"
#include "twinloft/spool-repl/format/spill.h"
#include "twinloft/spool-repl/format/wire.h"
#include "twinloft/spool-repl/net/peer_net.h"
#include "twinloft/spool-repl/ports/block_target.h"

namespace twinloft::repl::daemon {

static_assert(read_memory_bytes >= core::read_arena_blocks_min * block_size);

namespace {

constexpr std::uint64_t index_bytes_per_block = 512;  // half-empty hash tables, the list of a checkpoint,
                                                      // zero extents and their splits
constexpr std::uint64_t record_bytes = sizeof(core::LogRecord);
constexpr std::uint64_t record_journal_bytes = 2 * block_size;  // the minimum, except for epochs
constexpr std::uint64_t encoder_bytes = 10u << 20;  // zstd with level 19 and xz with level 9, for 256 KiB
constexpr std::uint64_t decoder_bytes = 512u << 10;
constexpr std::uint64_t callers_bytes = 32u << 20;   // connections before the end of their handshake
constexpr std::uint64_t process_bytes = 128u << 20;  // a dozen threads with 8 MiB of locked stack each

std::uint64_t of_clients(const VolumeSettings& s) {
  std::uint64_t bytes = 0;
  if (!s.nbd_listen.empty()) {
    nbd::ServerOptions o;
    bytes += o.max_connections * (o.max_bytes + ports::io_max_length) + o.retained_buffer_bytes;
  }
  if (!s.fuse_file.empty()) {
    fuse::FuseOptions o;
    // The kernel may send as many requests that are not in the background.
    bytes += 2 * o.max_background * std::uint64_t{ports::io_max_length} + o.retained_buffer_bytes;
  }
  if (!s.ublk_device.empty()) {
    ublk::UblkOptions o;
    bytes += std::uint64_t{o.queue_depth} * o.max_io_bytes;
  }
  return bytes;
}

// A chunk that is filled, one that is written, and one for each replica that is sent records from the spill.
std::uint64_t of_spill(const VolumeSettings& s) {
  if (s.spill.empty()) return 0;
  auto buffered = std::count_if(s.peers.begin(), s.peers.end(),
                                [](const auto& p) { return p.buffer.has_value(); });
  return (2 + 2 * static_cast<std::uint64_t>(buffered)) * spill_chunk_bytes_max;
}

// The links of this volume, and the threads of the process. Most of a codec's memory is for compressing.
std::uint64_t of_compression(const VolumeSettings& s) {
  auto compresses = [](const PeerSettings& p) { return p.compression != compress::Setting(); };
  bool any = std::any_of(s.peers.begin(), s.peers.end(), compresses);
  std::uint64_t of_thread = stream::pool_stack_bytes + decoder_bytes + (any ? encoder_bytes : 0);
  return s.peers.size() * stream::packed_stream_bytes_max(s.compression_threads) +
         2 * std::uint64_t{s.compression_threads} * of_thread;
}

// Links of several paths.
std::uint64_t of_paths(const VolumeSettings& s) {
  std::uint64_t bytes = 0;
  for (const PeerSettings& p : s.peers)
    if (p.addresses.size() > 1) bytes += stream::paths_stream_bytes_max(p.addresses.size());
  return bytes;
}

std::uint64_t of_replicas(const VolumeSettings& s) {
  if (s.peers.empty()) return 0;
  std::uint64_t unsent = net::NetOptions{}.unsent_bytes_max, arriving = 2 * std::uint64_t{wire_payload_max};
  std::uint64_t waiting = core::buffered_windows * core::Config{}.send_window_bytes +
                          2 * std::uint64_t{wire_payload_max};  // records that wait for room
  return callers_bytes + s.peers.size() * (unsent + arriving) + waiting + of_spill(s) + of_compression(s) +
         of_paths(s);
}

}  // namespace

std::uint64_t resident_bytes() {
  auto text = read_file("/proc/self/statm", 4096);
  if (!text) return 0;
  std::size_t second = text->find(' ');
  std::uint64_t pages = 0;
  if (second != std::string::npos)
    std::from_chars(text->data() + second + 1, text->data() + text->size(), pages);
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

MemoryBound memory_bound(const VolumeSettings& s, std::uint64_t volume_bytes, std::uint64_t journal_bytes) {
  std::uint64_t blocks = volume_bytes / block_size;
  MemoryBound m;
  m.arena = s.arena + s.arena / block_size * index_bytes_per_block;
  m.reads = read_memory_bytes;
  m.digests = DigestTable::memory_max(blocks);
  m.bitmaps = s.peers.size() * 2 * (blocks / 8);  // all marks, and the marks since the peer left the in-sync
                                                  // set
  m.log = journal_bytes / record_journal_bytes * record_bytes;
  m.clients = of_clients(s);
  m.replicas = of_replicas(s);
  m.process = process_bytes;
  return m;
}

}  // namespace twinloft::repl::daemon
