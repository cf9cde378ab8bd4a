#include "twinloft/lmtpd/session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "twinloft/base/utf8.h"
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

namespace {
constexpr std::size_t queued_bytes = 512;
}

// The two lists are swapped, so that a command allocates no list. The memory of a burst of refusals is freed.
void Session::take_actions(Actions& out) {
  replies_unsent_ += std::exchange(replies_pending_, 0);
  out.clear();
  if (out.capacity() > actions_kept_max) Actions().swap(out);
  out.swap(actions_);
}

// ---- replies

// Appends to the last action if that is SendBytes, to save a write.
template <class Append>
void Session::send(Append append) {
  if (actions_.empty() || !std::holds_alternative<SendBytes>(actions_.back()))
    actions_.emplace_back(SendBytes{});
  std::string& bytes = std::get<SendBytes>(actions_.back()).bytes;
  const std::size_t before = bytes.size();
  append(bytes);
  replies_pending_ += bytes.size() - before;
}

void Session::reply(const Reply& r) {
  send([&](std::string& bytes) { append_reply(bytes, r); });
}
void Session::reply(int code, std::string_view enhanced, std::string_view text) {
  send([&](std::string& bytes) { append_reply(bytes, code, enhanced, text); });
}

// A client that sends only bad commands loses its connection.
void Session::bad(const Reply& r) {
  reply(r);
  if (++bad_commands_ >= config_.bad_commands_max) close_with(421, "4.7.0", "Too many bad commands");
}

void Session::tell_refusal(Refused::What what, std::string_view address, const Reply& r) {
  Refused out{what, {}, client_address(), {}, {}, r};
  if (transaction_ && what != Refused::What::sender) {
    out.id = transaction_->envelope->id;
    out.from = transaction_->envelope->from;
  }
  (what == Refused::What::sender ? out.from : out.to) = address;
  actions_.emplace_back(std::move(out));
}

// At MAIL or RCPT.
void Session::refuse(Refused::What what, std::string_view address, const Reply& r) {
  tell_refusal(what, address, r);
  if (r.code >= 500) ++refused_;
  if (what == Refused::What::recipient) ++refused_recipients_;
  reply(r);
}

// Checked between two transactions only: there an MTA loses nothing, and opens another connection for the
// next message.
bool Session::refused_too_much() {
  if (refused_ < config_.refused_max) return false;
  close_with(421, "4.7.0", "Too many refused senders and recipients");
  return true;
}

void Session::close_with(int code, std::string_view enhanced, std::string_view text) {
  if (is<Closed>()) return;
  if (code == 421 && enhanced != "4.3.2")
    tell_refusal(Refused::What::connection, {}, make_reply(code, enhanced, text));
  if (!is<Delivering>()) drop_message();
  reply(code, enhanced, text);
  end_silently();
}

// During the handshake no reply can be sent: clear text has ended, and TLS has not begun.
void Session::end_silently() {
  state_ = Closed{};
  holds_back_ = false;
  actions_.emplace_back(Close{});
}

void Session::start(Client client) {
  client_ = std::move(client);
  greet();
}
void Session::greet() {
  reply(make_reply(220, "", config_.hostname + " Twinloft LMTP"));
}

void Session::idle_timeout() {
  if (is<InHandshake>()) return end_silently();
  if (waits_for_client()) close_with(421, "4.4.2", "Idle for too long");
}

void Session::transaction_timeout() {
  if (transaction_ && waits_for_client()) close_with(421, "4.4.2", "The message takes too long");
}

void Session::leave() {
  close_with(421, "4.3.2", "The server is being stopped");
}

void Session::shutdown() {
  leaving_ = Leaving::when_nothing_is_pending;
  if (is<InHandshake>()) return end_silently();
  if (waits_for_client()) leave();
}

void Session::abort() {
  if (is<InHandshake>()) return end_silently();
  leave();
}

void Session::drain() {
  leaving_ = std::max(leaving_, Leaving::between_transactions);
  leave_if_drained();
}

// No reply can be sent in a handshake or in a chunk that is skipped. The next command line is awaited first.
void Session::leave_if_drained() {
  if (leaving_ != Leaving::no && is<AtCommand>() && !transaction_) leave();
}

// The commands accepted in clear text while TLS is required. BDAT is among them because its data must be
// skipped before it is refused.
template <class C>
constexpr bool in_clear_too = std::is_same_v<C, Lhlo> || std::is_same_v<C, StartTls> ||
                              std::is_same_v<C, Noop> || std::is_same_v<C, Quit> || std::is_same_v<C, Bdat>;

