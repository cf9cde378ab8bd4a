#include "status_text.h"

#include <fmt/format.h>

#include "expiry_watch.h"
#include "memory_bound.h"
#include "twinloft/base/json.h"
#include "volume_state.h"

namespace twinloft::repl::daemon {

namespace {

const char* name_of(core::ConnectionState s) {
  switch (s) {
    case core::ConnectionState::StandAlone:
      return "StandAlone";
    case core::ConnectionState::Connecting:
      return "Connecting";
    case core::ConnectionState::Matching:
      return "Matching";
    case core::ConnectionState::Connected:
      return "Connected";
  }
  return "?";
}
// During a resync, the connection has the name of the peer's part: target or source.
const char* name_of(const core::PeerStatus& p) {
  return p.sync_target ? "SyncTarget" : p.sync_source ? "SyncSource" : name_of(p.connection);
}
const char* name_of(core::Protocol p) {
  return p == core::Protocol::A ? "A" : p == core::Protocol::B ? "B" : "C";
}
const char* name_of(core::Role r) {
  return r == core::Role::primary ? "Primary" : "Secondary";
}

// Whether a primary, or all other members, confirm the set in this replica's log. A replica without
// connections may have been removed from the set.
bool is_confirmed(const core::VolumeStatus& s) {
  if (s.role == core::Role::primary) return true;
  bool all_here = true;
  for (const core::PeerStatus& p : s.peers) {
    bool here = p.known && p.connection == core::ConnectionState::Connected;
    if (here && p.primary) return true;
    all_here = all_here && (here || !p.in_sync);
  }
  return all_here;
}

// UpToDate: has every record. Consistent: complete content, but perhaps not the newest. A peer's content is
// known only while it is connected.
const char* disk_of(const NodeView& v) {
  const core::VolumeStatus& s = v.status;
  if (s.failed) return "Failed";
  if (s.inconsistent || s.refilling) return "Inconsistent";
  if (!(s.in_sync & set_of(v.settings.replica))) return "Outdated";
  return is_confirmed(s) ? "UpToDate" : "Consistent";
}
const char* disk_of(const core::VolumeStatus& s, const core::PeerStatus& p) {
  if (p.inconsistent || p.sync_target) return "Inconsistent";
  if (p.connection != core::ConnectionState::Connected)
    return s.role == core::Role::primary && !p.in_sync ? "Outdated" : "DUnknown";
  if (s.role == core::Role::secondary)
    return !p.in_sync ? "Outdated" : is_confirmed(s) ? "UpToDate" : "Consistent";
  return p.durable == s.last ? "UpToDate" : "Behind";
}
const char* role_of(const core::PeerStatus& p) {
  return !p.known ? "Unknown" : p.primary ? "Primary" : "Secondary";
}

const char* name_of(net::LinkProtection::Kind kind) {
  using Kind = net::LinkProtection::Kind;
  switch (kind) {
    case Kind::clear_text:
      return "clear-text";
    case Kind::secret:
      return "tls-secret";
    case Kind::certificate:
      return "tls-certificate";
    case Kind::old_release:
      return "old-release";
  }
  return "?";
}

std::string protection_text(const NodeView& v, const core::PeerStatus& p) {
  auto link = v.links.find(p.id);
  if (link == v.links.end()) return "";
  using Kind = net::LinkProtection::Kind;
  switch (link->second.protection.kind) {
    case Kind::clear_text:
      return "  clear text";
    case Kind::old_release:
      return "  CLEAR TEXT: upgrade it";
    case Kind::secret:
    case Kind::certificate:
      break;
  }
  const auto& protection = link->second.protection;
  std::string text = protection.by_kernel ? "  TLS by the kernel" : "  TLS";
  if (protection.peer_expires) text += " until " + date_text(*protection.peer_expires);
  return text;
}

std::string certificate_line(const NodeView& v) {
  if (!v.certificate_ends) return "";
  std::int64_t left = *v.certificate_ends - v.wall_seconds;
  if (left <= 0) return fmt::format("  tls      CERTIFICATE ENDED on {}\n", date_text(*v.certificate_ends));
  return fmt::format("  tls      certificate until {}, {} day(s) left\n", date_text(*v.certificate_ends),
                     left / 86'400);
}

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 10ull << 30) return fmt::format("{} GiB", bytes >> 30);
  if (bytes >= 10ull << 20) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", bytes >> 10);
}

std::string duration_text(std::uint64_t seconds) {
  if (seconds >= 3600) return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
  if (seconds >= 60) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  return fmt::format("{} s", seconds);
}

std::string speed_text(const ResyncProgress& r) {
  if (r.bytes_per_second == 0) return "";
  return fmt::format("  {}/s, {} left", size_text(r.bytes_per_second), duration_text(*r.seconds_left));
}

std::string bar(const ResyncProgress& r) {
  constexpr unsigned width = 30;
  unsigned full = r.percent() * width / 100;
  return fmt::format("[{}{}] {}% of {}{}", std::string(full, '#'), std::string(width - full, '.'),
                     r.percent(), size_text(r.total_bytes), speed_text(r));
}

bool is_here(const core::PeerStatus& p) {
  return p.known && p.connection == core::ConnectionState::Connected;
}
bool is_in_sync(const core::VolumeStatus& s, const core::PeerStatus& p) {
  return p.in_sync && is_here(p) && is_confirmed(s);
}
std::uint64_t seconds_since(const core::VolumeStatus& s, const core::PeerStatus& p) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::seconds>(s.now - p.since).count());
}

