// One LMTP connection as a state machine, without I/O (RFC 2033).
//
//   idle ──LHLO──▶ ready ──MAIL──▶ envelope ──RCPT──▶ (look-up) ──▶ envelope ──DATA──▶ body ──"."──▶
//   delivering ─▶ ready
//                                                                   envelope ──BDAT──▶ chunk ──last byte──▶
//                                                                   envelope
//                                                                                      chunk, LAST ──────▶
//                                                                                      delivering
//   idle, ready ──STARTTLS──▶ handshake ──tls_started()──▶ idle
//
// If TLS is required, only LHLO, NOOP, QUIT and STARTTLS are accepted without it (RFC 3207 section 4). After
// the handshake, everything that the client has sent in clear is discarded (section 4.2): its name, and the
// attributes of XCLIENT.
//
// The owner calls an event function, then performs the result of take_actions() in its order. Replies are
// strictly in the order of the commands: while a look-up or deliveries are pending, input is kept, and not
// processed. So a client may send ahead, as PIPELINING (RFC 2920) allows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/lmtpd/proto/command.h"
#include "twinloft/lmtpd/proto/data_decoder.h"
#include "twinloft/lmtpd/proto/header_meter.h"
#include "twinloft/lmtpd/session/memory_budget.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

struct SessionConfig {
  std::string hostname;
  std::uint64_t message_bytes_max = 50u << 20;
  std::uint64_t header_bytes_max = 1u << 20;  // a longer header: 552 5.3.4 for each recipient, at the
                                              // message's end
  std::uint32_t recipients_max = 1000;
  std::uint32_t bad_commands_max = 20;  // since the last complete transaction; then 421 4.7.0
  // Senders and recipients that were refused permanently since the last accepted recipient or complete
  // message. Then 421 4.7.0, between two transactions.
  std::uint32_t refused_max = 100;
  std::string detail_delimiter = "+";   // empty: no detail
  std::function<std::string()> new_id;  // unique names for transactions
  MemoryBudget* memory = nullptr;       // for envelopes; outlives them. Null: no bound. Where it is used up:
                                        // 452 4.3.1 for a recipient
  // The refusal of this sender and recipient by the user's agent. null: none.
  std::function<std::optional<Reply>(const Envelope&, const Recipient&)> agent_refusal = {};
  std::function<bool(const User&)> takes_utf8 = {};  // whether that user's address may be beyond ASCII; null:
                                                     // always
};

enum class TlsPolicy { none, offered, required };

// The properties of a client before its first command.
struct Client {
  std::string address;         // numeric, or "unix"
  bool may_speak_for = false;  // it may use XCLIENT and XFORWARD
  TlsPolicy tls = TlsPolicy::none;
};

// A refusal, for the log.
struct Refusal {
  enum class What { sender, recipient, message, connection };
  What what = What::recipient;
  std::string id;      // of the transaction; empty: no transaction
  std::string client;  // the client's address
  std::string from;
  std::string to;  // a message's first recipient
  Reply reply;
};

struct Actions {
  std::string send;  // bytes to the client
  std::vector<Refusal> refused;
  bool begin_body = false;  // a message starts; `body_size_hint` is what SIZE announced, or 0
  std::uint64_t body_size_hint = 0;
  std::vector<ByteSpan> body;  // its next bytes; valid until the next event
  bool abort_body = false;     // forget the message: too large, or the owner said so, or the client left
  std::optional<LookupRequest> lookup;      // answer with lookup_done()
  std::shared_ptr<const Envelope> deliver;  // answer with delivery_done() for each recipient, in any order
  bool start_tls = false;  // after `send` went out; then tls_started(), or the connection's end
  bool close = false;      // after `send` went out
};

class Session {
 public:
  explicit Session(const SessionConfig& config) : config_(config) {}

  void start(Client client);  // greeting; before every other event
  void receive(ByteSpan bytes);
  void lookup_done(LookupResult found);
  // The message cannot be stored (memory, disk). The rest of it is skipped, and every recipient gets this
  // reply.
  void body_failed(const Reply& reply);
  void delivery_done(std::size_t recipient, const Reply& reply);
  // The handshake has succeeded. how: for Received, such as "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384".
  // Input that was sent in clear is discarded (RFC 3207 section 4.2, CVE-2011-0411).
  void tls_started(std::string how);
  // As idle_timeout(), for a client that sends, but has taken too long for a message.
  void transaction_timeout();
  void idle_timeout();  // 421 4.4.2; nothing where a look-up or deliveries, and not the client, are waited
                        // for
  // The server stops: 421 4.3.2, at once if nothing is pending, otherwise after the replies of the present
  // transaction.
  void shutdown();
  // Another server process takes over, and this one may wait: 421 4.3.2 as soon as no transaction is open.
  void drain();
  // The server stops now, without waiting for pending work: 421 4.3.2. Answer deliveries in flight before.
  void abort();

  Actions take_actions();

