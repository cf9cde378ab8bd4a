#include "timed_calls.h"

#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "twinloft/base/log.h"

namespace twinloft::spool_milter {

namespace {

struct Call {
  std::function<void()> run;
  bool ended = false;
};

void run_safely(const std::function<void()>& run) {
  try {
    run();
  } catch (const std::exception& e) {
    log_error("unexpectedly: {}", e.what());
  } catch (...) {
    log_error("unexpectedly");
  }
}

}  // namespace

struct TimedCalls::Shared {
  explicit Shared(std::size_t most) : threads_max(most) {}
  const std::size_t threads_max;
  std::mutex mutex;
  std::condition_variable wanted, ended;
  std::list<std::shared_ptr<Call>> waiting;
  std::size_t threads = 0, idle = 0;

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      wanted.wait(lock, [this] { return !waiting.empty(); });
      --idle;
      auto call = std::move(waiting.front());
      waiting.pop_front();
      auto run = std::exchange(call->run, nullptr);
      lock.unlock();
      run_safely(run);
      run = nullptr;  // destroyed while the lock is not held
      lock.lock();
      call->ended = true;
      ended.notify_all();
    }
  }
};

TimedCalls::TimedCalls(std::size_t threads) : shared_(std::make_shared<Shared>(threads)) {}

bool TimedCalls::run(Until until, std::function<void()> function) {
  auto call = std::make_shared<Call>(Call{std::move(function)});
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  shared.waiting.push_back(call);
  if (shared.idle < shared.waiting.size() && shared.threads < shared.threads_max) {
    std::thread([kept = shared_] { kept->work(); }).detach();
    ++shared.threads;
  }
  shared.wanted.notify_one();
  shared.ended.wait_until(lock, until, [&] { return call->ended; });
  if (!call->ended) shared.waiting.remove(call);  // if it has not begun, it never does
  return call->ended;
}

}  // namespace twinloft::spool_milter
