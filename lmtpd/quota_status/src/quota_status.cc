#include "twinloft/lmtpd/quota_status/quota_status.h"

#include <exception>
#include <iterator>
#include <string>
#include <utility>

#include "twinloft/base/log.h"
#include "twinloft/lmtpd/quota_status/policy.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t answer_bytes_max = 4096;
constexpr std::uint32_t late_max = 3;  // a single slow mailbox does not stop the questions about others

Result<std::string> read_answer(Stream& stream, Instant deadline) {
  std::string answer;
  while (!answer.ends_with("\n\n")) {
    if (answer.size() >= answer_bytes_max)
      return fail(Errc::conflict, "its answer has more than {} bytes", answer_bytes_max);
    char piece[512];
    auto got = stream.read(std::as_writable_bytes(std::span(piece)), deadline);
    if (!got && !answer.empty())
      return fail(got.error().code, "its answer is incomplete: {}", got.error().message);
    if (!got) return std::unexpected(std::move(got).error());
    answer.append(piece, *got);
  }
  return answer;
}

}  // namespace

// A slot of connections_max, or none within queue_time.
struct QuotaStatus::Slot {
  QuotaStatus& all;
  bool taken;
  explicit Slot(QuotaStatus& a) : all(a) {
    std::unique_lock lock(all.mutex_);
    taken = all.freed_.wait_for(lock, all.config_.queue_time,
                                [this] { return all.taken_ < all.config_.connections_max; });
    if (taken) ++all.taken_;
  }
  ~Slot() {
    if (!taken) return;
    {
      std::lock_guard lock(all.mutex_);
      --all.taken_;
    }
    all.freed_.notify_one();
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
};

std::unique_ptr<Stream> QuotaStatus::take_idle() {
  std::list<Idle> found;  // closed outside of the lock
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (idle_.empty()) return nullptr;
      found.splice(found.begin(), idle_, idle_.begin());
    }
    bool good = clock_.now() - found.front().since < config_.idle_timeout &&
                !found.front().stream->has_news();
    if (good) return std::move(found.front().stream);
  }
}

Result<std::string> QuotaStatus::ask_by(std::unique_ptr<Stream> stream, const std::string& request) {
  Instant deadline = clock_.now() + config_.answer_timeout;
  TL_TRY(stream->write(request, deadline));
  TL_TRY_ASSIGN(std::string answer, read_answer(*stream, deadline));
  std::list<Idle> old;  // closed outside of the lock
  std::lock_guard lock(mutex_);
  Instant now = clock_.now();
  while (!idle_.empty() && now - idle_.back().since >= config_.idle_timeout)
    old.splice(old.end(), idle_, std::prev(idle_.end()));
  idle_.push_front({std::move(stream), now});
  return answer;
}

// An idle connection may have been closed meanwhile. A second request has no side effect.
Result<std::string> QuotaStatus::ask(const std::string& request) {
  if (auto idle = take_idle()) {
    auto answer = ask_by(std::move(idle), request);
    if (answer || answer.error().code != Errc::unavailable) return answer;
  }
  TL_TRY_ASSIGN(Fd socket, connector_.connect(target_));
  return ask_by(make_socket_stream(std::move(socket), clock_), request);
}

// Also after an exception, TargetHealth learns that the attempt has ended.
Result<std::string> QuotaStatus::ask_safely(const std::string& request) {
  try {
    return ask(request);
  } catch (const std::exception& e) {
    return fail(Errc::internal, "unexpectedly: {}", e.what());
  }
}

Status QuotaStatus::may_try() {
  std::lock_guard lock(mutex_);
  if (health_.may_try(clock_.now())) return {};
  return fail(Errc::unavailable, "it did not answer a moment ago; the next attempt is soon");
}

void QuotaStatus::tried(const Status& how) {
  bool was_down, is_down;
  {
    std::lock_guard lock(mutex_);
    was_down = health_.down();
    const bool late = !how && how.error().code == Errc::timeout;
    late_ = late ? late_ + 1 : 0;
    if (how || (late && !was_down && late_ < late_max))
      health_.worked();
    else
      health_.failed(clock_.now());
    is_down = health_.down();
  }
  if (!was_down && is_down)
    log_error("Dovecot's quota-status at {} does not answer: {}; mail gets 451 until it answers",
              config_.target.text, how.error().message);
  if (was_down && !is_down) log_info("Dovecot's quota-status at {} answers again", config_.target.text);
}

Result<Room> QuotaStatus::room(const User& user, std::uint64_t bytes) {
  TL_TRY_ASSIGN(std::string recipient, policy_recipient(user.name, config_.delimiters));
  auto named = [&](const Error& error) {
    return fail(error.code, "Dovecot's quota-status at {}, asked for {}: {}", config_.target.text, recipient,
                error.message);
  };
  Slot slot(*this);
  if (!slot.taken) return named(Error{Errc::timeout, "all its connections are in use", 0});
  if (Status now = may_try(); !now) return named(now.error());
  auto answer = ask_safely(policy_request(recipient, bytes));
  tried(answer ? Status{} : std::unexpected(answer.error()));
  if (!answer) return named(answer.error());
  auto room = room_of_action(policy_action(*answer));
  if (!room) return named(room.error());
  return room;
}

}  // namespace twinloft::lmtpd