// The known state of a peer, and since when. For an unconnected peer, the log shows only whether it was
// counted as in sync.
std::string membership_text(const core::VolumeStatus& s, const core::PeerStatus& p) {
  if (is_in_sync(s, p)) return "  in sync";
  std::string text;
  if (!is_here(p)) {
    std::string since = duration_text(seconds_since(s, p));
    text = p.seen ? fmt::format("  away for {}", since)
                  : fmt::format("  not seen since the start {} ago", since);
  }
  if (p.in_sync)
    text += fmt::format("{} counted as in sync in epoch {}", text.empty() ? " " : ",", s.epoch.counter);
  return text;
}

// The peers with protocol C that lack acknowledged writes.
std::string left_out(const core::VolumeStatus& s) {
  std::string ids;
  for (const auto& p : s.peers)
    if (p.protocol == core::Protocol::C && !p.in_sync)
      ids += fmt::format("{}{}", ids.empty() ? "" : ", ", p.id);
  return ids;
}

std::string waiting_text(const core::VolumeStatus& s) {
  for (const core::PeerStatus& p : s.peers)
    if (is_here(p) && p.primary) return fmt::format("standing by: replica {} is primary", p.id);
  return "waits to be promoted: " + s.waits_for;
}

// What has not confirmed the newest record: the possible reasons for the wait of the oldest request.
std::string unconfirmed(const core::VolumeStatus& s) {
  std::string ids;
  for (const auto& p : s.peers)
    if (p.protocol == core::Protocol::C && p.in_sync && p.connection == core::ConnectionState::Connected &&
        p.durable < s.last)
      ids += fmt::format("{}replica {}", ids.empty() ? "" : ", ", p.id);
  if (s.durable < s.last) ids += fmt::format("{}the journal here", ids.empty() ? "" : ", ");
  return ids.empty() ? "" : fmt::format(". Not confirmed by {}", ids);
}

std::string seconds_text(Duration wait) {
  return duration_text(
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(wait).count()));
}
std::string waited_text(Duration wait) {
  return "the oldest request has waited for " + seconds_text(wait);
}

std::string stalled_text(const NodeView& v) {
  std::string text = "STALLED: ";
  if (v.oldest_wait >= stalled_after) text += waited_text(v.oldest_wait) + unconfirmed(v.status);
  if (v.oldest_disk_wait >= disk_stalled_after)
    text += fmt::format("{}The disk here has not answered for {}", v.oldest_wait >= stalled_after ? ". " : "",
                        seconds_text(v.oldest_disk_wait));
  return text;
}

std::string state_line(const NodeView& v) {
  const core::VolumeStatus& s = v.status;
  if (s.failed) return fmt::format("FAILED: {}. Writes fail until the device is attached again", s.failure);
  if (v.device_lost) return "FAILED: the block device is lost: see `device`";
  if (s.suspended) {
    std::string reason;
    for (const auto& p : s.peers)
      if (!p.why.empty()) reason = fmt::format(" ({})", p.why);
    return fmt::format("SUSPENDED: writes wait for {}{}; {} requests waiting", s.waits_for, reason,
                       s.waiting_requests);
  }
  if (is_stalled(v)) return stalled_text(v);
  std::string slow;
  if (s.slowed_by != 0)
    slow = fmt::format(". SLOW: writes wait for room in memory or journal, because replica {} is {} behind",
                       s.slowed_by, size_text(s.slowed_by_bytes));
  if (std::string away = left_out(s); !away.empty())
    return fmt::format("DEGRADED: serving without replica {}{}", away, slow);
  return "serving" + slow;
}

