// One LMTP connection as a state machine, without I/O (RFC 2033).
//
//   idle ──LHLO──▶ ready ──MAIL──▶ envelope ──RCPT──▶ asking ──answer()──▶ envelope
//   envelope ──DATA──▶ body ──"."──▶ delivering ──delivery_done() of all──▶ ready
//   envelope ──BDAT──▶ chunk ──last byte──▶ envelope
//   envelope ──BDAT LAST──▶ chunk ──last byte──▶ delivering
//   MAIL, RCPT, DATA and the first BDAT ask the filters, if there are any: asking ──answer()──▶
//   idle, ready ──STARTTLS──▶ handshake ──tls_started()──▶ idle
//
// If TLS is required, only LHLO, NOOP, QUIT and STARTTLS are accepted in clear text (RFC 3207 section 4). The
// handshake discards everything that the client sent in clear text (section 4.2): its name, and the
// attributes of XCLIENT.
//
// The owner calls an event function, then performs the list of take_actions() in order. Replies are in the
// order of the commands: while a question or deliveries are pending, input is kept and not processed. So a
// client may send commands ahead, as PIPELINING (RFC 2920) allows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/lmtpd/policy/recipient.h"
#include "twinloft/lmtpd/proto/command.h"
#include "twinloft/lmtpd/proto/data_decoder.h"
#include "twinloft/lmtpd/proto/header_meter.h"
#include "twinloft/lmtpd/session/actions.h"
#include "twinloft/lmtpd/session/filtering.h"
#include "twinloft/lmtpd/session/kept_input.h"
#include "twinloft/lmtpd/session/memory_budget.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

struct SessionConfig {
  std::string hostname;
  std::uint64_t message_bytes_max = 50u << 20;
  // A longer header gets 552 5.3.4 for each recipient, at the end of the message.
  std::uint64_t header_bytes_max = 1u << 20;
  std::uint32_t recipients_max = 1000;
  std::uint32_t bad_commands_max = 20;  // since the last complete transaction; then 421 4.7.0
  // Senders and recipients refused permanently since the last accepted recipient or complete message. Beyond
  // the limit: 421 4.7.0, between two transactions.
  std::uint32_t refused_max = 100;
  std::function<std::string()> new_id;  // unique names for transactions
  // For envelopes, which the budget must outlive. Null: no limit. If used up: 452 4.3.1 for a recipient.
  MemoryBudget* memory = nullptr;
  RecipientRules recipients = {};
  bool has_filters = false;  // the session asks them
  // The refusal of this sender and recipient by the user's agent; null: never.
  std::function<std::optional<Reply>(const Envelope&, const Recipient&)> agent_refusal = {};
};

enum class TlsPolicy { none, offered, required };

// The properties of a client before its first command.
struct Client {
  std::string address;         // numeric, or "unix"
  bool may_speak_for = false;  // it may use XCLIENT and XFORWARD
  TlsPolicy tls = TlsPolicy::none;
};

class Session {
 public:
  explicit Session(const SessionConfig& config) : config_(config) {}

  void start(Client client);  // greeting; before every other event
  void receive(ByteSpan bytes);
  // The answer to question `id`. Ignored if this question is not open.
  void answer(QuestionId id, Answer&& given);
  // The message cannot be stored (memory, disk). Its remaining bytes are skipped, and every recipient gets
  // this reply.
  void body_failed(const Reply& reply);
  void delivery_done(std::size_t recipient, const Reply& reply);
  // While deliveries are pending: the connection ends behind their replies. A filter has asked for it.
  void close_after_replies() { closes_after_replies_ = true; }
  // The handshake has succeeded. how: for Received, such as "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384".
  // Input that was sent in clear text is discarded (RFC 3207 section 4.2, CVE-2011-0411).
  void tls_started(std::string how);
  // As idle_timeout(), for a client that sends, but has taken too long for a message.
  void transaction_timeout();
  // 421 4.4.2. No effect while the session waits for a question or for deliveries.
  void idle_timeout();
  // The server stops: 421 4.3.2, at once if nothing is pending, otherwise after the replies of the present
  // transaction.
  void shutdown();
  // Another server process takes over: 421 4.3.2 as soon as no transaction is open.
  void drain();
  // The server stops now, without waiting for pending work: 421 4.3.2. The owner first answers deliveries in
  // flight.
  void abort();

