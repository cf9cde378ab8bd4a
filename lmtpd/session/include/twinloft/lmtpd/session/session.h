// One LMTP connection as a state machine, without I/O (RFC 2033).
//
//   idle ──LHLO──▶ ready ──MAIL──▶ envelope ──RCPT──▶ asking ──answer()──▶ envelope
//   envelope ──DATA──▶ body ──"."──▶ delivering ──delivery_done() of all──▶ ready
//   envelope ──BDAT──▶ chunk ──last byte──▶ envelope
//   envelope ──BDAT LAST──▶ chunk ──last byte──▶ delivering
//   idle, ready ──STARTTLS──▶ handshake ──tls_started()──▶ idle
//
// If TLS is required, only LHLO, NOOP, QUIT and STARTTLS are accepted without it (RFC 3207 section 4). After
// the handshake, everything that the client has sent in clear is discarded (section 4.2): its name, and the
// attributes of XCLIENT.
//
// The owner calls an event function, then performs the list of take_actions() in its order. Replies are
// strictly in the order of the commands: while a question or deliveries are pending, input is kept, and not
// processed. So a client may send ahead, as PIPELINING (RFC 2920) allows.
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
#include "twinloft/lmtpd/policy/judge.h"
#include "twinloft/lmtpd/proto/command.h"
#include "twinloft/lmtpd/proto/data_decoder.h"
#include "twinloft/lmtpd/proto/header_meter.h"
#include "twinloft/lmtpd/session/actions.h"
#include "twinloft/lmtpd/session/kept_input.h"
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
  OverQuota over_quota = OverQuota::reject;
  // Whether that user's mailbox is to be looked at before a message; null: none is.
  std::function<bool(const User&)> has_limits = {};
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

class Session {
 public:
  explicit Session(const SessionConfig& config) : config_(config) {}

  void start(Client client);  // greeting; before every other event
  void receive(ByteSpan bytes);
  // The answer to the question of that number. Ignored if that question is not open.
  void answer(QuestionId id, Answer&& given);
  // The message cannot be stored (memory, disk). The rest of it is skipped, and every recipient gets this
  // reply.
  void body_failed(const Reply& reply);
  void delivery_done(std::size_t recipient, const Reply& reply);
  // The handshake has succeeded. how: for Received, such as "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384".
  // Input that was sent in clear is discarded (RFC 3207 section 4.2, CVE-2011-0411).
  void tls_started(std::string how);
  // As idle_timeout(), for a client that sends, but has taken too long for a message.
  void transaction_timeout();
  void idle_timeout();  // 421 4.4.2; nothing where a question or deliveries, and not the client, are waited
                        // for
  // The server stops: 421 4.3.2, at once if nothing is pending, otherwise after the replies of the present
  // transaction.
  void shutdown();
  // Another server process takes over, and this one may wait: 421 4.3.2 as soon as no transaction is open.
  void drain();
  // The server stops now, without waiting for pending work: 421 4.3.2. Answer deliveries in flight before.
  void abort();

  // What the owner has to do, in this order. out: its items are removed first. Its memory is used again.
  void take_actions(Actions& out);

  // How many bytes to read from the socket now. 0: none, since answers are pending and enough input is
  // waiting, or replies must be sent first. More bytes are accepted too, and kept.
  std::size_t wants() const;
  bool wants_input() const { return wants() > 0; }
  // Whether processing has stopped within the input, until the client has read the many replies so far.
  bool holds_back() const { return holds_back_; }
  // All replies so far were sent. Continues if holds_back().
  void replies_sent();
  // True while the session waits for the client, and not for the server: the idle timeout runs.
  bool waits_for_client() const { return !is<Asking>() && !is<Delivering>() && !is<Closed>(); }
  // A unique number of the present transaction. 0: none.
  std::uint64_t transaction() const { return transaction_ ? transactions_ : 0; }
  bool has_begun_any() const { return transactions_ > 0; }
  // Whether the client's last input, after pending input, is QUIT. If the client then shuts its side, it has
  // not left, and still waits for the replies.
  bool has_quit_ahead() const;
  bool in_handshake() const { return is<InHandshake>(); }
  bool closed() const { return is<Closed>(); }
  std::size_t input_memory() const { return kept_.memory(); }  // bytes held for input, used or not

