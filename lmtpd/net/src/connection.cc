#include "connection.h"

#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <exception>

#include "proxy_header.h"
#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

namespace asio = boost::asio;

constexpr std::size_t out_memory_max = 16 * 1024;  // that a connection without replies to be sent holds
constexpr Duration linger_time = std::chrono::seconds(2);

asio::generic::stream_protocol protocol_of(int fd) {
  int family = AF_UNIX;
  socklen_t length = sizeof family;
  (void)::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
  return {family, 0};
}

// What `ask` gives, or an error for what it throws.
template <class Ask>
auto asked(Ask ask) -> decltype(ask()) {
  try {
    return ask();
  } catch (const std::exception& e) {
    return LookupResult(fail(Errc::internal, "unexpectedly: {}", e.what()));
  } catch (...) {
    return LookupResult(fail(Errc::internal, "unexpectedly"));
  }
}

void tell_failed_lookup(Hub& hub, const LookupRequest& request, const Error& error) {
  hub.lookups_failed.put(LogLevel::error, hub.clock.now(), fmt::format("look-up of {}@{}: {}", request.local_part, request.domain, error.message));
}

bool may_be_refused(const Deliverer& deliverer, const LookupResult& found) {
  return found && *found && (*found)->user.state == UserState::active && deliverer.may_refuse((*found)->user);
}

// May block. What fails unexpectedly is no reason to refuse: the delivery will tell.
void add_refusal(Deliverer& deliverer, const LookupRequest& request, Resolved& found) {
  try {
    found.refusal = deliverer.refusal(found.user, found.detail.value_or(request.detail), request.size);
  } catch (const std::exception& e) {
    log_error("{}: whether mail would be refused: {}", found.user.name, e.what());
  }
}

