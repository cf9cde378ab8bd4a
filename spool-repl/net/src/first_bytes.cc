#include "first_bytes.h"

namespace twinloft::repl::net {

namespace {
constexpr std::size_t waiting_max = 16;
}

FirstBytes::~FirstBytes() {
  while (!waiting_.empty()) forget(waiting_.begin());
}

void FirstBytes::forget(At at) {
  if (at->timer) loop_.cancel(at->timer);
  if (at->caller) loop_.unwatch(at->caller.get());
  waiting_.erase(at);
}

void FirstBytes::end(At at, bool has_spoken) {
  loop_.unwatch(at->caller.get());
  Fd caller = std::move(at->caller);
  Decided decided = std::move(at->decided);
  forget(at);
  decided(std::move(caller), has_spoken);
}

void FirstBytes::wait(Fd caller, Decided decided) {
  if (waiting_.size() >= waiting_max) forget(waiting_.begin());
  At at = waiting_.insert(waiting_.end(), {std::move(caller), 0, std::move(decided)});
  at->timer = loop_.after(patience_, [this, at] {
    at->timer = 0;
    end(at, false);
  });
  loop_.watch(at->caller.get(), ports::Loop::readable, [this, at](unsigned) { end(at, true); });
}

}  // namespace twinloft::repl::net
