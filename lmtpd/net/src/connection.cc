#include "connection.h"

#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <exception>
#include <new>
#include <stdexcept>

#include "memory_patience.h"
#include "proxy_header.h"
#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

namespace asio = boost::asio;

constexpr Duration linger_time = std::chrono::seconds(2);

asio::generic::stream_protocol protocol_of(int fd) {
  int family = AF_UNIX;
  socklen_t length = sizeof family;
  (void)::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
  return {family, 0};
}

}  // namespace

Connection::Connection(Loop& loop, NewConnection fresh)
    : loop_(loop),
      hub_(loop.hub()),
      socket_(loop.io()),
      timer_(loop.io()),
      rules_(std::move(fresh.rules)),
      peer_(fresh.peer),
      session_(hub_.config.session),
      questions_(hub_),
      queue_timer_(loop.io()),
      patience_({hub_.config.idle_timeout, hub_.config.transaction_timeout}, hub_.clock.now()) {
  boost::system::error_code error;
  asio::generic::stream_protocol protocol = protocol_of(fresh.socket.get());
  socket_.assign(protocol, fresh.socket.get(), error);
  if (!error)
    wire_.attach(fresh.socket.release());
  else
    log_error("connection dropped: the event loop refused its socket: {}", error.message());
}

void Connection::start() {
  safely([this] {
    if (!socket_.is_open()) return close();
    arm_timer(hub_.config.idle_timeout);
    if (!rules_->proxies.contains(peer_)) return greet(peer_);
    phase_ = Phase::proxied;
    wait_readable();
  });
}

void Connection::greet(const sockaddr_storage& client) {
  phase_ = Phase::open;
  std::string address = address_text(client);
  if (client.ss_family == AF_INET || client.ss_family == AF_INET6) {
    if (!hub_.take_address(address)) return refuse_address(address);
    address_ = address;
  }
  session_.start({std::move(address), rules_->may_speak_for.contains(client), rules_->tls});
  if (stopping_) session_.shutdown();
  perform();
}

void Connection::refuse_address(const std::string& address) {
  hub_.refusals.put(LogLevel::warning, hub_.clock.now(),
                    address + ": more than limits.connections_per_address connections");
  writer_.add("421 4.7.0 " + hub_.config.session.hostname + " Too many connections from your address\r\n");
  phase_ = Phase::closing;
  flush();
}

// The PROXY header names the client. The session starts behind it.
void Connection::take_proxy_header(std::string_view bytes) {
  proxy_header_ += bytes;
  auto header = decode_proxy_header(as_bytes(proxy_header_));
  if (!header) {
    hub_.refusals.put(
        LogLevel::error, hub_.clock.now(),
        fmt::format("a connection from {} is closed: {}", address_text(peer_), header.error().message));
    return close();
  }
  if (!*header) return;
  std::string rest = std::exchange(proxy_header_, {}).substr((*header)->bytes);
  greet((*header)->source.value_or(peer_));
  if (!rest.empty() && phase_ == Phase::open) take_input(rest);
}

void Connection::stop() {
  safely([this] {
    stopping_ = true;
    if (phase_ == Phase::proxied) return close();
    if (phase_ != Phase::open) return;
    session_.shutdown();
    give_up_deliveries();
    perform();
  });
}

void Connection::drain(Duration silent, bool hurried, bool now) {
  safely([this, silent, hurried, now] {
    if (phase_ == Phase::proxied && now) return close();
    if (phase_ != Phase::open) return;
    bool busy = session_.transaction() != 0 || !session_.waits_for_client() || session_.in_handshake() ||
                !writer_.empty() || patience_.silence(hub_.clock.now()) < silent || input_is_there();
    // An MTA treats 421 to its first command as a failed server. Between two messages 421 only makes the MTA
    // reconnect.
    if (busy && !now && !(hurried && session_.has_begun_any())) return;
    session_.drain();
    perform();
  });
}

void Connection::abort() {
  safely([this] {
    if (with_filters_) give_up_filters({451, "4.3.2", "Not delivered: the server is being stopped"});
    if (auto deliveries = message_.deliveries())
      return deliveries->abort({451, "4.3.2", "Not delivered: the server is being stopped"},
                               "the server is being stopped");
    if (phase_ != Phase::open) return;
    session_.abort();
    perform();
  });
}