Reply refusal_of(const Error& error) {
  if (error.code == Errc::exhausted) return {452, "4.3.1", "No memory for the message now, try again later"};
  return {452, "4.3.1", "No room for the message now, try again later"};
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
      queue_timer_(loop.io()),
      last_progress_(hub_.clock.now()) {
  boost::system::error_code error;
  asio::generic::stream_protocol protocol = protocol_of(fresh.socket.get());
  socket_.assign(protocol, fresh.socket.get(), error);
  if (!error) wire_.attach(fresh.socket.release());
  else log_error("a connection is dropped: the event loop does not take its socket: {}", error.message());
}

void Connection::start() {
  if (!socket_.is_open()) return close();
  arm_timer(hub_.config.idle_timeout);
  if (!rules_->proxies.contains(peer_)) return greet(peer_);
  phase_ = Phase::proxied;
  wait_readable();
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
  hub_.refusals.put(LogLevel::warning, hub_.clock.now(), address + ": more than limits.connections_per_address connections");
  out_ = "421 4.7.0 " + hub_.config.session.hostname + " Too many connections from your address\r\n";
  phase_ = Phase::closing;
  flush();
}

// What a proxy says of the client that it has accepted; before that there is no session.
void Connection::take_proxy_header(std::string_view bytes) {
  proxy_header_ += bytes;
  auto header = decode_proxy_header(as_bytes(proxy_header_));
  if (!header) {
    hub_.refusals.put(LogLevel::error, hub_.clock.now(), fmt::format("a connection from {} is closed: {}", address_text(peer_), header.error().message));
    return close();
  }
  if (!*header) return;
  std::string rest = std::exchange(proxy_header_, {}).substr((*header)->bytes);
  greet((*header)->source.value_or(peer_));
  if (!rest.empty() && phase_ == Phase::open) take_input(rest);
}

void Connection::stop() {
  stopping_ = true;
  if (phase_ == Phase::proxied) return close();
  if (phase_ != Phase::open) return;
  session_.shutdown();
  if (transaction_) give_up_waiting();
  perform();
}

void Connection::drain(Duration silent, bool now) {
  if (phase_ == Phase::proxied && now) return close();
  if (phase_ != Phase::open) return;
  bool busy = session_.transaction() != 0 || !session_.waits_for_client() || session_.in_handshake() || !out_.empty() ||
              hub_.clock.now() - last_progress_ < silent || input_is_there();
  if (busy && !now) return;
  session_.drain();
  perform();
}

void Connection::abort() {
  if (transaction_) return transaction_->abort({451, "4.3.2", "Not delivered: the server is being stopped"}, "the server is being stopped");
  if (phase_ != Phase::open) return;
  session_.abort();
  perform();
}

void Connection::abandon() { close(); }

// --- What the session asks for ----------------------------------------------------------------------------------

void Connection::perform() {
  while (perform_once()) {
  }
  flush();
}

// True where the session was told something by this, and may ask for more.
bool Connection::perform_once() {
  Actions actions = session_.take_actions();
  if (out_.empty()) out_ = std::move(actions.send);
  else out_ += actions.send;
  bool again = !take_body(actions);
  if (actions.start_tls) tls_asked_for_ = true;
  if (actions.close && phase_ == Phase::open) phase_ = Phase::closing;
  if (actions.deliver && storing_) stored_first_ = std::move(actions.deliver);
  else if (actions.deliver) deliver(std::move(actions.deliver));
  if (!actions.lookup) return again;
  auto found = asked([&] { return hub_.users.lookup_now(*actions.lookup); });
  if (!found || may_be_refused(hub_.deliverer, *found)) {
    ++under_way_;
    looking_up_ = true;
    if (found) look_for_room(shared_from_this(), std::move(*actions.lookup), std::move(*found));
    else look_up(std::move(*actions.lookup));
    return again;
  }
  if (!*found) tell_failed_lookup(hub_, *actions.lookup, found->error());
  session_.lookup_done(std::move(*found));
  return true;
}

// False where the message cannot be kept: the session then knows.
bool Connection::take_body(Actions& actions) {
  if (actions.begin_body) body_ = std::make_shared<BodyStore>(hub_.body_limits, hub_.budget);
  if (actions.abort_body) body_.reset();
  if (!body_ || actions.body.empty()) return true;
  std::size_t bytes = 0;
  for (ByteSpan piece : actions.body) bytes += piece.size();
  if (!body_->fits_memory(bytes)) {
    std::string chunk;
    chunk.reserve(bytes);
    for (ByteSpan piece : actions.body) chunk += as_text(piece);
    store(std::move(chunk));
    return true;
  }
  for (ByteSpan piece : actions.body) {
    Status kept = body_->append(as_text(piece));
    if (kept) continue;
    actions.deliver.reset();
    lose_body(kept.error());
    return false;
  }
  return true;
}

void Connection::lose_body(const Error& error) {
  hub_.messages_put_off.put(LogLevel::error, hub_.clock.now(), "a message is put off: " + error.message);
  body_.reset();
  session_.body_failed(refusal_of(error));
}

void Connection::store(std::string chunk) {
  ++under_way_;
  storing_ = true;
  hub_.bodies.post([self = shared_from_this(), body = body_, chunk = std::move(chunk)]() mutable {
    Status kept = body->append(chunk);
    asio::io_context& io = self->loop_.io();
    asio::post(io, [self = std::move(self), body = std::move(body), kept = std::move(kept)] { self->stored(body, kept); });
  });
}

// A body that was aborted meanwhile (the server leaves) is of no interest.
void Connection::stored(const std::shared_ptr<BodyStore>& body, const Status& kept) {
  --under_way_;
  storing_ = false;
  if (phase_ == Phase::closed) return remove_if_done();
  if (body_ != body) return wait_readable();
  last_progress_ = hub_.clock.now();
  auto envelope = std::exchange(stored_first_, nullptr);
  if (!kept) lose_body(kept.error());
  else if (envelope) deliver(std::move(envelope));
  perform();
}

// On a worker thread. The connection is let go of on its own thread, never on that one.
void Connection::finish_lookup(std::shared_ptr<Connection> self, LookupResult found) {
  asio::io_context& io = self->loop_.io();
  asio::post(io, [self = std::move(self), found = std::move(found)]() mutable { self->looked_up(std::move(found)); });
}

void Connection::look_up(LookupRequest request) {
  hub_.lookups.post([self = shared_from_this(), request = std::move(request)]() mutable {
    LookupResult found = asked([&] { return self->hub_.users.lookup(request); });
    if (!found) tell_failed_lookup(self->hub_, request, found.error());
    if (may_be_refused(self->hub_.deliverer, found)) return look_for_room(std::move(self), std::move(request), std::move(found));
    finish_lookup(std::move(self), std::move(found));
  });
}

// On threads of their own: while a user database does not answer, users that are known go on, and the other way round.
void Connection::look_for_room(std::shared_ptr<Connection> self, LookupRequest request, LookupResult found) {
  Hub& hub = self->hub_;
  hub.rooms.post([self = std::move(self), request = std::move(request), found = std::move(found)]() mutable {
    add_refusal(self->hub_.deliverer, request, **found);
    finish_lookup(std::move(self), std::move(found));
  });
}

void Connection::looked_up(LookupResult found) {
  --under_way_;
  looking_up_ = false;
  if (phase_ == Phase::closed) return remove_if_done();
  last_progress_ = hub_.clock.now();
  session_.lookup_done(std::move(found));
  perform();
}

void Connection::deliver(std::shared_ptr<const Envelope> envelope) {
  ++under_way_;
  transaction_ = std::make_shared<Transaction>(
      hub_, std::move(envelope), std::exchange(body_, nullptr),
      [self = shared_from_this()](std::vector<Reply> replies) mutable {
        asio::io_context& io = self->loop_.io();
        asio::post(io, [self = std::move(self), replies = std::move(replies)] { self->delivered(replies); });
      });
  if (stopping_ || client_has_left()) return give_up_waiting();
  transaction_->start();
  queue_timer_.expires_after(hub_.config.queue_time);
  queue_timer_.async_wait([transaction = transaction_](const boost::system::error_code& cancelled) {
    if (!cancelled)
      transaction->give_up_waiting({451, "4.3.2", "Deliveries take too long now, try again later"},
                                   "they waited for limits.queue_time", Transaction::Begun::goes_on);
  });
}

// A half-closed connection looks the same; a 451 loses nothing there. Exim closes its half behind a QUIT that it has sent ahead.
bool Connection::client_has_left() const { return input_ended_ && !session_.has_quit_ahead(); }

// For a client that has left: its MTA sends the message again, and would have it twice.
void Connection::give_up_waiting() {
  if (stopping_)
    transaction_->give_up_waiting({451, "4.3.2", "The server is being stopped"}, "the server is being stopped", Transaction::Begun::cut_short);
  else
    transaction_->give_up_waiting({451, "4.3.0", "Not delivered: the client has left"}, "the client has left", Transaction::Begun::cut_short);
}

void Connection::delivered(const std::vector<Reply>& replies) {
  --under_way_;
  transaction_.reset();
  queue_timer_.cancel();
  if (phase_ == Phase::closed) return remove_if_done();
  last_progress_ = hub_.clock.now();
  for (std::size_t i = 0; i < replies.size(); ++i) session_.delivery_done(i, replies[i]);
  perform();
}

// --- Bytes ------------------------------------------------------------------------------------------------------

// One send for all that has gathered; the rest once the client has taken it.
void Connection::flush() {
  if (phase_ == Phase::closed || writing_) return;
  // What a pipelining client has asked for before goes with the look-up's reply: it waits for that one anyhow.
  if (looking_up_ && phase_ == Phase::open && out_.size() < out_memory_max) return;
  while (sent_ < out_.size()) {
    Wire::Outcome sent = wire_.send(std::string_view(out_).substr(sent_));
    if (sent.state == Wire::State::want_write) return wait_writable();
    if (sent.state == Wire::State::want_read) return wait_readable();
    if (sent.state != Wire::State::done) return close();
    sent_ += sent.bytes;
  }
  out_.clear();
  if (out_.capacity() > out_memory_max) std::string().swap(out_);
  sent_ = 0;
  all_sent();
}

void Connection::all_sent() {
  if (session_.holds_back() && phase_ == Phase::open) return go_on_with_input();
  session_.replies_sent();
  if (phase_ == Phase::closing) return linger();
  if (tls_asked_for_) return begin_tls();
  // A client that has shut its end still gets the replies it waits for.
  if (input_ended_ && session_.waits_for_client()) return close();
  wait_readable();
}

// By way of the loop, so that others have their turn.
void Connection::go_on_with_input() {
  asio::post(loop_.io(), [self = shared_from_this()] {
    if (self->phase_ != Phase::open || !self->out_.empty()) return;  // else flush() comes here again
    try {
      self->session_.replies_sent();
      while (self->perform_once()) {
      }
      self->note_transaction();
      self->flush();
    } catch (const std::exception& e) {
      log_error("a connection is dropped: {}", e.what());
      self->close();
    }
  });
}

// The client's next bytes are the handshake's: what it has sent ahead in clear was thrown away by the session, or breaks the handshake.
void Connection::begin_tls() {
  tls_asked_for_ = false;
  if (Status begun = wire_.start_tls(hub_.config.tls); !begun) {
    log_error("a connection is dropped: {}", begun.error().message);
    return close();
  }
  go_on_with_handshake();
}

void Connection::go_on_with_handshake() {
  switch (wire_.handshake().state) {
    case Wire::State::done:
      session_.tls_started(wire_.how());
      last_progress_ = hub_.clock.now();
      return perform();
    case Wire::State::want_read:
      return wait_readable();
    case Wire::State::want_write:
      return wait_writable();
    default:
      hub_.handshakes.put(LogLevel::warning, hub_.clock.now(), fmt::format("a TLS handshake with {} has failed", address_text(peer_)));
      return close();
  }
}

void Connection::wait_readable() {
  bool wanted = phase_ == Phase::lingering || phase_ == Phase::proxied || (phase_ == Phase::open && (session_.wants_input() || session_.in_handshake()));
  if (reading_ || storing_ || input_ended_ || !wanted) return;
  reading_ = true;
  if (wire_.holds_input())
    return asio::post(loop_.io(), [self = shared_from_this()] {
      self->reading_ = false;
      self->on_readable();
    });
  socket_.async_wait(asio::socket_base::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
    self->reading_ = false;
    if (error) return self->close();
    self->on_readable();
  });
}

