#include "twinloft/lmtpd/policy/spool_health.h"

#include <algorithm>
#include <cerrno>

namespace twinloft::lmtpd {

namespace {

using State = SpoolHealth::State;

constexpr std::uint64_t reserve_bytes_most = 64u << 20;

SpoolHealth suspended_since(Instant since) {
  return {State::suspended, since};
}

// Errc::unavailable without an errno: the marker is that of another volume (Spool::open()).
SpoolHealth health_of_trouble(const Error& trouble) {
  switch (trouble.sys) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return {};  // this process lacks something, and not the spool
    case EROFS:
      return {State::read_only};
    case ENOSPC:
      return {State::full};
    case ENOENT:
      return {State::not_mounted};
    default:
      return {trouble.code == Errc::unavailable && trouble.sys == 0 ? State::not_mounted : State::failed};
  }
}

}  // namespace

SpoolHealth health_of(const SpoolLook& look, const VolumeTold& told, const SpoolRules& rules, Instant now) {
  using Told = VolumeTold::State;
  if (told.state == Told::failed) return {State::failed};
  if (told.state == Told::suspended || told.state == Told::stalled) return suspended_since(told.since);
  if (look.hangs_since && now - *look.hangs_since >= rules.hangs_for)
    return suspended_since(*look.hangs_since);
  if (look.trouble) return health_of_trouble(*look.trouble);
  if (look.read_only) return {State::read_only};
  if (look.bytes == 0) return {};  // no look has returned yet
  const std::uint64_t reserve = rules.reserve_bytes.value_or(std::min(look.bytes / 100, reserve_bytes_most));
  const std::uint64_t inodes = std::min(look.inodes / 100, rules.reserve_inodes_most);
  bool full = look.free_bytes < reserve || look.free_inodes < inodes;
  return full ? SpoolHealth{State::full} : SpoolHealth{};
}

std::optional<Reply> refusal_of_spool(const SpoolHealth& health, const SpoolRules& rules, Instant now,
                                      bool authenticated) {
  switch (health.state) {
    case State::serving:
      return std::nullopt;
    case State::suspended:
      if (authenticated || now - health.since < rules.suspended_for) return std::nullopt;
      return make_reply(451, "4.3.2", "The mail spool waits for another machine, try again later");
    case State::not_mounted:
      return make_reply(451, "4.3.1", "The mail spool is not mounted, try again later");
    case State::failed:
      return make_reply(451, "4.3.1", "The mail spool has failed, try again later");
    case State::read_only:
      return make_reply(451, "4.3.1", "The mail spool cannot be written to, try again later");
    case State::full:
      return make_reply(451, "4.3.1", "The mail spool is nearly full, try again later");
  }
  return std::nullopt;
}

}  // namespace twinloft::lmtpd