void Connection::abandon() {
  safely([this] { close(); });
}

// ---- exceptions

// The session's state may be inconsistent: its replies so far are sent, and it is not used again. A client
// without a reply to a message sends the message again, so no message is lost.
void Connection::fail_with(const char* what) noexcept {
  try {
    hub_.failures.put(
        LogLevel::error, hub_.clock.now(),
        fmt::format("a connection from {} is closed: internal error: {}", address_text(peer_), what));
  } catch (...) {  // no memory for the log line
  }
  try {
    if (phase_ == Phase::open && !session_.in_handshake()) {
      drop_filters();
      give_up_deliveries();
      message_.forget();
      asked_.reset();
      send_what_was_said();
      writer_.add("421 4.3.0 " + hub_.config.session.hostname + " Internal error, try again later\r\n");
      phase_ = Phase::closing;
      return flush();
    }
  } catch (...) {  // close without a reply
  }
  try {
    close();
  } catch (...) {  // its socket is closed with it
  }
}

void Connection::send_what_was_said() {
  Actions left;
  session_.take_actions(left);
  for (Action& action : left)
    if (auto* send = std::get_if<SendBytes>(&action))
      writer_.add(send->bytes.substr(0, send->bytes.rfind('\n') + 1));  // whole lines
}

// The result must not be lost while memory is short. Boost.Asio does not allocate by operator new, so the
// waiting is done here.
void Connection::post_finished(const std::shared_ptr<Finished>& finished) {
  asio::io_context& io = finished->connection->loop_.io();
  for (;;) try {
      return asio::post(io, [finished] { finish_here(*finished); });
    } catch (const std::bad_alloc&) {
      if (!MemoryPatience::wait()) throw;
    }
}

void Connection::finish_here(Finished& finished) {
  Finished now = std::move(finished);
  --now.connection->tasks_;
  if (now.connection->phase_ == Phase::open) now.connection->safely([&] { now.what(*now.connection); });
  now.connection->remove_if_done();
}

// ---- the end

void Connection::note_transaction() {
  patience_.note_transaction(session_.transaction(), hub_.clock.now());
}

void Connection::linger() {
  phase_ = Phase::lingering;
  wire_.announce_end();
  ::shutdown(socket_.native_handle(), SHUT_WR);
  if (reader_.ended()) return close();
  arm_timer(linger_time);
  wait_readable();
}

void Connection::close() {
  if (phase_ != Phase::closed) {
    phase_ = Phase::closed;
    drop_filters();
    give_up_deliveries();
    message_.forget();
    asked_.reset();
    boost::system::error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
    queue_timer_.cancel();
    if (!address_.empty()) hub_.give_back_address(std::exchange(address_, {}));
  }
  remove_if_done();
}

void Connection::remove_if_done() {
  if (phase_ == Phase::closed && tasks_ == 0) loop_.remove(shared_from_this());
}

void Connection::arm_timer(Duration after) {
  timer_.expires_after(std::chrono::ceil<std::chrono::steady_clock::duration>(after));
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->safely([&] { self->on_timer(); });
  });
}

bool Connection::input_is_there() {
  char byte;
  return ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

// Armed once per idle time, not once per byte. Patience knows what has happened meanwhile.
void Connection::on_timer() {
  if (phase_ == Phase::closed) return;
  if (phase_ == Phase::lingering || phase_ == Phase::proxied) return close();
  const bool ours = phase_ == Phase::open &&
                    (message_.is_storing() || (!session_.waits_for_client() && (writer_.empty() || asked_)));
  note_transaction();
  const Patience::Verdict verdict = patience_.look(hub_.clock.now(), ours);
  if (const auto* wait = std::get_if<Patience::Wait>(&verdict)) return arm_timer(wait->duration);
  if (!writer_.empty()) return close();  // the client reads no replies
  const bool idle = std::holds_alternative<Patience::Idle>(verdict);
  arm_timer(hub_.config.idle_timeout);   // also ends a client that does not read the last reply
  if (idle && input_is_there()) return;  // the client is not idle: this machine is slow
  if (idle)
    session_.idle_timeout();
  else
    session_.transaction_timeout();
  perform();
}

}  // namespace twinloft::lmtpd