void Session::execute(std::string_view line) {
  auto command = parse_command(line);
  if (!command) {
    if (is_mail(line)) mail_refused_ = !transaction_;
    if (is_mail(line) && mail_refused_) refused_recipients_ = 0;
    if (is_mail(line) || is_rcpt(line))
      tell_refusal(is_mail(line) ? Refused::What::sender : Refused::What::recipient, line, command.error());
    bad(command.error());
    // Data and commands that follow cannot be told apart, so the connection closes.
    if (is_bdat(line))
      close_with(421, "4.5.4", "BDAT without a valid size: cannot separate its data from commands");
    return;
  }
  std::visit(
      [this]<class C>(const C& c) {
        if constexpr (!in_clear_too<C>)
          if (lacks_tls()) return demand_tls(c);
        on(c);
      },
      *command);
}

Reply Session::starttls_first() {
  return make_reply(530, "5.7.0", "Say STARTTLS first");
}

template <class C>
void Session::demand_tls(const C& c) {
  if (refused_too_much()) return;
  if constexpr (std::is_same_v<C, Mail>)
    return refuse(Refused::What::sender, c.from.text, starttls_first());
  else if constexpr (std::is_same_v<C, Rcpt>)
    return refuse(Refused::What::recipient, c.to.text, starttls_first());
  ++refused_;
  reply(starttls_first());
}

// ---- commands

void Session::on(const Lhlo& c) {
  reset_transaction();
  said_.origin = {};
  said_.lhlo = c.domain;
  std::vector<std::string> offered = {config_.hostname, "PIPELINING", "ENHANCEDSTATUSCODES",
                                      "8BITMIME",       "CHUNKING",   "SMTPUTF8"};
  if (client_.tls != TlsPolicy::none && tls_.empty()) offered.push_back("STARTTLS");
  bool may_speak_for = client_.may_speak_for && !lacks_tls();
  if (may_speak_for) offered.push_back("XCLIENT NAME ADDR PORT PROTO HELO LOGIN");
  if (may_speak_for) offered.push_back("XFORWARD NAME ADDR PORT PROTO HELO IDENT SOURCE");
  offered.push_back(fmt::format("SIZE {}", config_.message_bytes_max));
  send([&](std::string& bytes) { append_reply_lines(bytes, 250, offered); });
}

void Session::on(const Mail& c) {
  mail_refused_ = !transaction_;  // until it is accepted
  if (mail_refused_) refused_recipients_ = 0;
  if (refused_too_much()) return;
  if (!said_.lhlo || transaction_) {
    Reply out_of_order = make_reply(503, "5.5.1",
                                    said_.lhlo ? "A transaction is open already" : "Say LHLO first");
    tell_refusal(Refused::What::sender, c.from.text, out_of_order);
    return bad(out_of_order);
  }
  if (c.size && *c.size > config_.message_bytes_max)
    return refuse(Refused::What::sender, c.from.text, too_large());
  auto envelope = std::make_shared<ChargedEnvelope>();
  envelope->id = config_.new_id();
  envelope->from = c.from.text;
  envelope->lhlo = said_.client_helo.empty() ? *said_.lhlo : said_.client_helo;
  envelope->client = client_address();
  envelope->client_name = said_.client_name;
  envelope->tls = tls_;
  envelope->origin = said_.origin;
  envelope->body_8bitmime = c.body_8bitmime;
  envelope->smtputf8 = c.smtputf8;
  envelope->ret = c.ret;
  envelope->envelope_id = c.envelope_id;
  Transaction fresh{std::move(envelope), c.size.value_or(0)};
  if (!config_.has_filters) return begin_transaction(std::move(fresh));
  FilterMail question{fresh.envelope, filter_client(), fresh.announced_size};
  ask<Beginning>(FilterCommand(std::move(question))).transaction = std::move(fresh);
}

void Session::begin_transaction(Transaction&& fresh) {
  transaction_ = std::move(fresh);
  ++transactions_;
  mail_refused_ = false;
  reply(250, "2.1.0", "Ok");
}

// RCPT or DATA outside of a transaction.
void Session::no_sender() {
  if (mail_refused_)
    reply(mail_first());
  else
    bad(mail_first());
}
Reply Session::mail_first() {
  return make_reply(503, "5.5.1", "MAIL comes first");
}

Reply Session::too_large() const {
  return make_reply(552, "5.3.4", fmt::format("Message larger than {} bytes", config_.message_bytes_max));
}

// RFC 3030 section 2: chunks follow one another until the last, or RSET.
Reply Session::chunks_first() {
  return make_reply(503, "5.5.1", "A message in chunks is open: send BDAT or RSET");
}
void Session::within_chunks() {
  bad(chunks_first());
}