  // How many bytes to read from the socket now. 0: none, since answers are pending and enough input is
  // waiting, or replies must be sent first. More bytes are accepted too, and kept.
  std::size_t wants() const;
  bool wants_input() const { return wants() > 0; }
  // Whether processing has stopped within the input, until the client has read the many replies so far.
  bool holds_back() const { return holds_back_; }
  // All replies so far were sent. Continues if holds_back().
  void replies_sent();
  // True while the session waits for the client, and not for the server: the idle timeout runs.
  bool waits_for_client() const {
    return state_ != State::lookup && state_ != State::delivering && state_ != State::closed;
  }
  // A unique number of the present transaction. 0: none.
  std::uint64_t transaction() const { return have_sender_ ? transactions_ : 0; }
  bool has_begun_any() const { return transactions_ > 0; }
  // Whether the client's last input, after pending input, is QUIT. If the client then shuts its side, it has
  // not left, and still waits for the replies.
  bool has_quit_ahead() const;
  bool in_handshake() const { return state_ == State::handshake; }
  bool closed() const { return state_ == State::closed; }
  std::size_t input_memory() const { return waiting_.capacity(); }  // bytes held for input, used or not

 private:
  enum class State { command, lookup, body, chunk, delivering, handshake, closed };
  static constexpr std::size_t waiting_input_max = 16 * 1024;    // bytes kept while answers are pending
  static constexpr std::size_t message_input_max = 64 * 1024;    // of a message at once; what a client sends
                                                                 // ahead behind its end is kept
  static constexpr std::size_t replies_at_once_max = 16 * 1024;  // bytes, before the next command is looked
                                                                 // at
  static constexpr std::size_t waiting_memory_max = 4 * 1024;    // that a session without kept input holds

  void process(ByteSpan& in);
  bool take_line(ByteSpan& in);
  bool refuse_line(ByteSpan& in, std::string_view why);
  bool skip_line(ByteSpan& in);
  void take_body(ByteSpan& in);
  void take_chunk(ByteSpan& in);
  void chunk_complete();
  void begin_body();
  void drop_body();
  void execute(std::string_view line);
  static Reply starttls_first();
  template <class C>
  void demand_tls(const C& c);
  void on(const Lhlo& c);
  void on(const Mail& c);
  void on(const Rcpt& c);
  void on(const Data& c);
  void on(const Bdat& c);
  void on(const StartTls& c);
  void on(const Xclient& c);
  void on(const Xforward& c);
  void on(const Rset& c);
  void on(const Noop& c);
  void on(const Help& c);
  void on(const Quit& c);
  void on(const Vrfy& c);
  void body_complete();
  void reply(int code, std::string_view enhanced, std::string_view text);
  void reply(const Reply& r);
  void bad(const Reply& r);
  void no_sender();
  static Reply mail_first();
  static Reply chunks_first();
  void refuse(Refusal::What what, std::string_view address, const Reply& r);
  void tell_refusal(Refusal::What what, std::string_view address, const Reply& r);
  bool refused_too_much();
  bool lacks_tls() const { return client_.tls == TlsPolicy::required && tls_.empty(); }
  void within_chunks();
  Reply too_large() const;
  void look_at_body(std::size_t first_piece);
  void finish_transaction();
  void reset_transaction();
  void greet();
  void end_silently();
  void close_with(int code, std::string_view enhanced, std::string_view text);
  void leave();
  void leave_if_drained();
  void resume();
  void forget_waiting();

  const SessionConfig& config_;
  Client client_;
  std::string client_name_, client_helo_;  // of XCLIENT
  std::string peer_address_;               // of the connection itself, without XCLIENT
  std::string tls_;                        // the protocol and cipher; empty: no TLS
  Origin origin_;                          // of XFORWARD, for the next message
  State state_ = State::command;
  bool greeted_ = false;  // LHLO was given
  bool have_sender_ = false;
  std::uint64_t transactions_ = 0;  // begun
  bool mail_refused_ = false;       // the next commands of a pipelining client are no bad commands
  bool shutting_down_ = false;
  bool draining_ = false;
  bool skipping_line_ = false;  // a refused line, up to its CRLF
  bool skipped_cr_ = false;     // the last skipped byte is a CR
  std::uint32_t bad_commands_ = 0;
  std::uint32_t refused_ = 0;             // permanently, one after the other
  std::uint32_t refused_recipients_ = 0;  // of this transaction
  std::string lhlo_;
  struct ChargedEnvelope : Envelope {
    MemoryCharge memory;
  };
  std::optional<Reply> refusal_of(const User& user) const;
  std::optional<Reply> refusal_of(const Resolved& found) const;
  static Reply database_away();
  static Reply failed_lookup(const Error& error);
  void accept();
  bool charge_for(const Recipient& recipient);
  std::shared_ptr<ChargedEnvelope> envelope_;
  Recipient pending_;  // the recipient being looked up
  std::uint64_t announced_size_ = 0;
  bool has_body_ = false;  // a message has begun, and its transaction has not ended
  std::uint64_t body_bytes_ = 0;
  std::optional<Reply> body_refusal_;   // every recipient's reply to a body that was abandoned
  bool refusal_told_ = false;           // it was sent as the reply to a chunk
  Bdat chunk_;                          // the present chunk, with its remaining size
  std::optional<Reply> chunk_refusal_;  // the chunk is skipped, and gets this reply
  DataDecoder decoder_;
  HeaderMeter header_;
  std::vector<std::optional<Reply>> results_;
  std::size_t results_missing_ = 0;
  bool holds_back_ = false;
  std::size_t replies_unsent_ = 0;  // bytes taken by the owner, without those in actions_
  std::vector<std::byte> waiting_;  // input that was not processed yet
  std::size_t waiting_begin_ = 0;
  Actions actions_;
};

}  // namespace twinloft::lmtpd