  // The owner's work, in order. The items of `out` are removed first; its memory is reused.
  void take_actions(Actions& out);

  // How many bytes to read from the socket now. 0: enough input waits for pending answers, or replies must be
  // sent first. The session accepts and keeps more bytes too.
  std::size_t wants() const;
  bool wants_input() const { return wants() > 0; }
  // Whether processing has stopped within the input, until the pending replies are sent.
  bool holds_back() const { return holds_back_; }
  // All replies so far were sent. Continues if holds_back().
  void replies_sent();
  // True while the session waits for the client, not for the server. The idle timeout runs only then.
  bool waits_for_client() const { return !is<Asking>() && !is<Delivering>() && !is<Closed>(); }
  // A unique number of the present transaction. 0: none.
  std::uint64_t transaction() const { return transaction_ ? transactions_ : 0; }
  // Of the present transaction: accepted so far.
  std::size_t recipients() const { return transaction_ ? transaction_->envelope->recipients.size() : 0; }
  bool has_begun_any() const { return transactions_ > 0; }
  // Whether the kept input ends with QUIT. A client that closes its sending side after QUIT still waits for
  // the replies.
  bool has_quit_ahead() const;
  bool in_handshake() const { return is<InHandshake>(); }
  bool closed() const { return is<Closed>(); }
  std::size_t input_memory() const { return kept_.memory(); }  // bytes held for input, used or not

 private:
  static constexpr std::size_t waiting_input_max = 16 * 1024;    // bytes kept while answers are pending
  static constexpr std::size_t message_input_max = 64 * 1024;    // bytes of a message per read
  static constexpr std::size_t replies_at_once_max = 16 * 1024;  // unsent bytes that stop processing
  static constexpr std::size_t actions_kept_max = 16;            // items whose memory is never freed

  struct ChargedEnvelope : Envelope {
    MemoryCharge memory;
  };
  // A message that has begun. Its transaction has not ended.
  struct Message {
    Message() {}  // a default one needs the initializers below before the class is complete, says clang
    std::uint64_t bytes = 0;
    HeaderMeter header;
    std::optional<Reply> refusal;  // the message is refused; every recipient gets this reply
    bool refusal_told = false;     // a chunk already got it
  };
  // From MAIL to the replies after the message, or RSET.
  struct Transaction {
    std::shared_ptr<ChargedEnvelope> envelope;
    std::uint64_t announced_size = 0;
    std::optional<Message> message = {};
  };
  // The client's name, and the attributes of the original client that it forwards.
  struct Introduction {
    std::optional<std::string> lhlo = {};     // the client's name; nullopt: no LHLO yet
    std::optional<std::string> address = {};  // from XCLIENT; nullopt: the connection's address counts
    std::string client_name = {}, client_helo = {}, client_port = {};  // from XCLIENT
    Origin origin = {};                                                // from XFORWARD, for the next message
  };

  // The states. Each names the next input, or what the session waits for.
  struct AtCommand {};  // the next command line
  // A recipient whose user is known. The subject of a question is the recipient of a RCPT, without or with
  // its user.
  struct WithUser {
    Recipient recipient;
  };
  // At MAIL: the transaction that begins if the filters accept it.
  struct Beginning {
    Transaction transaction;
  };
  // At RCPT, once the verdict is known. A refused recipient has its reply.
  struct Judged {
    Recipient recipient;
    std::optional<Reply> refusal;
  };
  struct AtData {};
  struct AtChunk {
    Bdat command;
  };
  using Subject = std::variant<Recipient, WithUser, Beginning, Judged, AtData, AtChunk>;
  struct Asking {
    QuestionId id = 0;
    Subject subject = {};
  };
  struct InData {  // up to the final dot
    DataDecoder decoder;
  };
  struct InChunk {
    Bdat command;                  // its size is the number of bytes still to come
    std::optional<Reply> refusal;  // the chunk is skipped and gets this reply
  };
  struct Delivering {
    std::vector<std::optional<Reply>> results;  // by recipient
    std::size_t missing;
  };
  struct InHandshake {};
  struct Closed {};
  using State = std::variant<AtCommand, Asking, InData, InChunk, Delivering, InHandshake, Closed>;
  template <class S>
  bool is() const {
    return std::holds_alternative<S>(state_);
  }
  template <class S>
  S* in() {
    return std::get_if<S>(&state_);
  }

