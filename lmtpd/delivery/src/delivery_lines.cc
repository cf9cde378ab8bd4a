#include "twinloft/lmtpd/delivery/delivery_lines.h"

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t queue_lines_max = 20'000;
constexpr auto rest_time = std::chrono::milliseconds(5);
constexpr auto settle_longest = std::chrono::seconds(1);

void write_line(const DeliveryLine& line) {
  const DeliveryOutcome& outcome = line.outcome;
  const bool delivered = outcome.reply.code == 250;
  LogLevel level = delivered ? LogLevel::info : LogLevel::warning;
  if (!log_shows(level)) return;
  log_line(level, delivered ? "delivered" : "not delivered",
           {{"id", line.id},
            {"from", line.from},
            {"to", line.to},
            {"user", line.user},
            {"agent", line.agent},
            {"client", line.client},
            {"origin", line.origin},
            {"size", fmt::format("{}", line.size)},
            {"reply", fmt::format("{} {}", outcome.reply.code, outcome.reply.enhanced)},
            {"ms", fmt::format("{:.1f}", static_cast<double>(line.took.count()) / 1e6)},
            {"bytes", fmt::format("{}", outcome.bytes)},
            {"durable", std::string(to_string(outcome.durable))},
            {"path", outcome.path},
            {"detail", outcome.detail}});
}

}  // namespace

std::string origin_text(const Origin& origin) {
  std::string out = origin.name;
  if (!origin.address.empty()) out += "[" + origin.address + "]";
  if (!origin.ident.empty()) out += (out.empty() ? "as " : " as ") + origin.ident;
  return out;
}

DeliveryLine line_of(const Envelope& envelope, const Recipient& recipient, std::string agent,
                     const MessageBody& body, DeliveryOutcome outcome, Duration took) {
  return {envelope.id,
          envelope.from,
          recipient.text,
          recipient.user.name,
          std::move(agent),
          envelope.client,
          origin_text(envelope.origin),
          body.size,
          std::move(outcome),
          took};
}

DeliveryLines::DeliveryLines() : thread_([this] { work(); }) {}

DeliveryLines::~DeliveryLines() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void DeliveryLines::put(DeliveryLine line) {
  bool wanted;
  {
    std::lock_guard lock(mutex_);
    if (queue_.size() >= queue_lines_max) {
      ++dropped_;
      return;
    }
    wanted = queue_.empty() && !resting_;
    queue_.push_back(std::move(line));
  }
  if (wanted) changed_.notify_one();
}

void DeliveryLines::settle() {
  std::unique_lock lock(mutex_);
  hurried_ = true;
  changed_.notify_one();
  written_.wait_for(lock, settle_longest, [this] { return queue_.empty() && !writing_; });
}

void DeliveryLines::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::deque<DeliveryLine> lines = std::exchange(queue_, {});
    std::uint64_t dropped = std::exchange(dropped_, 0);
    writing_ = true;
    lock.unlock();
    for (const DeliveryLine& line : lines) write_line(line);
    if (dropped > 0) log_warning("the log is too slow: {} lines on deliveries were dropped", dropped);
    lock.lock();
    writing_ = false;
    written_.notify_all();
    // Under load, one wake-up of this thread is for many lines.
    resting_ = true;
    changed_.wait_for(lock, rest_time, [this] { return stopping_ || hurried_; });
    resting_ = false;
  }
}

}  // namespace twinloft::lmtpd