void Connection::on_readable() {
  if (phase_ == Phase::closed || storing_) return;  // flush() waits for input again once the part is stored
  if (session_.in_handshake() && wire_.is_secured()) return go_on_with_handshake();
  try {
    if (read_once()) flush();
  } catch (const std::exception& e) {
    log_error("a connection is dropped: {}", e.what());
    close();
  }
}

// False once closed. Replies that the client does not take hold back what is read from it.
bool Connection::read_once() {
  std::vector<char>& buffer = loop_.buffer();
  std::size_t wanted = phase_ == Phase::open ? session_.wants() : buffer.size();  // what comes while the end is waited for is thrown away
  if (wanted == 0) return true;
  Wire::Outcome got = wire_.receive(std::span(buffer).first(std::min(buffer.size(), wanted)));
  switch (got.state) {
    case Wire::State::want_read:
      return true;
    case Wire::State::want_write:
      wait_writable();
      return true;
    case Wire::State::broken:
      close();
      return false;
    case Wire::State::end:
      input_ended_ = true;
      if (phase_ == Phase::lingering || phase_ == Phase::proxied) close();
      if (transaction_ && client_has_left()) give_up_waiting();
      return phase_ != Phase::closed;
    case Wire::State::done:
      break;
  }
  last_progress_ = hub_.clock.now();
  std::string_view bytes(buffer.data(), got.bytes);
  if (phase_ == Phase::proxied) take_proxy_header(bytes);
  else if (phase_ == Phase::open) take_input(bytes);
  return phase_ != Phase::closed;
}

