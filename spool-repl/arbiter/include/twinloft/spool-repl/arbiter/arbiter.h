// Performs the core's ArbiterRequests: one compare-and-swap of the epoch value in a store that all replicas
// share.
//
//   owner thread:     Arbiter::ask(request) ........................ answer(ArbiterAnswer), by Loop::post
//   arbiter's thread:          Store::perform(request), one at a time, blocking
//
// A Store says `granted` or `refused` only where it knows; everything else is `unknown`, with words for
// people.
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
  // Blocks, but not much longer than the configured timeout. Called on one thread only.
  virtual core::ArbiterAnswer perform(const core::ArbiterRequest& request) = 0;
  // Makes perform() answer `unknown` soon, the one under way and all later ones. From any thread.
  virtual void cancel() = 0;
};

// nullptr for Kind::manual. Fails where the settings can not work: unreadable files, say. Asks nobody.
// `clock` outlives it.
Result<std::unique_ptr<Store>> make_store(const Settings& settings, const Uuid& volume, ReplicaId self,
                                          const Clock& clock);

class Arbiter {
 public:
  using Answer = std::function<void(core::ArbiterAnswer)>;
  static constexpr std::size_t waiting_max = 8;  // requests; beyond that they are answered `unknown` at once

  // `answer` is called on the loop's thread, once for each request.
  Arbiter(ports::Loop& loop, std::unique_ptr<Store> store, Answer answer);
  // Gives up what is under way; nothing is answered any more.
  ~Arbiter();
  Arbiter(const Arbiter&) = delete;
  Arbiter& operator=(const Arbiter&) = delete;

  // On the loop's thread; never blocks.
  void ask(core::ArbiterRequest request);
  // Why the last answer was `unknown`; empty where it was not. On the loop's thread.
  const std::string& trouble() const { return trouble_; }

 private:
  void serve();
  void deliver(core::ArbiterAnswer answer);

  ports::Loop& loop_;
  std::unique_ptr<Store> store_;
  Answer answer_;
  std::string trouble_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // touched on the loop's thread only
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<core::ArbiterRequest> waiting_;  // guarded by mutex_
  bool ending_ = false;                       // guarded by mutex_
  std::thread thread_;
};

}  // namespace twinloft::repl::arbiter