// Short waits are not reported.
std::string wait_text(const NodeView& v) {
  bool said = !v.status.failed && !v.device_lost && !v.status.suspended && is_stalled(v);
  return said || v.oldest_wait < std::chrono::seconds(1) ? "" : "; " + waited_text(v.oldest_wait);
}

}  // namespace

namespace {

MemoryBound bound_of(const NodeView& v) {
  return memory_bound(v.settings, v.volume_bytes, v.status.journal_size);
}

// The memory that is always allocated, that grows with content, and that grows with load.
std::string memory_line(const NodeView& v) {
  MemoryBound m = bound_of(v);
  std::string load;
  if (m.clients > 0)
    load += fmt::format("; up to {} more when all clients keep their queues full", size_text(m.clients));
  if (m.replicas > 0) load += fmt::format("; up to {} more when replicas are slow", size_text(m.replicas));
  return fmt::format(
      "  memory   {} now, all volumes of the process. This volume: {} without load (arena {}, program and "
      "reads {}, digests up to {}, "
      "bitmaps and log up to {}){}. At most {}\n",
      size_text(resident_bytes()), size_text(m.total() - m.clients - m.replicas), size_text(m.arena),
      size_text(m.process + m.reads), size_text(m.digests), size_text(m.bitmaps + m.log), load,
      size_text(m.total()));
}

}  // namespace

void tell_link_troubles(core::VolumeStatus& status, const net::PeerNet& net,
                        const std::map<ReplicaId, std::string>& unfit) {
  for (auto& peer : status.peers) {
    auto known = unfit.find(peer.id);
    if (!net.is_wanted(peer.id)) {
      peer.connection = core::ConnectionState::StandAlone;
      peer.why = "disconnected by the administrator";
    } else if (std::string trouble = net.trouble(peer.id); !trouble.empty()) {
      // The reason may have changed since that handshake.
      bool outdated = peer.why == (known == unfit.end() ? "" : known->second);
      if (peer.connection == core::ConnectionState::Connecting || outdated) peer.why = trouble;
    }
  }
}

namespace {

std::string lag_seconds(Duration lag) {
  return duration_text(
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(lag).count()));
}

// What the peer lacks, and what becomes of it.
std::string buffer_text(const core::VolumeStatus& s, const core::PeerStatus& p) {
  if (!p.buffer || (s.role == core::Role::secondary && p.primary)) return "";
  const core::BufferStatus& b = *p.buffer;
  const char* const next = "\n           ";
  if (b.waits)
    return fmt::format("{}buffer given up: its resync waits until the line can carry the load", next);
  if (b.given_up) return fmt::format("{}buffer given up: it needs a resync", next);
  if (b.lag_bytes == 0) return fmt::format("{}buffer empty, of {}", next, size_text(b.bound));
  return fmt::format("{}buffer {} of {} used: {} LSNs and {} behind{}", next, size_text(b.lag_bytes),
                     size_text(b.bound), b.lag_lsns, lag_seconds(b.lag),
                     b.slows ? ". FULL: writers wait for it" : "");
}

// What is sent less because of compression. Nothing is said of a link without it.
std::string compression_text(const NodeView& v, const core::PeerStatus& p) {
  auto link = v.links.find(p.id);
  if (link == v.links.end() || link->second.compression == compress::Setting()) return "";
  std::string setting = compress::text_of(link->second.compression);
  const char* const next = "\n           ";
  if (!link->second.packing)
    return fmt::format("{}compression {}: NOT USED, the peer's release does not know it", next, setting);
  const stream::PackingStatus& s = *link->second.packing;
  if (s.peer_lacks_codec)
    return fmt::format("{}compression {}: NOT USED, the peer's release does not know this codec", next,
                       setting);
  bool adaptive = std::holds_alternative<compress::Adaptive>(link->second.compression);
  std::string line = s.line_rate ? fmt::format(", line {}/s when full",
                                               size_text(static_cast<std::uint64_t>(*s.line_rate)))
                                 : "";
  return fmt::format("{}compression {}{}: {} sent as {}{}", next, setting,
                     adaptive ? fmt::format(" ({} now)", compress::name_of(s.codec)) : "",
                     size_text(s.out_raw), size_text(s.out_line), line);
}

