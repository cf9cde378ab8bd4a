// Performs the actions of a Connection's session, and passes the results back to the session.
#include <exception>

#include "connection.h"
#include "memory_patience.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/proto/error_reply.h"

namespace twinloft::lmtpd {

namespace {

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

}  // namespace

void Connection::perform() {
  while (perform_once()) {
  }
  flush();
}

// True: this caused an event of the session, which may have new actions.
bool Connection::perform_once() {
  Actions& actions = loop_.actions();
  session_.take_actions(actions);
  bool again = false;
  for (Action& action : actions) again |= std::visit([this](auto& what) { return on(what); }, action);
  return again;
}

bool Connection::on(SendBytes& send) {
  writer_.add(std::move(send.bytes));
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
  message_.begin(std::make_shared<BodyStore>(hub_.body_limits, hub_.budget));
  return false;
}
bool Connection::on(const BodyBytes& bytes) {
  return !message_.take(bytes.pieces);
}
bool Connection::on(const AbortBody&) {
  message_.abort();
  return false;
}
bool Connection::on(Deliver& deliver) {
  message_.complete(std::move(deliver.envelope));
  return false;
}

bool Connection::on(const Close&) {
  if (phase_ == Phase::open) phase_ = Phase::closing;
  return false;
}

bool Connection::on(Ask& ask) {
  if (asked_) throw std::logic_error("a question is asked while another is open");
  const bool of_filters = std::holds_alternative<FilterCommand>(ask.question);
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
  asked_ = Asked{ask.id, of_filters};
  ++tasks_;
  if (of_filters) limit_wait_for_filters();
  return false;
}

void Connection::answered(QuestionId id, Answer answer) {
  if (asked_ && asked_->of_filters) queue_timer_.cancel();
  asked_.reset();
  patience_.note_progress(hub_.clock.now());
  session_.answer(id, std::move(answer));
  perform();
}

void Connection::write(std::shared_ptr<BodyUpload> upload, BodyWrite write) {
  hub_.bodies.post(
      [self = shared_from_this(), upload = std::move(upload), write = std::move(write)]() mutable {
        Status kept = append_to(*write.store, write.bytes);
        finish_task(std::move(self), [upload = std::move(upload), store = std::move(write.store),
                                      kept = std::move(kept)](Connection& c) {
          c.patience_.note_progress(c.hub_.clock.now());
          c.message_.written(upload, store, kept);
          c.perform();
        });
      });
  ++tasks_;
}

// The session then discards the message.
void Connection::lost(const Error& error) {
  hub_.messages_put_off.put(LogLevel::error, hub_.clock.now(), "a message is deferred: " + error.message);
  session_.body_failed(reply_of_unkept(error));
}

// Without a client, the deliveries give up the message at once, so no filter hears it.
void Connection::take(BodyUpload::Whole whole) {
  if (hub_.config.filters && !is_given_up())
    begin_filters(std::move(whole));
  else
    begin_deliveries(std::move(whole.envelope), std::move(whole.store));
}

void Connection::begin_deliveries(std::shared_ptr<const Envelope> envelope,
                                  std::shared_ptr<StoredBody> body) {
  auto transaction = std::make_shared<Transaction>(
      hub_, std::move(envelope), std::move(body),
      [self = shared_from_this()](std::vector<Reply> replies) mutable {
        finish_task(std::move(self), [replies = std::move(replies)](Connection& c) { c.delivered(replies); });
      });
  ++tasks_;
  message_.delivering(transaction);
  if (is_given_up()) return give_up(*transaction);
  transaction->start();
  queue_timer_.expires_after(hub_.config.queue_time);
  queue_timer_.async_wait([transaction](const boost::system::error_code& cancelled) {
    if (!cancelled)
      transaction->give_up_waiting({451, "4.3.2", "Deliveries take too long now, try again later"},
                                   "they waited longer than limits.queue_time", Transaction::Begun::goes_on);
  });
}

// A half-closed connection looks the same, and a 451 is safe there. Exim closes its side after a pipelined
// QUIT, and still waits for the replies.
bool Connection::client_has_left() const {
  return reader_.ended() && !session_.has_quit_ahead();
}

bool Connection::is_given_up() const {
  return stopping_ || client_has_left();
}

// If the client has disconnected, its MTA sends the message again. Deliveries that begin now would become
// duplicates.
Reply Connection::reply_of_given_up() const {
  return stopping_ ? Reply{451, "4.3.2", "The server is being stopped"}
                   : Reply{451, "4.3.0", "Not delivered: the client has disconnected"};
}

void Connection::give_up(Transaction& transaction) const {
  transaction.give_up_waiting(reply_of_given_up(),
                              stopping_ ? "the server is being stopped" : "the client has disconnected",
                              Transaction::Begun::cut_short);
}

void Connection::give_up_deliveries() {
  if (auto deliveries = message_.deliveries())
    give_up(*deliveries);
  else if (with_filters_)
    give_up_filters(reply_of_given_up());
  else if (filters_are_at_work())
    questions_.hurry_filters();
}

void Connection::delivered(const std::vector<Reply>& replies) {
  queue_timer_.cancel();
  if (!message_.deliveries()) return;  // this connection has ended
  if (!stages_) return end_message(replies);
  auto next = stages_->take(replies);
  begin_stage(std::move(next));
}

void Connection::end_message(const std::vector<Reply>& replies) {
  message_.ended();
  patience_.note_progress(hub_.clock.now());
  for (std::size_t i = 0; i < replies.size(); ++i) session_.delivery_done(i, replies[i]);
  while (perform_once()) {
  }
  writer_.hurry();
  flush();
}

}  // namespace twinloft::lmtpd
