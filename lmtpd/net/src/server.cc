#include "twinloft/lmtpd/net/server.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <mutex>
#include <thread>

#include "acceptor.h"
#include "connection.h"
#include "hub.h"
#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

void Loop::add(std::shared_ptr<Connection> connection) {
  connections_.insert(connection);
  connection->start();
  if (stopping_) connection->stop();
}

void Loop::remove(const std::shared_ptr<Connection>& connection) {
  if (connections_.erase(connection) == 0) return;
  hub_.connections.fetch_sub(1, std::memory_order_relaxed);
  end_if_empty();
}

void Loop::stop() {
  stopping_ = true;
  std::vector<std::shared_ptr<Connection>> all(connections_.begin(), connections_.end());
  for (const auto& connection : all) connection->stop();
  end_if_empty();
}

void Loop::end_if_empty() {
  if (stopping_ && connections_.empty()) guard_.reset();
}

namespace {

// Unique over restarts and machines: a random start, and a number.
std::function<std::string()> make_ids(Random& random) {
  auto next = std::make_shared<std::atomic<std::uint64_t>>(0);
  return [prefix = fmt::format("{:012x}", random.next() >> 16), next] {
    return fmt::format("{}.{}", prefix, next->fetch_add(1, std::memory_order_relaxed) + 1);
  };
}

}  // namespace

struct Server::Impl {
  Impl(ServerConfig config, UserDb& users, Deliverer& deliverer, const Clock& clock)
      : hub(std::move(config), users, deliverer, clock) {
    for (std::uint32_t i = 0; i < std::max(1u, hub.config.io_threads); ++i)
      loops.push_back(std::make_unique<Loop>(hub));
  }

  void hand_over(Fd socket, std::string peer);
  void stop_first_loop();

  Hub hub;
  std::vector<std::unique_ptr<Loop>> loops;
  std::vector<std::unique_ptr<Acceptor>> acceptors;  // on the first loop
  std::unique_ptr<boost::asio::signal_set> signals;
  std::size_t next_loop = 0;
  bool stopped = false;
};

// Round robin; each connection stays with its loop.
void Server::Impl::hand_over(Fd socket, std::string peer) {
  Loop& loop = *loops[next_loop++ % loops.size()];
  auto connection = std::make_shared<Connection>(loop, std::move(socket), std::move(peer));
  if (&loop == loops.front().get()) loop.add(std::move(connection));
  else boost::asio::post(loop.io(), [&loop, connection = std::move(connection)] { loop.add(connection); });
}

// Acceptors first, so that what is told to stop is all there is.
void Server::Impl::stop_first_loop() {
  if (std::exchange(stopped, true)) return;
  for (const auto& acceptor : acceptors) acceptor->stop();
  if (signals) signals->cancel();
  for (const auto& loop : loops) boost::asio::post(loop->io(), [l = loop.get()] { l->stop(); });
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(ServerConfig config, std::vector<Listener> listeners, UserDb& users,
                                               Deliverer& deliverer, const Clock& clock, Random& random) {
  if (!config.session.new_id) config.session.new_id = make_ids(random);
  auto impl = std::make_unique<Impl>(std::move(config), users, deliverer, clock);
  Impl* state = impl.get();
  for (Listener& listener : listeners) {
    state->acceptors.push_back(std::make_unique<Acceptor>(
        *state->loops.front(), std::move(listener),
        [state](Fd socket, std::string peer) { state->hand_over(std::move(socket), std::move(peer)); }));
    TL_TRY(state->acceptors.back()->start());
  }
  if (state->hub.config.stop_on_signals) {
    state->signals = std::make_unique<boost::asio::signal_set>(state->loops.front()->io(), SIGTERM, SIGINT);
    state->signals->async_wait([state](const boost::system::error_code& error, int number) {
      if (error) return;
      log_info("signal {}: finishing deliveries under way", number);
      state->stop_first_loop();
    });
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::run() {
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < impl_->loops.size(); ++i)
    threads.emplace_back([loop = impl_->loops[i].get()] { loop->io().run(); });
  impl_->loops.front()->io().run();
  for (std::thread& thread : threads) thread.join();
}

void Server::stop() {
  boost::asio::post(impl_->loops.front()->io(), [state = impl_.get()] { state->stop_first_loop(); });
}

std::size_t Server::connections() const { return impl_->hub.connections.load(std::memory_order_relaxed); }

}  // namespace twinloft::lmtpd
