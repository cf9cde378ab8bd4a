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

// May block.
Status append_to(BodyStore& store, const std::string& bytes) {
  try {
    return store.append(bytes);
  } catch (const std::exception& e) {
    MemoryPatience patient;
    return fail(Errc::internal, "unexpectedly: {}", e.what());
  } catch (...) {
    return fail(Errc::internal, "unexpectedly");
  }
}

// Of a message that could not be kept as it came. A full disk is one reason of many.
Reply not_kept(const Error& error) {
  switch (error.sys) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return {451, "4.3.2", "The mail system is out of open files or memory, try again later"};
    default:
      break;
  }
  if (error.code == Errc::exhausted) return {452, "4.3.1", "No room for the message now, try again later"};
  return {451, "4.3.0", "The message could not be kept, try again later"};
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
      last_progress_(hub_.clock.now()) {
  boost::system::error_code error;
  asio::generic::stream_protocol protocol = protocol_of(fresh.socket.get());
  socket_.assign(protocol, fresh.socket.get(), error);
  if (!error)
    wire_.attach(fresh.socket.release());
  else
    log_error("a connection is dropped: the event loop does not take its socket: {}", error.message());
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
  output_.add("421 4.7.0 " + hub_.config.session.hostname + " Too many connections from your address\r\n");
  phase_ = Phase::closing;
  flush();
}

// What a proxy says of the client that it has accepted; before that there is no session.
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
    if (const Delivering* now = at_work<Delivering>()) give_up_waiting(*now);
    perform();
  });
}

void Connection::drain(Duration silent, bool hurried, bool now) {
  safely([this, silent, hurried, now] {
    if (phase_ == Phase::proxied && now) return close();
    if (phase_ != Phase::open) return;
    bool busy = session_.transaction() != 0 || !session_.waits_for_client() || session_.in_handshake() ||
                !output_.empty() || hub_.clock.now() - last_progress_ < silent || input_is_there();
    // An MTA takes 421 to its first command for a server that is not there, and between two messages only
    // connects anew.
    if (busy && !now && !(hurried && session_.has_begun_any())) return;
    session_.drain();
    perform();
  });
}

void Connection::abort() {
  safely([this] {
    if (const Delivering* now = at_work<Delivering>())
      return now->transaction->abort({451, "4.3.2", "Not delivered: the server is being stopped"},
                                     "the server is being stopped");
    if (phase_ != Phase::open) return;
    session_.abort();
    perform();
  });
}

void Connection::abandon() {
  safely([this] { close(); });
}

// --- What throws
// ------------------------------------------------------------------------------------------------

