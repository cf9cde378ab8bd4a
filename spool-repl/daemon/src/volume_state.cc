#include "volume_state.h"

#include <algorithm>

namespace twinloft::repl::daemon {

namespace {

using core::PeerStatus;

bool connected(const PeerStatus& p) {
  return p.connection == core::ConnectionState::Connected;
}
bool is_filled(const PeerStatus& p) {
  return p.sync_target || p.sync_source || p.inconsistent;
}

// A connected replica becomes a member again, by a resync or by records.
bool is_left_out(const PeerStatus& p) {
  return !p.in_sync && p.protocol == core::Protocol::C;
}

bool any(const core::VolumeStatus& s, auto&& what) {
  return std::any_of(s.peers.begin(), s.peers.end(), what);
}

VolumeState state_of_primary(const core::VolumeStatus& s) {
  if (any(s, [](const PeerStatus& p) { return !connected(p); })) return VolumeState::degraded;
  if (any(s, [](const PeerStatus& p) { return is_left_out(p) || is_filled(p); }))
    return VolumeState::resyncing;
  return VolumeState::ok;
}

VolumeState state_of_secondary(const NodeView& v) {
  const core::VolumeStatus& s = v.status;
  auto primary = std::find_if(s.peers.begin(), s.peers.end(),
                              [](const PeerStatus& p) { return connected(p) && p.primary; });
  if (primary == s.peers.end()) return VolumeState::no_primary;
  bool member = (s.in_sync & set_of(v.settings.replica)) != 0 || primary->protocol != core::Protocol::C;
  if (!member || s.inconsistent || s.refilling) return VolumeState::resyncing;
  return any(s, is_left_out) ? VolumeState::degraded : VolumeState::ok;
}

}  // namespace

VolumeState state_of(const NodeView& v) {
  const core::VolumeStatus& s = v.status;
  if (s.failed || v.device_lost) return VolumeState::failed;
  if (any(s, [](const PeerStatus& p) { return p.split_brain; })) return VolumeState::split_brain;
  if (s.suspended) return VolumeState::suspended;
  if (is_stalled(v)) return VolumeState::stalled;
  return s.role == core::Role::primary ? state_of_primary(s) : state_of_secondary(v);
}

std::string reason_of(const NodeView& v) {
  const core::VolumeStatus& s = v.status;
  switch (state_of(v)) {
    case VolumeState::failed:
      return s.failed ? s.failure : "the block device is lost";
    case VolumeState::split_brain:
      return "two acknowledged histories";
    case VolumeState::suspended:
      return fmt::format("writes wait for {}", s.waits_for);
    case VolumeState::stalled:
      return v.oldest_disk_wait >= disk_stalled_after ? "the disk here does not answer"
                                                      : "requests are not answered";
    default:
      return "";
  }
}

const char* name_of(VolumeState state) {
  switch (state) {
    case VolumeState::ok:
      return "ok";
    case VolumeState::resyncing:
      return "resyncing";
    case VolumeState::degraded:
      return "degraded";
    case VolumeState::starting:
      return "starting";
    case VolumeState::no_primary:
      return "no-primary";
    case VolumeState::stalled:
      return "stalled";
    case VolumeState::suspended:
      return "suspended";
    case VolumeState::split_brain:
      return "split-brain";
    case VolumeState::failed:
      return "failed";
  }
  return "?";
}

const char* state_text(VolumeState state) {
  switch (state) {
    case VolumeState::ok:
      return "";
    case VolumeState::resyncing:
      return "RESYNCING";
    case VolumeState::degraded:
      return "DEGRADED";
    case VolumeState::starting:
      return "STARTING";
    case VolumeState::no_primary:
      return "NO PRIMARY";
    case VolumeState::stalled:
      return "STALLED";
    case VolumeState::suspended:
      return "SUSPENDED";
    case VolumeState::split_brain:
      return "SPLIT BRAIN";
    case VolumeState::failed:
      return "FAILED";
  }
  return "?";
}

}  // namespace twinloft::repl::daemon
