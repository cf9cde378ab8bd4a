#include "twinloft/lmtpd/intake/intake.h"

#include <fcntl.h>

#include <cerrno>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "twinloft/base/log.h"
#include "twinloft/base/random.h"
#include "twinloft/lmtpd/intake/log_directory.h"
#include "twinloft/lmtpd/intake/open_log.h"
#include "twinloft/lmtpd/intake/upkeep.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::chrono::milliseconds look_again{10};  // for deliveries that end, before the log is closed
constexpr std::chrono::seconds end_longest{10};      // that ~Intake() waits for the thread

// A message that the log takes if it can.
class LoggedMessage final : public DurableMessage {
 public:
  LoggedMessage(std::shared_ptr<OpenLog> open, std::unique_ptr<DurableMessage> by_files, FileOps& ops)
      : open_(std::move(open)), by_files_(std::move(by_files)), ops_(ops) {}
  ~LoggedMessage() override {
    if (!appended_) return;
    cancel_open_names();
    open_->log().end();
  }
  LoggedMessage(const LoggedMessage&) = delete;
  LoggedMessage& operator=(const LoggedMessage&) = delete;

  DurabilityWay way() const override { return logged() ? DurabilityWay::intake_log : by_files_->way(); }
  bool may_be_unnamed() const override { return by_files_->may_be_unnamed(); }
  bool keeps_content() const override { return true; }

  // Writeback and append run at the same time. A replay that finds the name trusts the file's content, so
  // the name appears after both.
  Status content(int file, const PlannedMessage& planned) override {
    TL_TRY(ops_.start_write_back(file));
    ended_.assign(planned.names.size(), false);
    appended_ = open_->log().append(planned);
    return logged() ? ops_.write_back(file) : by_files_->content(file, planned);
  }

  // A message whose record may or may not be in the log is made durable by its files. The log has failed
  // then, so a replay on a fresh mount leaves this name alone, unless a reader has moved it.
  Status entry(std::size_t index, const NewEntry& entry) override {
    if (!logged()) return by_files_->entry(index, entry);
    TL_TRY(open_->log().settle(appended_->first + index));
    ended_[index] = true;
    return {};
  }

  Status withdraw(std::size_t index) override {
    if (logged()) {
      ended_[index] = true;
      return open_->log().cancel(appended_->first + index);
    }
    if (!appended_) return by_files_->withdraw(index);
    return fail(Errc::unavailable, "the intake log may have it, since its write failed: {}",
                appended_->durable.error().message);
  }

 private:
  bool logged() const { return appended_ && appended_->durable; }

  // Names that an exception left between record and mark. They were not acknowledged, and would hold the
  // log's space.
  void cancel_open_names() noexcept {
    try {
      for (std::size_t i = 0; logged() && i < ended_.size(); ++i)
        if (!ended_[i]) (void)open_->log().cancel(appended_->first + i);
    } catch (const std::exception& e) {
      log_error("intake log: a message without a name stays in the log until it is closed: {}", e.what());
    }
  }

  const std::shared_ptr<OpenLog> open_;
  const std::unique_ptr<DurableMessage> by_files_;
  FileOps& ops_;
  std::optional<IntakeLog::Appended> appended_;
  std::vector<bool> ended_;  // by name: settled or withdrawn
};

}  // namespace

IntakeEnvironment intake_environment() {
  return {[](std::uint64_t device) { return find_mount_instance(device); }, nullptr};
}

// Owned by its thread too, which may hang in the kernel.
class Intake::Keeper {
 public:
  Keeper(const IntakeSettings& settings, const Clock& clock, DataFirstRule data_first,
         IntakeEnvironment environment)
      : settings_(settings),
        clock_(clock),
        data_first_(std::move(data_first)),
        environment_(std::move(environment)) {}