std::string_view name_of(net::PathStatus::State state, bool carries) {
  using State = net::PathStatus::State;
  if (state == State::down) return "down";
  return state == State::trial ? "trial" : carries ? "in use" : "spare";
}

// Nothing is said of a link with one path.
std::string paths_text(const NodeView& v, const core::PeerStatus& p) {
  auto link = v.links.find(p.id);
  if (link == v.links.end()) return "";
  std::string out;
  for (const net::PathStatus& path : link->second.paths) {
    std::string state(name_of(path.state, path.carries));
    if (path.state == net::PathStatus::State::down) state = "DOWN";
    if (!path.why.empty()) state += ": " + path.why;
    std::string trip = path.round_trip
                           ? fmt::format(", round trip {:.1f} ms",
                                         std::chrono::duration<double, std::milli>(*path.round_trip).count())
                           : "";
    out += fmt::format("\n           path {} {}  {}{}", path.number + 1, path.address, state, trip);
  }
  return out;
}

std::string bandwidth_text(const NodeView& v, const core::PeerStatus& p) {
  auto link = v.links.find(p.id);
  if (link == v.links.end()) return "";
  const LinkState& l = link->second;
  if (!l.rate && !l.rate_of_all) return "";
  std::string own = l.rate ? fmt::format("at most {}/s", size_text(*l.rate)) : "not limited";
  std::string all = l.rate_of_all ? fmt::format(", all links of the process {}/s", size_text(*l.rate_of_all))
                                  : "";
  return fmt::format("\n           bandwidth {}{}{}", own, all,
                     l.packing ? "" : ": NOT KEPT, the peer's release does not know it");
}

// Nothing is said while the link has enough.
std::string memory_text(const NodeView& v, const core::PeerStatus& p) {
  auto link = v.links.find(p.id);
  if (link == v.links.end() || !link->second.memory || !link->second.memory->waits) return "";
  const LinkMemoryState& m = *link->second.memory;
  return fmt::format("\n           memory {} on the way: link_memory, {} for all links, leaves no more",
                     size_text(p.on_its_way), size_text(m.bound));
}

// At each of the three: the primary, the relay and the replica behind it.
std::string relay_text(const core::PeerStatus& p) {
  constexpr const char* next = "\n           ";
  if (p.relay != 0) return fmt::format("{}gets its records from replica {}", next, p.relay);
  if (p.relays_to) return fmt::format("{}gets its records from here", next);
  return p.takes_from ? fmt::format("{}this replica gets its records from it", next) : "";
}

// Of a primary. Nothing is said as long as every read is from this machine's disk.
std::string reads_text(const core::VolumeStatus& s, const core::PeerStatus& p) {
  bool balances = s.read_policy != core::ReadPolicy();
  if (s.role != core::Role::primary || (!balances && p.reads == 0)) return "";
  std::string wrong = p.wrong_reads == 0
                          ? ""
                          : fmt::format(", {} WITH OTHER CONTENT than was written", p.wrong_reads);
  return fmt::format("\n           reads {}: {} answered{}", core::text_of(s.read_policy), p.reads, wrong);
}

std::string behind_line(const core::VolumeStatus& s) {
  if (!s.behind || s.role == core::Role::primary) return "";
  const core::BehindReport& r = *s.behind;
  std::string ago = lag_seconds(s.now - r.at);
  if (r.durable >= r.last)
    return fmt::format("  behind   nothing, reported {} ago at LSN {}\n", ago, r.last.v);
  return fmt::format("  behind   LSN {} of {}, {}, {}; reported {} ago\n", r.durable.v, r.last.v,
                     size_text(r.bytes), lag_seconds(r.lag), ago);
}

}  // namespace

