// One client: moves bytes between its socket and its Session, and performs the session's actions.
//
// A connection belongs to the thread of its loop. It is removed (Loop::remove) when its socket is closed and
// none of its tasks runs on a worker thread. Each part has a state of its own: the phase, CommandReader,
// ReplyWriter, the session's question, IncomingMessage. An exception ends this connection only (safely()).
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command_reader.h"
#include "filtered_delivery.h"
#include "hub.h"
#include "incoming_message.h"
#include "memory_patience.h"
#include "patience.h"
#include "questions.h"
#include "reply_writer.h"
#include "transaction.h"
#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/session/session.h"
#include "wire.h"

namespace twinloft::lmtpd {

class Connection : public std::enable_shared_from_this<Connection>, private IncomingMessage::Owner {
 public:
  Connection(Loop& loop, NewConnection fresh);

  void start();
  void stop();  // the server stops
  // A new server process has taken over. Closes if the client has been silent for `silent`.
  // `hurried`: also between two transactions. `now`: as soon as no transaction is open.
  void drain(Duration silent, bool hurried, bool now);
  void abort();    // does not wait for deliveries
  void abandon();  // closes at once

 private:
  enum class Phase {
    proxied,  // waits for the PROXY protocol's header
    open,
    closing,    // sends what is in writer_, then closes this side
    lingering,  // waits until the client closes, so that a reset does not destroy the last reply
    closed,
  };
  // Runs `what`. If `what` throws, the client gets 421, and this connection ends.
  template <class Do>
  void safely(Do what);
  void fail_with(const char* what) noexcept;
  void send_what_was_said();
  // Called on a worker thread at the end of a task of this connection. Runs `what` on the connection's own
  // thread, and releases the connection only there.
  template <class What>
  static void finish_task(std::shared_ptr<Connection> self, What what);
  struct Finished {
    std::shared_ptr<Connection> connection;
    std::function<void(Connection&)> what;
  };
  static void post_finished(const std::shared_ptr<Finished>& finished);
  static void finish_here(Finished& finished);

  void perform();  // until the session has no more actions, then flush()
  bool perform_once();
  // Perform one action of the session. True: this caused an event of the session.
  bool on(SendBytes& send);
  bool on(const Refused& refused);
  bool on(const BeginBody& begin);
  bool on(const BodyBytes& bytes);
  bool on(const AbortBody& abort);
  bool on(Ask& ask);
  bool on(Deliver& deliver);
  bool on(const ForgetTransaction&);
  bool on(const BeginTls&) { return false; }  // done by all_sent()
  bool on(const Close& close);
  struct Asked {
    QuestionId id;
    bool of_filters = false;
  };
  void answered(QuestionId id, Answer answer);
  void write(std::shared_ptr<BodyUpload> upload, BodyWrite write) override;
  void take(BodyUpload::Whole whole) override;
  void lost(const Error& error) override;
  void begin_filters(BodyUpload::Whole whole);
  void limit_wait_for_filters();
  void filtered(Questions::Filtered&& result);
  void filtered(FilteredMessage::Refused&& refused, std::vector<Recipient>&& added);
  void filtered(FilteredMessage::Discarded&& discarded, std::vector<Recipient>&& added);
  void filtered(FilteredMessage::Passed&& passed, std::vector<Recipient>&& added);
  void begin_stage(std::optional<FilteredDelivery::Stage>&& stage);
  void give_up_filters(const Reply& reply);
  void drop_filters();
  bool filters_are_at_work() const;
  void begin_deliveries(std::shared_ptr<const Envelope> envelope, std::shared_ptr<StoredBody> body);
  void delivered(const std::vector<Reply>& replies);
  void end_message(const std::vector<Reply>& replies);
  bool client_has_left() const;
  bool is_given_up() const;
  Reply reply_of_given_up() const;
  void give_up(Transaction& transaction) const;
  void give_up_deliveries();

  void greet(const sockaddr_storage& client);
  void take_proxy_header(std::string_view bytes);
  void begin_tls();
  void go_on_with_handshake();

  void flush();
  void wait_readable();
  void on_readable();
  bool read_once();
  void on_read(const CommandReader::Bytes& got);
  void on_read(const CommandReader::Nothing&) {}
  void on_read(const CommandReader::NeedsToWrite&) { wait_writable(); }
  void on_read(const CommandReader::End&);
  void on_read(const CommandReader::Broken&) { close(); }
  void take_input(std::string_view bytes);
  void wait_writable();
  void on_writable();
  void all_sent();
  void go_on_with_input();
  void linger();
  void discard_input();
  void close();
  void remove_if_done();
  void arm_timer(Duration after);
  bool input_is_there();
  void note_transaction();
  void refuse_address(const std::string& address);
  void on_timer();

  Loop& loop_;
  Hub& hub_;
  boost::asio::generic::stream_protocol::socket socket_;
  Wire wire_;
  boost::asio::steady_timer timer_;
  const std::shared_ptr<const ListenRules> rules_;
  const sockaddr_storage peer_;
  Session session_;
  Phase phase_ = Phase::open;
  CommandReader reader_;
  ReplyWriter writer_;
  IncomingMessage message_{*this};
  std::optional<FilteredDelivery> stages_;        // of a message that has passed the filters
  std::shared_ptr<const Envelope> with_filters_;  // of the message that they hear now; null: none
  Questions questions_;
  std::optional<Asked> asked_;             // the session waits for the answer
  std::size_t tasks_ = 0;                  // of this connection on worker threads, including abandoned tasks
  bool stopping_ = false;                  // the server stops
  std::string proxy_header_;               // the bytes received so far
  std::string address_;                    // counted for the limit per address; empty: not counted
  boost::asio::steady_timer queue_timer_;  // limits the wait of deliveries that have not begun
  Patience patience_;
};

template <class What>
void Connection::finish_task(std::shared_ptr<Connection> self, What what) {
  MemoryPatience patient;
  post_finished(std::make_shared<Finished>(std::move(self), std::move(what)));
}

template <class Do>
void Connection::safely(Do what) {
  try {
    what();
  } catch (const std::exception& e) {
    fail_with(e.what());
  } catch (...) {
    fail_with("unknown exception");
  }
}

}  // namespace twinloft::lmtpd