// The session may be in no state at all: what it has said until then goes out, and it is not asked again. A
// client that has got no reply to a message sends it again, so none is lost.
void Connection::fail_with(const char* what) noexcept {
  try {
    hub_.failures.put(
        LogLevel::error, hub_.clock.now(),
        fmt::format("a connection from {} is closed: internal error: {}", address_text(peer_), what));
  } catch (...) {  // no memory even for the line
  }
  try {
    if (phase_ == Phase::open && !session_.in_handshake()) {
      if (const Delivering* now = at_work<Delivering>()) give_up_waiting(*now);
      work_ = Nothing{};
      asked_.reset();
      send_what_was_said();
      output_.add("421 4.3.0 " + hub_.config.session.hostname + " Internal error, try again later\r\n");
      phase_ = Phase::closing;
      return flush();
    }
  } catch (...) {  // then without a word
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
      output_.add(send->bytes.substr(0, send->bytes.rfind('\n') + 1));  // whole lines
}

// Nothing of it is lost while memory is short: Boost.Asio takes it elsewhere than from operator new.
template <class What>
void Connection::finish_task(std::shared_ptr<Connection> self, What what) {
  MemoryPatience patient;
  asio::io_context& io = self->loop_.io();
  auto finished = std::make_shared<Finished>(std::move(self), std::move(what));
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

// --- What the session asks for
// ----------------------------------------------------------------------------------

void Connection::perform() {
  while (perform_once()) {
  }
  flush();
}

// True where the session was told something by this, and may ask for more.
bool Connection::perform_once() {
  Actions& actions = loop_.actions();
  session_.take_actions(actions);
  bool again = false;
  for (Action& action : actions) again |= std::visit([this](auto& what) { return on(what); }, action);
  return again;
}

bool Connection::on(SendBytes& send) {
  output_.add(std::move(send.bytes));
  return false;
}

bool Connection::on(const Refused& r) {
  static constexpr const char* what[] = {"sender refused", "recipient refused", "message refused",
                                         "connection closed"};
  auto left_out = hub_.refused.admit(hub_.clock.now());
  if (!left_out) return false;
  log_line(LogLevel::info, what[static_cast<std::size_t>(r.what)],
           {{"id", r.id},
            {"from", r.from},
            {"to", r.to},
            {"client", r.client},
            {"reply", fmt::format("{} {} {}", r.reply.code, r.reply.enhanced, r.reply.text)},
            {"left_out", fmt::format("{}", *left_out)}});
  return false;
}

bool Connection::on(const BeginBody&) {
  if (!at_work<Nothing>()) throw std::logic_error("a message begins while another is under way");
  work_ = Receiving{std::make_shared<BodyUpload>(std::make_shared<BodyStore>(hub_.body_limits, hub_.budget))};
  return false;
}

// Of a message that was lost nothing more is kept: the session takes it back with its next actions.
bool Connection::on(const BodyBytes& bytes) {
  Receiving* now = at_work<Receiving>();
  if (!now) throw std::logic_error("bytes of a message that has not begun");
  if (now->upload->is_lost()) return false;
  BodyUpload::Next next = now->upload->append(bytes.pieces);
  if (!next) return lose_body(next.error()), true;
  if (*next) store(now->upload, std::move(**next));
  return false;
}

bool Connection::on(const AbortBody&) {
  if (at_work<Receiving>()) work_ = Nothing{};
  return false;
}

bool Connection::on(Deliver& deliver) {
  Receiving* now = at_work<Receiving>();
  if (!now) throw std::logic_error("a message that has not begun is to be delivered");
  if (now->upload->is_lost()) return false;
  now->upload->complete(std::move(deliver.envelope));
  deliver_if_whole(*now->upload);
  return false;
}

bool Connection::on(const Close&) {
  if (phase_ == Phase::open) phase_ = Phase::closing;
  return false;
}

bool Connection::on(Ask& ask) {
  if (asked_) throw std::logic_error("a question is asked while another is open");
  auto answer = questions_.ask(std::move(ask.question), [&] {
    return [self = shared_from_this(), id = ask.id](Answer found) mutable {
      finish_task(std::move(self), [id, found = std::move(found)](Connection& c) mutable {
        c.answered(id, std::move(found));
      });
    };
  });
  if (answer) {
    session_.answer(ask.id, std::move(*answer));
    return true;
  }
  asked_ = ask.id;
  ++tasks_;
  return false;
}

void Connection::answered(QuestionId id, Answer answer) {
  asked_.reset();
  last_progress_ = hub_.clock.now();
  session_.answer(id, std::move(answer));
  perform();
}

// The session gives it up, once it knows.
void Connection::lose_body(const Error& error) {
  hub_.messages_put_off.put(LogLevel::error, hub_.clock.now(), "a message is deferred: " + error.message);
  session_.body_failed(not_kept(error));
}

void Connection::store(std::shared_ptr<BodyUpload> upload, BodyWrite write) {
  hub_.bodies.post([self = shared_from_this(), upload = std::move(upload),
                    write = std::move(write)]() mutable {
    Status kept = append_to(*write.store, write.bytes);
    finish_task(std::move(self), [upload = std::move(upload), store = std::move(write.store),
                                  kept = std::move(kept)](Connection& c) { c.stored(upload, store, kept); });
  });
  ++tasks_;
}

// A body that was given up meanwhile is of no interest.
void Connection::stored(const std::shared_ptr<BodyUpload>& upload, std::shared_ptr<BodyStore> store,
                        const Status& kept) {
  last_progress_ = hub_.clock.now();
  if (const Receiving* now = at_work<Receiving>(); now && now->upload == upload) {
    BodyUpload::Next next = upload->written(std::move(store), kept);
    if (!next)
      lose_body(next.error());
    else if (*next)
      this->store(upload, std::move(**next));
    else
      deliver_if_whole(*upload);
  }
  perform();
}

void Connection::deliver_if_whole(BodyUpload& upload) {
  if (auto whole = upload.take_whole()) deliver(std::move(*whole));
}

void Connection::deliver(BodyUpload::Whole whole) {
  auto transaction = std::make_shared<Transaction>(
      hub_, std::move(whole.envelope), std::move(whole.store),
      [self = shared_from_this()](std::vector<Reply> replies) mutable {
        finish_task(std::move(self), [replies = std::move(replies)](Connection& c) { c.delivered(replies); });
      });
  ++tasks_;
  work_ = Delivering{transaction};
  if (stopping_ || client_has_left()) return give_up_waiting({transaction});
  transaction->start();
  queue_timer_.expires_after(hub_.config.queue_time);
  queue_timer_.async_wait([transaction](const boost::system::error_code& cancelled) {
    if (!cancelled)
      transaction->give_up_waiting({451, "4.3.2", "Deliveries take too long now, try again later"},
                                   "they waited for limits.queue_time", Transaction::Begun::goes_on);
  });
}

// A half-closed connection looks the same; a 451 loses nothing there. Exim closes its half behind a QUIT that
// it has sent ahead.
bool Connection::client_has_left() const {
  return input_.ended() && !session_.has_quit_ahead();
}

// For a client that has left: its MTA sends the message again, and would have it twice.
void Connection::give_up_waiting(const Delivering& now) {
  std::shared_ptr<Transaction> transaction = now.transaction;
  if (stopping_)
    transaction->give_up_waiting({451, "4.3.2", "The server is being stopped"}, "the server is being stopped",
                                 Transaction::Begun::cut_short);
  else
    transaction->give_up_waiting({451, "4.3.0", "Not delivered: the client has left"}, "the client has left",
                                 Transaction::Begun::cut_short);
}

void Connection::delivered(const std::vector<Reply>& replies) {
  work_ = Nothing{};
  queue_timer_.cancel();
  last_progress_ = hub_.clock.now();
  for (std::size_t i = 0; i < replies.size(); ++i) session_.delivery_done(i, replies[i]);
  while (perform_once()) {
  }
  output_.hurry();
  flush();
}

void Connection::note_transaction() {
  if (std::exchange(transaction_seen_, session_.transaction()) != session_.transaction())
    transaction_began_ = hub_.clock.now();
}

// --- The end
// ----------------------------------------------------------------------------------------------------

void Connection::linger() {
  phase_ = Phase::lingering;
  wire_.announce_end();
  ::shutdown(socket_.native_handle(), SHUT_WR);
  if (input_.ended()) return close();
  arm_timer(linger_time);
  wait_readable();
}

void Connection::close() {
  if (phase_ != Phase::closed) {
    phase_ = Phase::closed;
    if (const Delivering* now = at_work<Delivering>()) give_up_waiting(*now);
    work_ = Nothing{};
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

// Armed once per idle time, not once per byte: what has happened since decides.
void Connection::on_timer() {
  if (phase_ == Phase::closed) return;
  if (phase_ == Phase::lingering || phase_ == Phase::proxied) return close();
  Duration limit = hub_.config.idle_timeout;
  bool ours = phase_ == Phase::open &&
              (is_storing() || (!session_.waits_for_client() && (output_.empty() || asked_)));
  Duration idle = ours ? Duration(0) : hub_.clock.now() - last_progress_;
  note_transaction();
  Duration left = limit - idle;
  if (transaction_seen_ != 0 && !ours) {
    Duration taken = hub_.clock.now() - transaction_began_;
    left = std::min(left, hub_.config.transaction_timeout - taken);
    if (taken >= hub_.config.transaction_timeout) {
      if (!output_.empty()) return close();
      arm_timer(limit);  // for a client that does not take even the last reply
      session_.transaction_timeout();
      return perform();
    }
  }
  if (left > Duration(0)) return arm_timer(left);
  if (!output_.empty()) return close();           // it takes no replies
  if (input_is_there()) return arm_timer(limit);  // then it is this machine that is slow
  arm_timer(limit);
  session_.idle_timeout();
  perform();
}

}  // namespace twinloft::lmtpd