  // When the session closes the connection because the server stops or drains.
  enum class Leaving { no, between_transactions, when_nothing_is_pending };
  // The rest of a refused command line, up to its CRLF.
  struct SkippedLine {
    bool cr = false;  // its last byte so far
  };

  void process(ByteSpan& input);
  bool take_line(ByteSpan& input);
  bool refuse_line(ByteSpan& input, std::string_view why);
  bool skip_line(ByteSpan& input);
  void take_data(ByteSpan& input);
  void take_chunk(ByteSpan& input);
  void chunk_complete();
  void begin_message();
  void drop_message();
  void withhold_body();
  bool has_body_to_pass_on() const;
  std::vector<ByteSpan>& body_pieces();
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
  void message_complete();
  template <class Append>
  void send(Append append);
  void reply(int code, std::string_view enhanced, std::string_view text);
  void reply(const Reply& r);
  void bad(const Reply& r);
  void no_sender();
  static Reply mail_first();
  static Reply chunks_first();
  void refuse(Refused::What what, std::string_view address, const Reply& r);
  void tell_refusal(Refused::What what, std::string_view address, const Reply& r);
  bool refused_too_much();
  bool lacks_tls() const { return client_.tls == TlsPolicy::required && tls_.empty(); }
  bool has_message() const { return transaction_ && transaction_->message; }
  void within_chunks();
  Reply too_large() const;
  void look_at_body(ByteSpan piece);
  void judge_sizes();
  void finish_transaction(std::vector<std::optional<Reply>> results);
  void reset_transaction();
  void greet();
  void end_silently();
  void close_with(int code, std::string_view enhanced, std::string_view text);
  void leave();
  void leave_if_drained();
  void resume();
  template <class About, class Kind>
  About& ask(Kind&& question);
  void go_on(Recipient&& pending, LookupResult&& found);
  void go_on(WithUser&& pending, MailboxState&& mailbox);
  void go_on(Beginning&& pending, FilterVerdict&& verdict);
  void go_on(Judged&& pending, FilterVerdict&& verdict);
  void go_on(AtData&& pending, FilterVerdict&& verdict);
  void go_on(AtChunk&& pending, FilterVerdict&& verdict);
  // An answer whose kind does not match the question.
  template <class About, class Given>
  void go_on(const About&, const Given&) {
    throw std::logic_error("the owner's answer is of another kind than the question");
  }
  WayRefuses refusal_by_way(const Recipient& pending) const;
  FilterClient filter_client() const;
  static FilterRcpt filter_rcpt(const Recipient& recipient, bool refused);
  void begin_transaction(Transaction&& transaction);
  void begin_data();
  void begin_chunk(const Bdat& command, std::optional<Reply> refusal);
  void refuse_recipient(Recipient&& pending, const Reply& reply);
  void accept(Recipient&& recipient);
  void take_recipient(Recipient&& recipient);
  bool close_if_asked(const FilterVerdict& verdict);
  bool charge_for(const Recipient& recipient);
  const std::string& client_address() const { return said_.address ? *said_.address : client_.address; }

  const SessionConfig& config_;
  Client client_;
  std::string tls_;  // the protocol and cipher; empty: no TLS
  Introduction said_;
  State state_;
  Leaving leaving_ = Leaving::no;
  std::optional<Transaction> transaction_;
  std::uint64_t transactions_ = 0;  // begun
  QuestionId questions_ = 0;        // asked
  bool mail_refused_ = false;       // commands that a client pipelined behind MAIL are not counted as bad
  std::uint32_t bad_commands_ = 0;
  std::uint32_t refused_ = 0;             // permanent refusals in a row
  std::uint32_t refused_recipients_ = 0;  // since the last MAIL
  std::optional<SkippedLine> skipped_line_;
  bool holds_back_ = false;
  bool closes_after_replies_ = false;
  std::size_t replies_pending_ = 0;  // bytes in actions_
  std::size_t replies_unsent_ = 0;   // bytes taken by the owner
  KeptInput kept_;
  Actions actions_;
};

}  // namespace twinloft::lmtpd
