#include "name_lookup.h"

#include <mutex>
#include <system_error>
#include <thread>

namespace twinloft::repl::net {

// The threads may outlive the lookup and its loop. `loop` is then null.
struct NameLookup::Shared {
  std::mutex mutex;
  ports::Loop* loop;
  Resolve resolve;

  void post(std::function<void()> handler) {
    std::lock_guard lock(mutex);
    if (loop) loop->post(std::move(handler));
  }
};

NameLookup::NameLookup(ports::Loop& loop, Resolve resolve) : shared_(std::make_shared<Shared>()) {
  shared_->loop = &loop;
  shared_->resolve = std::move(resolve);
}

NameLookup::~NameLookup() {
  std::lock_guard lock(shared_->mutex);
  shared_->loop = nullptr;
}

void NameLookup::start(const std::string& text, Done done) {
  auto deliver = [watched = std::weak_ptr(shared_),
                  done = std::move(done)](Result<std::vector<Address>> found) {
    auto shared = watched.lock();
    if (!shared) return;
    shared->post([watched, done, found = std::move(found)]() mutable {
      auto still = watched.lock();
      if (still && still->loop) done(std::move(found));
    });
  };
  try {
    std::thread([shared = shared_, text, deliver] { deliver(shared->resolve(text)); }).detach();
  } catch (const std::system_error& e) {
    deliver(fail(Errc::exhausted, "\"{}\": no thread to look it up: {}", text, e.what()));
  }
}

}  // namespace twinloft::repl::net
