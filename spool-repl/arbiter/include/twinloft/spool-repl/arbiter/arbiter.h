// Performs the ArbiterRequests of the core. Each is a compare-and-swap of the epoch value in a store that all
// replicas share.
//
//   owner thread:     Arbiter::ask(request) ........................ answer(ArbiterAnswer), by Loop::post
//   arbiter's thread:          Store::perform(request), one at a time, blocking
//
// A Store answers `granted` or `refused` if the result is certain. Otherwise the answer is `unknown`, with a
// text for the administrator.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "twinloft/base/clock.h"
#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/arbiter/settings.h"
#include "twinloft/spool-repl/core/effects.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::arbiter {

class Store {
 public:
  virtual ~Store() = default;
  // Blocks, for little more than the configured timeout. Always called on the same thread.
  virtual core::ArbiterAnswer perform(const core::ArbiterRequest& request) = 0;
  // Makes the present call of perform() and all later calls answer `unknown` soon. From any thread.
  virtual void cancel() = 0;
};

// Creates the store, without a request to it. nullptr for Kind::manual. The clock must outlive the store.
// Errors: the settings cannot work, for example because a file cannot be read.
Result<std::unique_ptr<Store>> make_store(const Settings& settings, const Uuid& volume, ReplicaId self,
                                          const Clock& clock);

class Arbiter {
 public:
  using Answer = std::function<void(core::ArbiterAnswer)>;
  static constexpr std::size_t waiting_max = 8;  // requests. Further requests are answered `unknown` at once

  // `answer` is called on the loop's thread, once for each request.
  Arbiter(ports::Loop& loop, std::unique_ptr<Store> store, Answer answer);
  // Cancels the request in flight. Nothing is answered any more.
  ~Arbiter();
  Arbiter(const Arbiter&) = delete;
  Arbiter& operator=(const Arbiter&) = delete;

  // Call it on the loop's thread. Does not block.
  void ask(core::ArbiterRequest request);
  // The reason if the last answer was `unknown`, otherwise empty. Call it on the loop's thread.
  const std::string& trouble() const { return trouble_; }

 private:
  void serve();
  void deliver(core::ArbiterAnswer answer);

  ports::Loop& loop_;
  std::unique_ptr<Store> store_;
  Answer answer_;
  std::string trouble_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // used on the loop's thread alone
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<core::ArbiterRequest> waiting_;  // guarded by mutex_
  bool ending_ = false;                       // guarded by mutex_
  std::thread thread_;
};

}  // namespace twinloft::repl::arbiter
