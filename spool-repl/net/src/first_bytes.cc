#include "first_bytes.h"

#include <algorithm>

namespace twinloft::repl::net {

namespace {
constexpr std::size_t waiting_max = 64, waiting_per_host_max = 8;
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

std::size_t FirstBytes::count(const std::string& host) const {
  return static_cast<std::size_t>(
      std::count_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.host == host; }));
}

void FirstBytes::make_room(const std::string& host) {
  std::string crowded = host;
  if (count(host) < waiting_per_host_max) {
    if (waiting_.size() < waiting_max) return;
    crowded = std::max_element(waiting_.begin(), waiting_.end(), [&](const Waiting& a, const Waiting& b) {
                return count(a.host) < count(b.host);
              })->host;
  }
  forget(std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.host == crowded; }));
}

void FirstBytes::wait(Fd caller, const std::string& host, Decided decided) {
  make_room(host);
  At at = waiting_.insert(waiting_.end(), {std::move(caller), host, 0, std::move(decided)});
  at->timer = loop_.after(patience_, [this, at] {
    at->timer = 0;
    end(at, false);
  });
  loop_.watch(at->caller.get(), ports::Loop::readable, [this, at](unsigned) { end(at, true); });
}

}  // namespace twinloft::repl::net
