// One client: carries bytes between its socket and its Session, and does what the session asks for.
//
// Lives on its loop's thread. It is gone (Loop::remove) once its socket is closed and no look-up or delivery of
// it is under way.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>
#include <vector>

#include "body_store.h"
#include "hub.h"
#include "transaction.h"
#include "wire.h"
#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/session/session.h"

namespace twinloft::lmtpd {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Loop& loop, NewConnection fresh);

  void start();
  void stop();     // the server leaves
  // Another one has taken over: leaves where the client has been silent for so long; `now`: as soon as no transaction is open.
  void drain(Duration silent, bool now);
  void abort();    // its deliveries are not waited for
  void abandon();  // at once, whatever is waited for

 private:
  enum class Phase {
    proxied,    // the PROXY protocol's header is to come first
    open,
    closing,    // what is in out_ goes, then our end is shut
    lingering,  // waits for the client's end, so that a reset does not take the last reply away
    closed,
  };

  void perform();  // until the session asks for nothing more, then flush()
  bool perform_once();
  bool take_body(Actions& actions);
  void store(std::string chunk);
  void stored(const std::shared_ptr<BodyStore>& body, const Status& kept);
  void lose_body(const Error& error);
  void look_up(LookupRequest request);
  static void look_for_room(std::shared_ptr<Connection> self, LookupRequest request, LookupResult found);
  static void finish_lookup(std::shared_ptr<Connection> self, LookupResult found);
  void looked_up(LookupResult found);
  void deliver(std::shared_ptr<const Envelope> envelope);
  void delivered(const std::vector<Reply>& replies);
  bool client_has_left() const;
  void give_up_waiting();

  void greet(const sockaddr_storage& client);
  void take_proxy_header(std::string_view bytes);
  void begin_tls();
  void go_on_with_handshake();

  void flush();
  void wait_readable();
  void on_readable();
  bool read_once();
  void take_input(std::string_view bytes);
  void wait_writable();
  void all_sent();
  void go_on_with_input();
  void linger();
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
  std::string proxy_header_;  // as much of it as has come
  std::string address_;  // that counts for the limit by address; empty: none does
  std::uint64_t transaction_seen_ = 0;  // Session::transaction()
  Instant transaction_began_{};
  bool tls_asked_for_ = false;  // the reply to STARTTLS goes first
  std::string out_;
  std::size_t sent_ = 0;  // of out_
  bool reading_ = false;  // a wait for input is under way
  bool writing_ = false;  // likewise for room to write
  bool input_ended_ = false;
  bool stopping_ = false;     // the server leaves
  std::size_t under_way_ = 0;  // look-ups, transactions and parts of bodies
  bool looking_up_ = false;    // on a worker thread
  std::shared_ptr<BodyStore> body_;
  bool storing_ = false;       // a part of the body, on a worker thread; nothing is read meanwhile
  std::shared_ptr<const Envelope> stored_first_;  // to be delivered once the body is stored
  std::shared_ptr<Transaction> transaction_;  // whose deliveries are under way
  boost::asio::steady_timer queue_timer_;     // of its deliveries that have not begun
  Instant last_progress_;
};

}  // namespace twinloft::lmtpd