 private:
  static constexpr std::size_t waiting_input_max = 16 * 1024;    // bytes kept while answers are pending
  static constexpr std::size_t message_input_max = 64 * 1024;    // of a message at once; what a client sends
                                                                 // ahead behind its end is kept
  static constexpr std::size_t replies_at_once_max = 16 * 1024;  // bytes, before the next command is looked
                                                                 // at
  static constexpr std::size_t actions_kept_max = 16;            // that a session has memory for all the time

  struct ChargedEnvelope : Envelope {
    MemoryCharge memory;
  };
  // A message that has begun, and whose transaction has not ended.
  struct Message {
    std::uint64_t bytes = 0;
    HeaderMeter header;
    std::optional<Reply> refusal;  // it was given up, and this is what every recipient gets
    bool refusal_told = false;     // in reply to a chunk
  };
  // From MAIL to the replies after the message, or RSET.
  struct Transaction {
    std::shared_ptr<ChargedEnvelope> envelope;
    std::uint64_t announced_size = 0;
    std::optional<Message> message = {};
  };
  // What the client has said of itself, and of whom it speaks for.
  struct Introduction {
    std::optional<std::string> lhlo = {};     // its name; nullopt: LHLO comes first
    std::optional<std::string> address = {};  // of XCLIENT, as the next two; nullopt: its own counts
    std::string client_name = {}, client_helo = {};
    Origin origin = {};  // of XFORWARD, for the next message
  };

  // What comes next, or is waited for.
  struct AtCommand {};  // its line
  // What is answered with what the owner knows: the recipient of a RCPT, before its user is known and then.
  struct KnownRecipient {
    Recipient recipient;
  };
  using Subject = std::variant<Recipient, KnownRecipient>;
  struct Asking {
    QuestionId id = 0;
    Subject subject = {};
  };
  struct InData {  // up to the dot
    DataDecoder decoder;
  };
  struct InChunk {
    Bdat command;                  // its size: what is left of it
    std::optional<Reply> refusal;  // it is skipped, and this is its reply
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

  // When it leaves by itself.
  enum class Leaving { no, between_transactions, when_nothing_is_pending };
  // The rest of a refused command line, up to its CRLF.
  struct SkippedLine {
    bool cr = false;  // its last byte until now
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
  void go_on(KnownRecipient&& pending, MailboxState&& mailbox);
  // An answer of another kind than its question.
  template <class About, class Given>
  void go_on(const About&, const Given&) {
    throw std::logic_error("the owner's answer is of another kind than the question");
  }
  bool takes_utf8(const User& user) const { return !config_.takes_utf8 || config_.takes_utf8(user); }
  Verdict judge_recipient(const Recipient& pending, Result<const User*> user,
                          const MailboxState* mailbox) const;
  void decide(Recipient&& pending, const Verdict& verdict);
  void accept(Recipient&& recipient);
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
  bool mail_refused_ = false;       // the next commands of a pipelining client are no bad commands
  std::uint32_t bad_commands_ = 0;
  std::uint32_t refused_ = 0;             // permanently, one after the other
  std::uint32_t refused_recipients_ = 0;  // since the last MAIL
  std::optional<SkippedLine> skipped_line_;
  bool holds_back_ = false;
  std::size_t replies_pending_ = 0;  // bytes in actions_
  std::size_t replies_unsent_ = 0;   // bytes taken by the owner
  KeptInput kept_;
  Actions actions_;
};

}  // namespace twinloft::lmtpd