std::string status_text(const NodeView& v) {
  const core::VolumeStatus& s = v.status;
  std::string out = fmt::format("{}  {}  {}  replica {}  {}\n", v.settings.name, name_of(s.role), disk_of(v),
                                v.settings.replica, size_text(v.volume_bytes));
  if (std::string state = state_text(state_of(v)); !state.empty()) out.insert(out.size() - 1, "  " + state);
  if (s.role == core::Role::primary)
    out += fmt::format("  state    {}{}\n", state_line(v), wait_text(v));
  else if (s.failed)
    out += fmt::format("  state    {}\n", state_line(v));
  else if (is_stalled(v))
    out += fmt::format("  state    {}\n", stalled_text(v));
  else if (v.wants_primary)
    out += fmt::format("  state    {}\n", waiting_text(s));
  if (!v.stop_waits_for.empty()) out += fmt::format("  stop     not yet: {}\n", v.stop_waits_for);
  if (s.discards_for != 0)
    out += fmt::format("  state    discarding: waits for replica {} to connect as primary\n", s.discards_for);
  for (const auto& p : s.peers) {
    out += fmt::format("  peer {}   {}  {}/{}  protocol {}{}", p.id, name_of(p), role_of(p), disk_of(s, p),
                       name_of(p.protocol), membership_text(s, p) + protection_text(v, p));
    if (s.role == core::Role::primary)
      out += fmt::format("  sent {}  received {}  durable {}", p.sent.v, p.received.v, p.durable.v);
    if (auto r = v.resyncs.of(p, v.volume_bytes / block_size))
      out += fmt::format("\n           resync {}", bar(*r));
    if (p.sync_target && s.resync_held_to != 0)
      out += fmt::format(
          "\n           slowed to {}/s: flushes or reads take longer than resync_latency_target",
          size_text(s.resync_held_to));
    out += buffer_text(s, p);
    out += compression_text(v, p);
    out += paths_text(v, p);
    out += bandwidth_text(v, p);
    out += memory_text(v, p);
    out += reads_text(s, p);
    out += relay_text(p);
    if (p.split_brain) out += "\n           SPLIT BRAIN: each replica has writes that the other lacks";
    if (!p.why.empty()) out += fmt::format("\n           {}", p.why);
    out += '\n';
  }
  if (!v.device.empty()) out += fmt::format("  device   {}\n", v.device);
  if (!v.device_trouble.empty()) out += fmt::format("  device   {}\n", v.device_trouble);
  if (!v.nbd.empty()) out += fmt::format("  nbd      {}\n", v.nbd);
  if (s.repaired_blocks + s.unreadable_blocks > 0)
    out += fmt::format(
        "  disk     since start {} blocks repaired from a peer{}; {} unrecoverable\n", s.repaired_blocks,
        s.wrong_blocks > 0 ? fmt::format(" ({} found corrupt)", s.wrong_blocks) : "", s.unreadable_blocks);
  out += certificate_line(v);
  std::string arbiter = arbiter::name_of(v.settings.arbiter.kind);
  out += fmt::format("  arbiter  {}\n", v.arbiter_trouble.empty() ? arbiter : v.arbiter_trouble);
  out += fmt::format("  log      epoch {}  last {}  durable {}  committed {}  tail {}\n", s.epoch.counter,
                     s.last.v, s.durable.v, s.commit.v, s.tail.v);
  out += fmt::format("  journal  {} of {} used   arena {} of {} used   {} blocks to write home\n",
                     size_text(s.journal_used), size_text(s.journal_size), size_text(s.arena_used),
                     size_text(s.arena_size), s.dirty_blocks);
  if (!v.settings.spill.empty()) out += fmt::format("  spill    {} used\n", size_text(s.spilled));
  out += behind_line(s);
  out += memory_line(v);
  return out;
}

std::string status_line(const NodeView& v) {
  const core::VolumeStatus& s = v.status;
  std::string out = fmt::format("{}  {}  {}", v.settings.name, name_of(s.role), disk_of(v));
  if (std::string state = state_text(state_of(v)); !state.empty()) out += "  " + state;
  if (s.role == core::Role::primary || s.failed)
    out += fmt::format("  {}{}", state_line(v), wait_text(v));
  else if (is_stalled(v))
    out += "  " + stalled_text(v);
  else if (v.wants_primary)
    out += fmt::format("  {}", waiting_text(s));
  for (const auto& p : s.peers) {
    out += fmt::format("  |  peer {} {} {}", p.id, name_of(p), disk_of(s, p));
    if (auto r = v.resyncs.of(p, v.volume_bytes / block_size))
      out += fmt::format(" {}% of {}{}", r->percent(), size_text(r->total_bytes), speed_text(*r));
    if (p.split_brain) out += " SPLIT BRAIN";
  }
  return out + "\n";
}