void Connection::take_input(std::string_view bytes) {
  session_.receive(as_bytes(bytes));
  while (perform_once()) {
  }
  note_transaction();
}

void Connection::note_transaction() {
  if (std::exchange(transaction_seen_, session_.transaction()) != session_.transaction()) transaction_began_ = hub_.clock.now();
}

void Connection::wait_writable() {
  writing_ = true;
  socket_.async_wait(asio::socket_base::wait_write, [self = shared_from_this()](const boost::system::error_code& error) {
    self->writing_ = false;
    if (error) return self->close();
    self->last_progress_ = self->hub_.clock.now();
    if (self->phase_ != Phase::closed && self->session_.in_handshake() && self->wire_.is_secured()) return self->go_on_with_handshake();
    self->flush();
  });
}

// --- The end ----------------------------------------------------------------------------------------------------

void Connection::linger() {
  phase_ = Phase::lingering;
  wire_.announce_end();
  ::shutdown(socket_.native_handle(), SHUT_WR);
  if (input_ended_) return close();
  arm_timer(linger_time);
  wait_readable();
}

void Connection::close() {
  if (phase_ != Phase::closed) {
    phase_ = Phase::closed;
    if (transaction_) give_up_waiting();
    boost::system::error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
    queue_timer_.cancel();
    body_.reset();
    if (!address_.empty()) hub_.give_back_address(std::exchange(address_, {}));
  }
  remove_if_done();
}

void Connection::remove_if_done() {
  if (under_way_ == 0) loop_.remove(shared_from_this());
}

void Connection::arm_timer(Duration after) {
  timer_.expires_after(std::chrono::ceil<std::chrono::steady_clock::duration>(after));
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->on_timer();
  });
}

bool Connection::input_is_there() {
  char byte;
  return ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

// Armed once per idle time, not once per byte: what has happened since decides.
void Connection::on_timer() {
  if (phase_ == Phase::closed) return;
  if (phase_ == Phase::lingering || phase_ == Phase::proxied) return close();
  Duration limit = hub_.config.idle_timeout;
  bool ours = phase_ == Phase::open && (storing_ || (!session_.waits_for_client() && (out_.empty() || looking_up_)));
  Duration idle = ours ? Duration(0) : hub_.clock.now() - last_progress_;
  note_transaction();
  Duration left = limit - idle;
  if (transaction_seen_ != 0 && !ours) {
    Duration taken = hub_.clock.now() - transaction_began_;
    left = std::min(left, hub_.config.transaction_timeout - taken);
    if (taken >= hub_.config.transaction_timeout) {
      if (!out_.empty()) return close();
      arm_timer(limit);  // for a client that does not take even the last reply
      session_.transaction_timeout();
      return perform();
    }
  }
  if (left > Duration(0)) return arm_timer(left);
  if (!out_.empty()) return close();  // it takes no replies
  if (input_is_there()) return arm_timer(limit);  // then it is this machine that is slow
  arm_timer(limit);
  session_.idle_timeout();
  perform();
}

}  // namespace twinloft::lmtpd
