#include "path_calls.h"

#include <algorithm>
#include <utility>

#include "connection.h"

namespace twinloft::repl::net {

namespace {
constexpr Duration steady_path_time = std::chrono::minutes(1);  // a path of this age is stable
}

PathCalls::~PathCalls() {
  for (auto& [number, call] : calls_)
    if (call.timer) around_.loop.cancel(call.timer);
}

void PathCalls::need(unsigned number, const std::string& address) {
  auto at = calls_.find(number);
  if (at != calls_.end() && at->second.address == address) return;
  done(number);
  calls_.emplace(number, Call{address}).first->second.timer = around_.loop.after(
      Duration(0), [this, number] { dial(number); });
}

void PathCalls::usable(unsigned number) {
  auto at = calls_.find(number);
  if (at != calls_.end()) at->second.usable_since = around_.loop.now();
}

void PathCalls::lost(unsigned number, const std::string& why) {
  auto at = calls_.find(number);
  if (at == calls_.end() || !at->second.joined) return;
  Call& call = at->second;
  call.joined = false;
  auto since = std::exchange(call.usable_since, std::nullopt);
  if (since && around_.loop.now() - *since >= steady_path_time) call.flapped = 0;
  Duration pause = around_.again * (1 << std::min(call.flapped++, 10u));
  again(number, why, std::min(pause, around_.flapping_max));
}

void PathCalls::done(unsigned number) {
  auto at = calls_.find(number);
  if (at == calls_.end()) return;
  if (at->second.timer) around_.loop.cancel(at->second.timer);
  std::shared_ptr<Connection> connection = std::move(at->second.connection);
  calls_.erase(at);
  if (!connection) return;
  connection->close("not needed any more");
  around_.loop.post([keep = std::move(connection)] {});
}

bool PathCalls::owns(const Connection& c) const {
  return std::any_of(calls_.begin(), calls_.end(),
                     [&](const auto& each) { return each.second.connection.get() == &c; });
}

std::shared_ptr<Connection> PathCalls::take(const Connection& c) {
  for (auto at = calls_.begin(); at != calls_.end(); ++at)
    if (at->second.connection.get() == &c) {
      at->second.joined = true;
      at->second.failed = 0;
      return std::move(at->second.connection);
    }
  return nullptr;
}

std::string PathCalls::trouble(unsigned number) const {
  auto at = calls_.find(number);
  return at == calls_.end() ? "" : at->second.trouble;
}

void PathCalls::dial(unsigned number) {
  Call& call = calls_.at(number);
  call.timer = 0;
  around_.find(call.address, [this, alive = std::weak_ptr(alive_), number,
                              address = call.address](const Result<std::vector<Address>>& found) {
    if (alive.expired()) return;
    auto at = calls_.find(number);
    // Another address may be wanted by now, or none.
    if (at != calls_.end() && at->second.address == address && !at->second.connection && !at->second.timer &&
        !at->second.joined)
      connect(number, found);
  });
}

void PathCalls::connect(unsigned number, const Result<std::vector<Address>>& found) {
  if (!found) return failed(number, found.error().message);
  Call& call = calls_.at(number);
  auto made = around_.call((*found)[call.attempts++ % found->size()], number);
  if (!made) return failed(number, made.error().message);
  call.connection = std::move(*made);
}

void PathCalls::on_closed(const Connection& c, const std::string& why) {
  for (auto& [number, call] : calls_)
    if (call.connection.get() == &c) {
      around_.loop.post([keep = std::move(call.connection)] {});
      call.connection = nullptr;
      return failed(number, why);
    }
}

void PathCalls::failed(unsigned number, const std::string& why) {
  Duration pause = around_.again * (1 << std::min(calls_.at(number).failed++, 10u));
  again(number, why, std::min(pause, around_.again_max));
}

void PathCalls::again(unsigned number, const std::string& why, Duration pause) {
  Call& call = calls_.at(number);
  call.timer = around_.loop.after(pause, [this, number] { dial(number); });
  if (why.empty() || why == std::exchange(call.trouble, why)) return;
  around_.failed(number, why);
}

}  // namespace twinloft::repl::net