  // The log for a message of this plan; null: the message goes by its files. data_first: the spool allows it
  // now.
  std::shared_ptr<OpenLog> log_for(const SpoolHandle& spool, const MessagePlan& plan, bool data_first) {
    std::shared_ptr<OpenLog> open = in_use(spool);
    if (!open || plan.new_directories || plan.bytes_max > settings_.message_bytes_max) return nullptr;
    auto place = find_log(spool.root.get());
    if (!place || *place != open->place()) return give_up(open, "the spool was mounted again"), nullptr;
    // A remount may have switched barriers off.
    if (!data_first) return give_up(open, "the file system does not write data before names now"), nullptr;
    if (open->log().wants_checkpoint()) wake_.notify_one();
    return open->log().takes_messages() ? open : nullptr;
  }

  void leave() {
    std::lock_guard lock(mutex_);
    leaving_ = true;
    wake_.notify_one();
  }

  void run() {
    Lock lock(mutex_);
    while (open_ || !leaving_) {
      if (open_)
        keep(lock);
      else if (root_)
        open(lock);
      else
        wake_.wait(lock);
    }
    root_.reset();
    ended_ = true;
    end_.notify_all();
  }

  bool wait_for_end() {
    Lock lock(mutex_);
    return end_.wait_for(lock, end_longest, [this] { return ended_; });
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  // The open log. If there is none, it is asked for.
  std::shared_ptr<OpenLog> in_use(const SpoolHandle& spool) {
    std::lock_guard lock(mutex_);
    used_ = clock_.now();
    if (leaving_) return nullptr;
    if (open_) return hangs() ? nullptr : open_;
    if (root_ || used_ < next_attempt_) return nullptr;
    root_ = Fd(::fcntl(spool.root.get(), F_DUPFD_CLOEXEC, 0));
    device_ = spool.device;
    wake_.notify_one();
    return nullptr;
  }

  bool hangs() const { return checkpoint_began_ && used_ - *checkpoint_began_ > environment_.hangs; }

  // What is at the spool's root now cannot use this log.
  void give_up(const std::shared_ptr<OpenLog>& log, std::string_view why) {
    std::lock_guard lock(mutex_);
    if (open_ != log) return;
    given_up_ = why;
    wake_.notify_one();
  }

  void open(Lock& lock) {
    SpoolHandle spool{std::exchange(root_, Fd()), 0, device_};
    lock.unlock();
    Result<std::unique_ptr<OpenLog>> opened = try_open(spool);
    spool.root.reset();
    if (opened)
      log_info("intake log: open, {} segments of {} bytes", (*opened)->shape().segments,
               (*opened)->shape().segment_bytes);
    else if (told_ != opened.error().message)
      log_warning("intake log: not used: {}; each message is synced by itself", opened.error().message);
    lock.lock();
    told_ = opened ? std::string() : opened.error().message;
    const Instant now = clock_.now();
    next_attempt_ = now + environment_.retry;
    next_checkpoint_ = now + settings_.checkpoint;
    if (opened) open_ = std::move(*opened);
    given_up_ = {};
  }

  Result<std::unique_ptr<OpenLog>> try_open(const SpoolHandle& spool) {
    if (!spool.root) return fail(Errc::exhausted, "no descriptor is left");
    TL_TRY_ASSIGN(MountInstance mount, environment_.mount(spool.device));
    if (!data_first_(spool))
      return fail(Errc::unavailable, "the spool's file system does not write data before names");
    TL_TRY(make_sure_there_is_one(spool.root.get()));
    return OpenLog::open(spool.root.get(), mount, environment_.files, closed_ ? &*closed_ : nullptr);
  }

  // A log that is there stays as it is, also if it cannot be used.
  Status make_sure_there_is_one(int root) {
    auto there = LogDirectory::open(root);
    if (there || there.error().code != Errc::not_found) return {};
    OsRandom random;
    TL_TRY(create_log(root, settings_.log_bytes, random));
    log_info("intake log: made, {} bytes", log_shape_of(settings_.log_bytes).bytes());
    return {};
  }

  // Waits, makes a checkpoint, or closes the log.
  void keep(Lock& lock) {
    const Instant now = clock_.now();
    IntakeLog& log = open_->log();
    if (auto failure = log.failure()) return close(lock, "it has failed: " + *failure);
    if (leaving_) return close(lock, "this process takes no more messages");
    if (!given_up_.empty()) return close(lock, std::string(std::exchange(given_up_, {})));
    const Instant idle_at = used_ + environment_.idle;
    if (now >= idle_at) return close(lock, "idle");
    if (now >= next_checkpoint_ || log.wants_checkpoint()) return checkpoint(lock);
    wake_.wait_for(lock, std::min(idle_at, next_checkpoint_) - now);
  }

  void checkpoint(Lock& lock) {
    checkpoint_began_ = clock_.now();
    IntakeLog& log = open_->log();
    lock.unlock();
    (void)log.checkpoint();  // the log keeps its failure
    lock.lock();
    checkpoint_began_.reset();
    next_checkpoint_ = clock_.now() + settings_.checkpoint;
  }

  // Deliveries that are in the log end first, by the log.
  void close(Lock& lock, const std::string& why) {
    std::shared_ptr<OpenLog> closing = std::exchange(open_, nullptr);
    lock.unlock();
    closing->log().stop();
    while (!closing->log().idle()) std::this_thread::sleep_for(look_again);
    const bool failed = closing->log().failure().has_value();
    Status retired = failed ? Status{} : closing->log().retire();
    const std::uint64_t messages = closing->log().messages();
    closed_.reset();
    if (!failed && retired) closed_ = closing->closed();
    closing.reset();
    if (failed)
      log_error(
          "intake log: closed after {} messages: {}; each message is synced by itself until the spool "
          "was mounted again and \"lmtpd replay\" has run",
          messages, why);
    else if (!retired)
      log_error("intake log: closed after {} messages ({}), and not emptied: {}", messages, why,
                retired.error().message);
    else
      log_info("intake log: closed after {} messages: {}", messages, why);
    lock.lock();
  }

  const IntakeSettings settings_;
  const Clock& clock_;
  const DataFirstRule data_first_;
  const IntakeEnvironment environment_;

  std::mutex mutex_;  // for the members below
  std::condition_variable wake_, end_;
  std::shared_ptr<OpenLog> open_;
  Fd root_;  // of the spool, for the thread to open the log
  std::uint64_t device_ = 0;
  Instant used_{}, next_attempt_{}, next_checkpoint_{};
  std::optional<Instant> checkpoint_began_;
  std::string_view given_up_;  // why the open log is to be closed
  bool leaving_ = false, ended_ = false;
  std::string told_;                 // why the log was not used
  std::optional<ClosedLog> closed_;  // of the keeper's thread alone
};

Intake::Intake(const IntakeSettings& settings, std::unique_ptr<Durability> by_files, FileOps& ops,
               const Clock& clock, DataFirstRule may_write_data_first, IntakeEnvironment environment)
    : by_files_(std::move(by_files)),
      ops_(ops),
      keeper_(
          std::make_shared<Keeper>(settings, clock, std::move(may_write_data_first), std::move(environment))),
      thread_([keeper = keeper_] { keeper->run(); }) {}

Intake::~Intake() {
  keeper_->leave();
  if (keeper_->wait_for_end()) {
    thread_.join();
  } else {
    log_error("intake log: its thread does not end: the log is left as it is");
    thread_.detach();
  }
}

std::unique_ptr<DurableMessage> Intake::begin(const SpoolHandle& spool, const MessagePlan& plan) {
  std::unique_ptr<DurableMessage> by_files = by_files_->begin(spool, plan);
  const bool data_first = by_files->way() == DurabilityWay::fsync;
  std::shared_ptr<OpenLog> open = keeper_->log_for(spool, plan, data_first);
  if (!open) return by_files;
  return std::make_unique<LoggedMessage>(std::move(open), std::move(by_files), ops_);
}

void Intake::leave() {
  keeper_->leave();
}

}  // namespace twinloft::lmtpd
