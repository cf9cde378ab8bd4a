#include "twinloft/lmtpd/net/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <new>
#include <optional>
#include <thread>

#include "acceptor.h"
#include "connection.h"
#include "hub.h"
#include "memory_patience.h"
#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {
constexpr Duration drain_poll = std::chrono::milliseconds(250);
constexpr Duration farewell_time = std::chrono::seconds(1);  // for clients to read their last replies
}  // namespace

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
  drain_timer_.cancel();
  for (const auto& connection : all()) connection->stop();
  end_if_empty();
}

void Loop::drain() {
  if (stopping_ || std::exchange(draining_, true)) return;
  drain_until_ = hub_.clock.now() + hub_.config.drain_time;
  drain_some();
}

void Loop::hurry() {
  if (!std::exchange(hurried_, true) && draining_ && !stopping_) drain_some();
}

// A client that is sending is not disconnected before drain_time is over: it might have just sent a command
// that would get no reply.
void Loop::drain_some() {
  bool now = hub_.clock.now() >= drain_until_;
  for (const auto& connection : all()) connection->drain(hub_.config.drain_idle, hurried_, now);
  end_if_empty();
  if (connections_.empty()) return;
  drain_timer_.expires_after(drain_poll);
  drain_timer_.async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled && !stopping_) drain_some();
  });
}

void Loop::abort() {
  for (const auto& connection : all()) connection->abort();
}

// May be called on any thread. A loop that has ended counts as alive.
bool Loop::takes_turns() {
  if (io_.stopped()) return true;
  if (asked_.exchange(true)) return false;
  try {
    boost::asio::post(io_, [this] { asked_ = false; });
  } catch (const std::bad_alloc&) {
    asked_ = false;  // no check was posted
  }
  return true;
}

void Loop::abandon() {
  for (const auto& connection : all()) connection->abandon();
  io_.stop();
}

void Loop::end_if_empty() {
  if (!(stopping_ || draining_) || !connections_.empty() || !guard_.owns_work()) return;
  drain_timer_.cancel();
  guard_.reset();
  ended_();
}

namespace {

// An exception that leaves a handler is a defect. It must not end other connections.
void run_loop(boost::asio::io_context& io) {
  for (;;) try {
      io.run();
      return;
    } catch (const std::exception& e) {
      log_error("an event loop continues after an internal error: {}", e.what());
    } catch (...) {
      log_error("an event loop continues after an internal error");
    }
}

// Unique across restarts and machines: a random prefix, and a counter.
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
    for (std::size_t i = 0; i < loops_left; ++i)
      loops.push_back(std::make_unique<Loop>(hub, [this] { loop_ended(); }));
    stop_timer.emplace(loops.front()->io());
  }

  // A delivery left running reports to its loop at its end, so the workers end before the loops are
  // destroyed.
  ~Impl() {
    hub.lookups.finish();
    hub.rooms.finish();
    hub.deliveries.finish();
    hub.filters.finish();
    hub.bodies.finish();
  }

  void hand_over(NewConnection fresh);
  void leave_listeners();
  void stop();
  void drain();
  void hurry();
  void abort();
  void end_deliveries();
  void abandon();
  void loop_ended();
  void after(Duration time, void (Impl::*what)());
  void on_loops(void (Loop::*what)());

  Hub hub;
  std::atomic<std::size_t> loops_left;
  std::vector<std::unique_ptr<Loop>> loops;
  std::vector<std::unique_ptr<Acceptor>> acceptors;     // on the first loop
  std::optional<boost::asio::steady_timer> stop_timer;  // on the first loop; keeps it alive until all ended
  RunEnd end;
  std::size_t next_loop = 0;
  bool stopped = false;
  bool drained = false;
};

// Round robin; each connection stays with its loop.
void Server::Impl::hand_over(NewConnection fresh) {
  Loop& loop = *loops[next_loop++ % loops.size()];
  auto connection = std::make_shared<Connection>(loop, std::move(fresh));
  if (&loop == loops.front().get())
    loop.add(std::move(connection));
  else
    boost::asio::post(loop.io(), [&loop, connection = std::move(connection)] { loop.add(connection); });
}