namespace {

// null: no resync on this connection.
json::value resync_json(const NodeView& v, const core::PeerStatus& p) {
  auto r = v.resyncs.of(p, v.volume_bytes / block_size);
  if (!r) return nullptr;
  json::object out{{"done_bytes", r->done_bytes},
                   {"total_bytes", r->total_bytes},
                   {"bytes_per_second", r->bytes_per_second},
                   {"seconds_left", nullptr}};
  if (r->seconds_left) out["seconds_left"] = *r->seconds_left;
  return out;
}

json::value rate_json(const stream::Rate& rate) {
  return rate ? json::value(*rate) : json::value(nullptr);
}

// null: the peer's release does not compress. Bytes since the connection began.
json::value compression_json(const LinkState& link) {
  if (!link.packing) return nullptr;
  const stream::PackingStatus& p = *link.packing;
  json::object out{{"setting", compress::text_of(link.compression)},
                   {"codec", compress::name_of(p.codec)},
                   {"peer_lacks_codec", p.peer_lacks_codec},
                   {"out_raw_bytes", p.out_raw},
                   {"out_line_bytes", p.out_line},
                   {"in_raw_bytes", p.in_raw},
                   {"in_line_bytes", p.in_line},
                   {"line_bytes_per_second", nullptr}};
  if (p.line_rate) out["line_bytes_per_second"] = static_cast<std::uint64_t>(*p.line_rate);
  return out;
}

// null: the links have no bound together.
json::value memory_json(const LinkState& link) {
  if (!link.memory) return nullptr;
  return json::object{{"bound_of_all_bytes", link.memory->bound}, {"waits", link.memory->waits}};
}

// Empty: a link of one path.
json::value paths_json(const LinkState& link) {
  json::array out;
  for (const net::PathStatus& path : link.paths) {
    json::object one{{"number", path.number + 1},
                     {"address", path.address},
                     {"state", name_of(path.state, path.carries)},
                     {"why", path.why},
                     {"sent_bytes", path.sent},
                     {"received_bytes", path.received},
                     {"round_trip_seconds", nullptr}};
    if (path.round_trip) one["round_trip_seconds"] = std::chrono::duration<double>(*path.round_trip).count();
    out.push_back(std::move(one));
  }
  return out;
}

// null: not connected. expires: of the peer's certificate, in seconds since 1970, UTC.
json::value link_json(const NodeView& v, const core::PeerStatus& p) {
  auto link = v.links.find(p.id);
  if (link == v.links.end()) return nullptr;
  const net::LinkProtection& protection = link->second.protection;
  json::object out{{"protection", name_of(protection.kind)},
                   {"expires", nullptr},
                   {"kernel_tls", protection.by_kernel},
                   {"compression", compression_json(link->second)},
                   {"limit_bytes_per_second", rate_json(link->second.rate)},
                   {"limit_of_all_bytes_per_second", rate_json(link->second.rate_of_all)},
                   {"memory", memory_json(link->second)},
                   {"paths", paths_json(link->second)}};
  if (protection.peer_expires) out["expires"] = *protection.peer_expires;
  return out;
}

double seconds_of(Duration d) {
  return std::chrono::duration<double>(d).count();
}

json::value buffer_json(const core::PeerStatus& p) {
  if (!p.buffer) return nullptr;
  const core::BufferStatus& b = *p.buffer;
  return json::object{{"bound_bytes", b.bound},   {"lag_bytes", b.lag_bytes},
                      {"lag_lsns", b.lag_lsns},   {"lag_seconds", seconds_of(b.lag)},
                      {"full", b.slows},          {"given_up", b.given_up},
                      {"waits_for_line", b.waits}};
}

json::value behind_json(const core::VolumeStatus& s) {
  if (!s.behind || s.role == core::Role::primary) return nullptr;
  const core::BehindReport& r = *s.behind;
  return json::object{{"last_lsn", r.last.v},
                      {"durable_lsn", r.durable.v},
                      {"lag_bytes", r.bytes},
                      {"lag_seconds", seconds_of(r.lag)},
                      {"reported_seconds_ago", seconds_of(s.now - r.at)}};
}

json::object peer_json(const NodeView& v, const core::PeerStatus& p) {
  const core::VolumeStatus& s = v.status;
  return {{"id", p.id},
          {"connection", name_of(p)},
          {"resync", resync_json(v, p)},
          {"disk", disk_of(s, p)},
          {"role", role_of(p)},
          {"in_sync", is_in_sync(s, p)},
          {"counted_in_sync", p.in_sync},
          {"seen", p.seen},
          {"since_seconds", seconds_since(s, p)},
          {"split_brain", p.split_brain},
          {"protocol", name_of(p.protocol)},
          {"sent_lsn", p.sent.v},
          {"received_lsn", p.received.v},
          {"durable_lsn", p.durable.v},
          {"link", link_json(v, p)},
          {"buffer", buffer_json(p)},
          {"on_its_way_bytes", p.on_its_way},
          {"relay", p.relay},
          {"relays_to", p.relays_to},
          {"takes_from", p.takes_from},
          {"reads", p.reads},
          {"wrong_reads", p.wrong_reads},
          {"reason", p.why}};
}

json::object memory_json(const NodeView& v) {
  MemoryBound m = bound_of(v);
  return {{"bound_bytes", m.total()},          {"arena_bytes", m.arena},       {"reads_bytes", m.reads},
          {"digests_bytes", m.digests},        {"bitmaps_bytes", m.bitmaps},   {"log_bytes", m.log},
          {"clients_bytes", m.clients},        {"replicas_bytes", m.replicas}, {"process_bytes", m.process},
          {"resident_bytes", resident_bytes()}};
}

json::object since_start_json(const core::VolumeStatus& s) {
  return {{"records", s.records},
          {"journal_bytes", s.records_bytes},
          {"checkpoints", s.checkpoints},
          {"home_blocks", s.home_blocks_written},
          {"repaired_blocks", s.repaired_blocks},
          {"unreadable_blocks", s.unreadable_blocks},
          {"wrong_blocks", s.wrong_blocks}};
}

json::object log_json(const core::VolumeStatus& s) {
  return {{"last", s.last.v}, {"durable", s.durable.v}, {"commit", s.commit.v}, {"tail", s.tail.v}};
}

json::array ids_json(ReplicaSet set) {
  json::array out;
  for (ReplicaId id = 1; id <= replica_id_max; ++id)
    if (set & set_of(id)) out.push_back(id);
  return out;
}

std::int64_t ms(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

}  // namespace

std::string status_json(const NodeView& v) {
  const core::VolumeStatus& s = v.status;
  json::array peers;
  for (const auto& p : s.peers) peers.push_back(peer_json(v, p));
  json::value certificate_expires = nullptr;
  if (v.certificate_ends) certificate_expires = *v.certificate_ends;
  json::object root{{"memory", memory_json(v)},
                    {"behind", behind_json(s)},
                    {"spilled_bytes", s.spilled},
                    {"certificate_expires", certificate_expires},
                    {"name", v.settings.name},
                    {"volume", v.volume.text()},
                    {"replica", v.settings.replica},
                    {"size_bytes", v.volume_bytes},
                    {"state", name_of(state_of(v))},
                    {"role", name_of(s.role)},
                    {"disk", disk_of(v)},
                    {"wants_primary", v.wants_primary},
                    {"waits_for", s.waits_for},
                    {"slowed_by", s.slowed_by},
                    {"resync_held_to", s.resync_held_to},
                    {"discards_for", s.discards_for},
                    {"in_sync", ids_json(s.in_sync)},
                    {"degraded", s.role == core::Role::primary && !left_out(s).empty()},
                    {"arbiter", json::object{{"kind", arbiter::name_of(v.settings.arbiter.kind)},
                                             {"trouble", v.arbiter_trouble}}},
                    {"failed", s.failed},
                    {"failure", s.failure},
                    {"suspended", s.suspended},
                    {"waiting_requests", s.waiting_requests},
                    {"oldest_request_waits_ms", ms(v.oldest_wait)},
                    {"oldest_disk_operation_ms", ms(v.oldest_disk_wait)},
                    {"device", v.device},
                    {"device_trouble", v.device_trouble},
                    {"stop_waits_for", v.stop_waits_for},
                    {"nbd", v.nbd},
                    {"epoch", json::object{{"counter", s.epoch.counter}, {"id", s.epoch.id.text()}}},
                    {"lsn", log_json(s)},
                    {"journal", json::object{{"used_bytes", s.journal_used}, {"size_bytes", s.journal_size}}},
                    {"arena", json::object{{"used_bytes", s.arena_used}, {"size_bytes", s.arena_size}}},
                    {"dirty_blocks", s.dirty_blocks},
                    {"read_balancing", core::text_of(s.read_policy)},
                    {"since_start", since_start_json(s)},
                    {"peers", std::move(peers)}};
  return json::serialize(root) + "\n";
}

}  // namespace twinloft::repl::daemon
