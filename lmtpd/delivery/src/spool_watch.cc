#include "twinloft/lmtpd/delivery/spool_watch.h"

#include <sys/statvfs.h>

#include <cerrno>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "twinloft/base/log.h"
#include "twinloft/spool-state/spool_state.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::string_view state_suspended = "suspended", state_stalled = "stalled", state_failed = "failed";

SpoolLook look_at(Spool& spool, bool in_use) {
  auto handle = spool.open();
  if (!handle) return {.trouble = std::move(handle).error()};
  SpoolLook look;
  struct statvfs about{};
  if (::fstatvfs(handle->root.get(), &about) != 0)
    look.trouble = fail_errno(errno, "{}", spool.root()).error();
  else if (auto alive = in_use ? spool.check_not_failed(*handle) : Status(); !alive)
    look.trouble = std::move(alive).error();
  look.read_only = (about.f_flag & ST_RDONLY) != 0;
  look.bytes = std::uint64_t{about.f_blocks} * about.f_frsize;
  look.free_bytes = std::uint64_t{about.f_bavail} * about.f_frsize;
  look.inodes = about.f_files;
  look.free_inodes = about.f_favail;
  return look;
}

VolumeTold::State told_state(std::string_view state) {
  if (state == state_suspended) return VolumeTold::State::suspended;
  if (state == state_stalled) return VolumeTold::State::stalled;
  if (state == state_failed) return VolumeTold::State::failed;
  return VolumeTold::State::serving;
}

VolumeTold read_told(const std::string& path, const std::optional<Uuid>& volume) {
  auto state = spool_state::read_state(path);
  if (!state) log_debug("the state file of the volume: {}", state.error().message);
  if (!state || !*state) return {};
  if (volume && (*state)->uuid != volume->text()) return {};
  return {told_state((*state)->state), (*state)->since};
}

// nullopt: there is no memory. The last result counts then.
template <class See>
auto attempt(const See& see) -> std::optional<decltype(see())> {
  try {
    return see();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// For an operator, who sees that MTAs get 451.
void log_change(SpoolHealth::State before, SpoolHealth::State now) {
  using State = SpoolHealth::State;
  if (now == before) return;
  switch (now) {
    case State::serving:
      return log_info("the spool takes mail again");
    case State::suspended:
      return log_warning(
          "the spool's volume is suspended: deliveries wait, and RCPT gets 451 after spool.suspended_for");
    case State::not_mounted:
      return log_warning("the spool is not mounted: RCPT gets 451 4.3.1");
    case State::failed:
      return log_error("the spool has failed: RCPT gets 451 4.3.1");
    case State::read_only:
      return log_warning("the spool is read-only: RCPT gets 451 4.3.1");
    case State::full:
      return log_warning("the spool is nearly full (spool.reserve): RCPT gets 451 4.3.1");
  }
}

}  // namespace

struct SpoolWatch::Shared {
  explicit Shared(Eyes the_eyes) : eyes(std::move(the_eyes)) {}
  const Eyes eyes;
  std::mutex mutex;
  std::condition_variable changed;
  bool ending = false;
  bool asked = false;                  // since the last look
  std::optional<Instant> looks_since;  // a look is under way
  SpoolLook seen;
  VolumeTold told;

  // The state file is read before each look, which may hang.
  void watch(Duration every, const SpoolRules& rules, const Clock& clock) {
    auto known = SpoolHealth::State::serving;
    std::unique_lock lock(mutex);
    while (!ending) {
      lock.unlock();
      auto now_told = eyes.tell ? attempt(eyes.tell) : VolumeTold{};
      lock.lock();
      told = now_told.value_or(told);
      looks_since = clock.now();
      bool in_use = std::exchange(asked, false);
      lock.unlock();
      auto now_seen = attempt([&] { return eyes.look(in_use); });
      lock.lock();
      if (now_seen) seen = std::move(*now_seen);
      looks_since.reset();
      auto state = health_of(seen, told, rules, clock.now()).state;
      lock.unlock();
      log_change(std::exchange(known, state), state);
      lock.lock();
      changed.wait_for(lock, every, [this] { return ending; });
    }
  }
};

SpoolWatch::SpoolWatch(const SpoolWatchConfig& config, Eyes eyes, const Clock& clock)
    : shared_(std::make_shared<Shared>(std::move(eyes))), rules_(config.rules), clock_(clock) {
  std::thread([shared = shared_, config, &clock] {
    shared->watch(config.every, config.rules, clock);
  }).detach();
}

SpoolWatch::~SpoolWatch() {
  {
    std::lock_guard lock(shared_->mutex);
    shared_->ending = true;
  }
  shared_->changed.notify_one();
}

SpoolHealth SpoolWatch::health() const {
  std::lock_guard lock(shared_->mutex);
  shared_->asked = true;
  SpoolLook look = shared_->seen;
  look.hangs_since = shared_->looks_since;
  return health_of(look, shared_->told, rules_, clock_.now());
}

std::optional<Reply> SpoolWatch::refusal(const User& user, bool authenticated) const {
  if (!user.next_hop.empty()) return std::nullopt;
  return refusal_of_spool(health(), rules_, clock_.now(), authenticated);
}

SpoolWatch::Eyes eyes_for(std::shared_ptr<Spool> spool, const SpoolConfig& config, std::string state_file) {
  SpoolWatch::Eyes eyes;
  eyes.look = [spool = std::move(spool)](bool in_use) { return look_at(*spool, in_use); };
  if (!state_file.empty())
    eyes.tell = [path = std::move(state_file), volume = config.volume] { return read_told(path, volume); };
  return eyes;
}

// A look that hangs may outlive all parts, so the clock does too.
Result<std::unique_ptr<SpoolWatch>> watch_spool(const SpoolConfig& spool, const SpoolWatchConfig& config) {
  static const OsClock clock;
  static OsFileOps ops;
  TL_TRY_ASSIGN(std::shared_ptr<Spool> opened, Spool::create(spool, ops));
  return std::make_unique<SpoolWatch>(config, eyes_for(std::move(opened), spool, config.state_file), clock);
}

}  // namespace twinloft::lmtpd
