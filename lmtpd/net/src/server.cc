#include "twinloft/lmtpd/net/server.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <thread>

#include "acceptor.h"
#include "connection.h"
#include "hub.h"
#include "twinloft/base/log.h"
#include "twinloft/base/service_manager.h"

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

void Loop::abandon() {
  std::vector<std::shared_ptr<Connection>> all(connections_.begin(), connections_.end());
  for (const auto& connection : all) connection->abandon();
  io_.stop();
}

void Loop::end_if_empty() {
  if (!stopping_ || !connections_.empty() || !guard_.owns_work()) return;
  guard_.reset();
  ended_();
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
      : hub(std::move(config), users, deliverer, clock), loops_left(std::max(1u, hub.config.io_threads)) {
    for (std::size_t i = 0; i < loops_left; ++i) loops.push_back(std::make_unique<Loop>(hub, [this] { loop_ended(); }));
    stop_timer.emplace(loops.front()->io());
  }

  // A delivery that was left reports to its loop when it ends: the loops go after the workers.
  ~Impl() {
    hub.lookups.finish();
    hub.deliveries.finish();
    hub.bodies.finish();
  }

  void hand_over(NewConnection fresh);
  void wait_for_signal();
  void stop_first_loop();
  void loop_ended();
  void abandon();

  Hub hub;
  std::atomic<std::size_t> loops_left;
  std::vector<std::unique_ptr<Loop>> loops;
  std::vector<std::unique_ptr<Acceptor>> acceptors;  // on the first loop
  std::unique_ptr<boost::asio::signal_set> signals;
  std::optional<boost::asio::steady_timer> stop_timer;  // on the first loop; keeps it alive until all have ended
  RunEnd end;
  std::size_t next_loop = 0;
  bool stopped = false;
};

// Round robin; each connection stays with its loop.
void Server::Impl::hand_over(NewConnection fresh) {
  Loop& loop = *loops[next_loop++ % loops.size()];
  auto connection = std::make_shared<Connection>(loop, std::move(fresh));
  if (&loop == loops.front().get()) loop.add(std::move(connection));
  else boost::asio::post(loop.io(), [&loop, connection = std::move(connection)] { loop.add(connection); });
}

void Server::Impl::wait_for_signal() {
  signals->async_wait([this](const boost::system::error_code& error, int number) {
    if (error) return;
    if (number == SIGHUP) {
      log_warning("SIGHUP: reload is not there yet; restart");
      return wait_for_signal();
    }
    log_info("signal {}: finishing deliveries that have begun", number);
    tell_service_manager("STOPPING=1\nSTATUS=finishing deliveries that have begun");
    stop_first_loop();
  });
}

// Acceptors first, so that what is told to stop is all there is.
void Server::Impl::stop_first_loop() {
  if (std::exchange(stopped, true)) return;
  for (const auto& acceptor : acceptors) acceptor->stop();
  if (signals) signals->cancel();
  stop_timer->expires_after(hub.config.stop_timeout);
  stop_timer->async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled) abandon();
  });
  for (const auto& loop : loops) boost::asio::post(loop->io(), [l = loop.get()] { l->stop(); });
}

void Server::Impl::loop_ended() {
  if (loops_left.fetch_sub(1) == 1) boost::asio::post(loops.front()->io(), [this] { stop_timer->cancel(); });
}

// Where the last loop ends at this very moment all is in order, and nothing is left to be closed.
void Server::Impl::abandon() {
  if (loops_left.load() == 0) return;
  end = {false, hub.deliveries_begun.load(std::memory_order_relaxed), hub.connections.load(std::memory_order_relaxed)};
  for (const auto& loop : loops) boost::asio::post(loop->io(), [l = loop.get()] { l->abandon(); });
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(ServerConfig config, std::vector<Listener> listeners, UserDb& users,
                                               Deliverer& deliverer, const Clock& clock, Random& random) {
  if (!config.session.new_id) config.session.new_id = make_ids(random);
  auto impl = std::make_unique<Impl>(std::move(config), users, deliverer, clock);
  Impl* state = impl.get();
  for (Listener& listener : listeners) {
    if (listener.rules().tls != TlsPolicy::none && !state->hub.config.tls)
      return fail(Errc::invalid, "{}: TLS needs a certificate: [tls]", listener.name());
    state->acceptors.push_back(std::make_unique<Acceptor>(
        *state->loops.front(), std::move(listener),
        [state](NewConnection fresh) { state->hand_over(std::move(fresh)); }));
    TL_TRY(state->acceptors.back()->start());
  }
  if (state->hub.config.stop_on_signals) {
    state->signals = std::make_unique<boost::asio::signal_set>(state->loops.front()->io(), SIGTERM, SIGINT, SIGHUP);
    state->wait_for_signal();
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

RunEnd Server::run() {
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < impl_->loops.size(); ++i)
    threads.emplace_back([loop = impl_->loops[i].get()] { loop->io().run(); });
  impl_->loops.front()->io().run();
  for (std::thread& thread : threads) thread.join();
  return impl_->end;
}

void Server::stop() {
  boost::asio::post(impl_->loops.front()->io(), [state = impl_.get()] { state->stop_first_loop(); });
}

std::size_t Server::connections() const { return impl_->hub.connections.load(std::memory_order_relaxed); }

}  // namespace twinloft::lmtpd