void Session::on(const Rcpt& c) {
  if (!transaction_ || transaction_->message)
    tell_refusal(Refused::What::recipient, c.to.text, transaction_ ? chunks_first() : mail_first());
  if (!transaction_) {
    // More recipients than a message can have: a pipelining client does not send that many before it reads
    // the reply to MAIL.
    if (mail_refused_ && ++refused_recipients_ > config_.recipients_max) return bad(mail_first());
    return no_sender();
  }
  if (transaction_->message) return within_chunks();
  if (transaction_->envelope->recipients.size() >= config_.recipients_max ||
      refused_recipients_ >= config_.recipients_max)
    return refuse(Refused::What::recipient, c.to.text, make_reply(452, "4.5.3", "Too many recipients"));
  auto& pending = ask<Recipient>(lookup_of(c.to, config_.recipients));
  name_recipient(c.to, config_.recipients, pending);
  pending.original_to = c.original_to;
  pending.original_type = c.original_type;
  pending.notify = c.notify;
}

// ---- questions

// Returns the empty subject of the question for the caller to fill. It is made in place, because moving a
// Recipient moves a dozen strings.
template <class About, class Kind>
About& Session::ask(Kind&& question) {
  actions_.emplace_back(std::in_place_type<Ask>, ++questions_, std::forward<Kind>(question));
  return state_.emplace<Asking>(questions_).subject.template emplace<About>();
}

// If the question is not open, the client has disconnected or the server is stopping.
void Session::answer(QuestionId id, Answer&& given) {
  Asking* asking = in<Asking>();
  if (!asking || asking->id != id) return;
  Subject subject = std::move(asking->subject);
  state_.emplace<AtCommand>();
  std::visit([this](auto& about, auto& found) { go_on(std::move(about), std::move(found)); }, subject, given);
  if (is<Asking>()) return;  // the answer led to another question
  if (leaving_ == Leaving::when_nothing_is_pending) return leave();
  resume();
}

WayRefuses Session::refusal_by_way(const Recipient& pending) const {
  if (!config_.agent_refusal) return {};
  return [this, &pending] { return config_.agent_refusal(*transaction_->envelope, pending); };
}

void Session::go_on(Recipient&& pending, LookupResult&& found) {
  JudgedUser judged = judge_user(pending, std::move(found), transaction_->announced_size, config_.recipients,
                                 refusal_by_way(pending));
  if (MailboxQuestion* question = std::get_if<MailboxQuestion>(&judged))
    ask<WithUser>(std::move(*question)).recipient = std::move(pending);
  else if (const Refuse* no = std::get_if<Refuse>(&judged))
    refuse_recipient(std::move(pending), no->reply);
  else
    accept(std::move(pending));
}

void Session::go_on(WithUser&& pending, MailboxState&& mailbox) {
  Recipient& recipient = pending.recipient;
  Verdict verdict = judge_mailbox(recipient, mailbox, config_.recipients, refusal_by_way(recipient));
  if (const Refuse* no = std::get_if<Refuse>(&verdict))
    refuse_recipient(std::move(recipient), no->reply);
  else
    accept(std::move(recipient));
}

void Session::refuse_recipient(Recipient&& pending, const Reply& reply) {
  if (!config_.has_filters) return refuse(Refused::What::recipient, pending.text, reply);
  Judged& judged = ask<Judged>(FilterCommand(filter_rcpt(pending, true)));
  judged.refusal = reply;
  judged.recipient = std::move(pending);
}

void Session::accept(Recipient&& recipient) {
  if (!charge_for(recipient))
    return refuse(Refused::What::recipient, recipient.text,
                  make_reply(452, "4.3.1", "No memory for more recipients now, try again later"));
  if (!config_.has_filters) return take_recipient(std::move(recipient));
  ask<Judged>(FilterCommand(filter_rcpt(recipient, false))).recipient = std::move(recipient);
}

void Session::take_recipient(Recipient&& recipient) {
  refused_ = 0;
  transaction_->envelope->recipients.push_back(std::move(recipient));
  reply(250, "2.1.5", "Ok");
}

// Charges the memory that the recipient needs until its reply is sent, including the queue of deliveries.
bool Session::charge_for(const Recipient& r) {
  std::size_t bytes = sizeof r + reply_line_bytes_max + queued_bytes;
  for (const std::string* text :
       {&r.text, &r.local_part, &r.detail, &r.domain, &r.original_to, &r.original_type, &r.notify,
        &r.user.name, &r.user.home, &r.user.maildir, &r.user.agent})
    bytes += text->capacity();
  return transaction_->envelope->memory.add(config_.memory, bytes);
}