void Server::Impl::on_loops(void (Loop::*what)()) {
  for (const auto& loop : loops) boost::asio::post(loop->io(), [l = loop.get(), what] { (l->*what)(); });
}

// After the end of the last loop no timer is set, because it would keep the first loop alive.
void Server::Impl::after(Duration time, void (Impl::*what)()) {
  if (loops_left.load() == 0) return;
  stop_timer->expires_after(time);
  stop_timer->async_wait([this, what](const boost::system::error_code& cancelled) {
    if (!cancelled && loops_left.load() > 0) (this->*what)();
  });
}

// Called before the connections are ended, so that no new connection is missed.
void Server::Impl::leave_listeners() {
  for (const auto& acceptor : acceptors) acceptor->stop();
}

void Server::Impl::stop() {
  if (std::exchange(stopped, true)) return;
  leave_listeners();
  on_loops(&Loop::stop);
  after(hub.config.stop_timeout, &Impl::abort);
}

void Server::Impl::drain() {
  if (stopped || std::exchange(drained, true)) return;
  leave_listeners();
  on_loops(&Loop::drain);
  after(Duration::max() / 2, &Impl::abort);  // keeps the first loop alive until the others have ended
}

void Server::Impl::hurry() {
  on_loops(&Loop::hurry);
}

// on_abort ends the agents, and their deliveries report. Deliveries blocked in the kernel do not end.
void Server::Impl::abort() {
  stop();
  if (std::exchange(end.aborted, true)) return;
  if (hub.config.on_abort) hub.config.on_abort();
  after(hub.config.abort_grace, &Impl::end_deliveries);
}

void Server::Impl::end_deliveries() {
  on_loops(&Loop::abort);
  after(farewell_time, &Impl::abandon);
}

void Server::Impl::abandon() {
  end.connections_left = hub.connections.load(std::memory_order_relaxed);
  on_loops(&Loop::abandon);
}

void Server::Impl::loop_ended() {
  if (loops_left.fetch_sub(1) == 1) boost::asio::post(loops.front()->io(), [this] { stop_timer->cancel(); });
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(ServerConfig config, std::vector<Listener> listeners,
                                               UserDb& users, Deliverer& deliverer, const Clock& clock,
                                               Random& random) {
  MemoryPatience::install();
  if (!config.session.new_id) config.session.new_id = make_ids(random);
  auto impl = std::make_unique<Impl>(std::move(config), users, deliverer, clock);
  Impl* state = impl.get();
  for (Listener& listener : listeners) {
    if (listener.rules().tls != TlsPolicy::none && !state->hub.config.tls)
      return fail(Errc::invalid, "{}: TLS needs a certificate: [tls]", listener.name());
    state->acceptors.push_back(
        std::make_unique<Acceptor>(*state->loops.front(), std::move(listener),
                                   [state](NewConnection fresh) { state->hand_over(std::move(fresh)); }));
    TL_TRY(state->acceptors.back()->start());
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

RunEnd Server::run() {
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < impl_->loops.size(); ++i)
    threads.emplace_back([loop = impl_->loops[i].get()] { run_loop(loop->io()); });
  run_loop(impl_->loops.front()->io());
  for (std::thread& thread : threads) thread.join();
  impl_->end.deliveries_left = impl_->hub.deliveries_begun.load();
  return impl_->end;
}

void Server::post(void (Impl::*what)()) {
  boost::asio::post(impl_->loops.front()->io(), [state = impl_.get(), what] { (state->*what)(); });
}
void Server::stop() {
  post(&Impl::stop);
}
void Server::drain() {
  post(&Impl::drain);
}
void Server::hurry() {
  post(&Impl::hurry);
}
void Server::abort() {
  post(&Impl::abort);
}

bool Server::takes_turns() {
  bool all = true;
  for (const auto& loop : impl_->loops) all = loop->takes_turns() && all;
  return all;
}

std::size_t Server::connections() const {
  return impl_->hub.connections.load(std::memory_order_relaxed);
}

}  // namespace twinloft::lmtpd
