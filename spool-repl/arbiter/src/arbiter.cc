#include "twinloft/spool-repl/arbiter/arbiter.h"

#include "etcd.h"
#include "pacemaker.h"

namespace twinloft::repl::arbiter {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::manual:
      return "manual";
    case Kind::etcd:
      return "etcd";
    case Kind::pacemaker:
      return "pacemaker";
  }
  return "?";
}

Status check_endpoint(const std::string& url) {
  auto endpoint = parse_endpoint(url);
  if (!endpoint) return std::unexpected(endpoint.error());
  return {};
}

std::string normal_endpoint(const std::string& url) {
  auto endpoint = parse_endpoint(url);
  return endpoint ? normal_url(*endpoint) : url;
}

std::string normal_prefix(std::string prefix) {
  if (prefix.ends_with('/')) prefix.pop_back();
  return prefix;
}

Result<std::unique_ptr<Store>> make_store(const Settings& settings, const Uuid& volume, ReplicaId self,
                                          const Clock& clock) {
  if (settings.kind == Kind::etcd) {
    auto store = EtcdStore::create(settings, volume, clock);
    if (store) return std::move(*store);
    store.error().message = "arbiter: " + store.error().message;
    return std::unexpected(store.error());
  }
  if (settings.kind == Kind::pacemaker)
    return std::make_unique<PacemakerStore>(settings, volume, self, clock);
  return std::unique_ptr<Store>();
}

Arbiter::Arbiter(ports::Loop& loop, std::unique_ptr<Store> store, Answer answer)
    : loop_(loop), store_(std::move(store)), answer_(std::move(answer)), thread_([this] { serve(); }) {}

Arbiter::~Arbiter() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    waiting_.clear();
  }
  changed_.notify_one();
  store_->cancel();
  thread_.join();
}

void Arbiter::ask(core::ArbiterRequest request) {
  bool full = false;
  core::Token token = request.token;
  {
    std::lock_guard lock(mutex_);
    full = waiting_.size() >= waiting_max;
    if (!full) waiting_.push_back(std::move(request));
  }
  if (!full) return changed_.notify_one();
  loop_.post([this, token, alive = std::weak_ptr(alive_)] {
    if (!alive.expired())
      deliver({token, core::ArbiterAnswer::Outcome::unknown, std::nullopt,
               "too many requests wait for the arbiter"});
  });
}

void Arbiter::deliver(core::ArbiterAnswer answer) {
  trouble_ = answer.outcome == core::ArbiterAnswer::Outcome::unknown ? answer.why : std::string();
  answer_(std::move(answer));
}

void Arbiter::serve() {
  // Made once, before the loop: alive_ may be copied only while the owner's thread still has its copy.
  std::weak_ptr<bool> alive = alive_;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    core::ArbiterRequest request = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    core::ArbiterAnswer answer = store_->perform(request);
    loop_.post([this, alive, answer = std::move(answer)]() mutable {
      if (!alive.expired()) deliver(std::move(answer));
    });
    lock.lock();
  }
}

}  // namespace twinloft::repl::arbiter