void Session::on(const Data&) {
  if (!transaction_) {
    no_sender();
    mail_refused_ = false;  // DATA is the last command that a client pipelines
    return;
  }
  // RFC 2033 section 4.2: replies are per accepted recipient. Not counted as a bad command, because a
  // pipelining client sends DATA before it knows.
  if (transaction_->envelope->recipients.empty()) return reply(503, "5.5.1", "No valid recipients");
  if (transaction_->message) return within_chunks();
  if (config_.has_filters)
    ask<AtData>(FilterCommand(FilterData{}));
  else
    begin_data();
}

void Session::begin_data() {
  state_ = InData{};
  begin_message();
  reply(354, "", "End data with <CR><LF>.<CR><LF>");
}

void Session::begin_message() {
  transaction_->message.emplace();
  actions_.emplace_back(BeginBody{transaction_->announced_size});
}

// A refused chunk is skipped before its reply (RFC 3030 section 2), so that its bytes are not read as
// commands.
void Session::on(const Bdat& c) {
  std::optional<Reply> refusal;
  if (lacks_tls())
    refusal = starttls_first();
  else if (!transaction_)
    refusal = mail_first();
  else if (transaction_->envelope->recipients.empty())
    refusal = make_reply(503, "5.5.1", "No valid recipients");
  if (!refusal && !transaction_->message && config_.has_filters)
    ask<AtChunk>(FilterCommand(FilterData{})).command = c;
  else
    begin_chunk(c, std::move(refusal));
}

void Session::begin_chunk(const Bdat& c, std::optional<Reply> refusal) {
  const bool refused = refusal.has_value();
  state_ = InChunk{c, std::move(refusal)};
  if (!refused && !transaction_->message) begin_message();
  if (!refused && !transaction_->message->refusal &&
      c.size > config_.message_bytes_max - transaction_->message->bytes)
    body_failed(too_large());
  if (c.size == 0) chunk_complete();
}

// Clear text behind STARTTLS is discarded: an attacker on the path may have injected it.
void Session::on(const StartTls&) {
  if (client_.tls == TlsPolicy::none) return bad(make_reply(502, "5.5.1", "TLS is not configured"));
  if (!tls_.empty()) return bad(make_reply(503, "5.5.1", "TLS is in use already"));
  if (transaction_) return bad(make_reply(503, "5.5.1", "A transaction is open: STARTTLS comes before MAIL"));
  reply(220, "2.0.0", "Begin the handshake");
  state_ = InHandshake{};
  actions_.emplace_back(BeginTls{});
}

void Session::tls_started(std::string how) {
  if (!is<InHandshake>()) return;
  state_ = AtCommand{};
  tls_ = std::move(how);
  said_ = {};
  reset_transaction();
  if (leaving_ == Leaving::when_nothing_is_pending) leave();
  leave_if_drained();
}

// XCLIENT starts a new session for another client.
void Session::on(const Xclient& c) {
  if (!client_.may_speak_for) return bad(make_reply(550, "5.7.0", "XCLIENT is not allowed for this client"));
  if (transaction_) return bad(make_reply(503, "5.5.1", "A transaction is open: XCLIENT comes before MAIL"));
  if (c.address) said_.address = c.address->empty() ? std::nullopt : c.address;
  if (c.name) said_.client_name = *c.name;
  if (c.helo) said_.client_helo = *c.helo;
  if (c.port) said_.client_port = *c.port;
  said_.lhlo.reset();
  said_.origin = {};
  greet();
}

void Session::on(const Xforward& c) {
  if (!client_.may_speak_for) return bad(make_reply(550, "5.7.0", "XFORWARD is not allowed for this client"));
  if (transaction_) return bad(make_reply(503, "5.5.1", "A transaction is open: XFORWARD comes before MAIL"));
  for (auto [from, to] : {std::pair(&c.name, &said_.origin.name),
                          {&c.address, &said_.origin.address},
                          {&c.port, &said_.origin.port},
                          {&c.helo, &said_.origin.helo},
                          {&c.ident, &said_.origin.ident}})
    if (*from) *to = **from;
  reply(250, "2.0.0", "Ok");
}

void Session::on(const Rset&) {
  said_.origin = {};
  reset_transaction();
  if (refused_too_much()) return;
  reply(250, "2.0.0", "Ok");
}
void Session::on(const Noop&) {
  reply(250, "2.0.0", "Ok");
}
void Session::on(const Help&) {
  reply(214, "2.0.0", "LHLO MAIL RCPT DATA BDAT RSET NOOP VRFY QUIT; see RFC 2033");
}
void Session::on(const Vrfy&) {
  reply(252, "2.5.0", "Cannot verify here: RCPT shows whether a recipient exists");
}
void Session::on(const Quit&) {
  close_with(221, "2.0.0", "Bye");
}

}  // namespace twinloft::lmtpd
