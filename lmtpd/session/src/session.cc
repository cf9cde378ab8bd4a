#include "twinloft/lmtpd/session/session.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "twinloft/base/check.h"
#include "twinloft/base/utf8.h"
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

namespace {
constexpr std::size_t queued_bytes = 512;
}

Actions Session::take_actions() {
  replies_unsent_ += actions_.send.size();
  return std::exchange(actions_, Actions{});
}

// Commands in small portions, since what is not looked at is kept; of a chunk nothing is, and of DATA what
// comes behind it.
std::size_t Session::wants() const {
  static_assert(command_line_bytes_max < waiting_input_max,
                "a line that is too long differs from a line that has not ended");
  if (state_ == State::closed || state_ == State::handshake || holds_back_) return 0;
  std::size_t kept = waiting_.size() - waiting_begin_;
  std::size_t room = waiting_input_max - std::min(kept, waiting_input_max);
  if (state_ == State::body && kept == 0) return message_input_max;
  if (state_ == State::chunk && kept == 0)
    return static_cast<std::size_t>(std::min<std::uint64_t>(chunk_.size, message_input_max)) + room;
  return room;
}

void Session::replies_sent() {
  replies_unsent_ = 0;
  if (std::exchange(holds_back_, false)) resume();
}

// ---- replies
// -------------------------------------------------------------------------------------------------------

void Session::reply(const Reply& r) {
  append_reply(actions_.send, r);
}
void Session::reply(int code, std::string_view enhanced, std::string_view text) {
  reply(make_reply(code, enhanced, text));
}

// A client that only ever errs is not worth a connection.
void Session::bad(const Reply& r) {
  reply(r);
  if (++bad_commands_ >= config_.bad_commands_max) close_with(421, "4.7.0", "Too many bad commands");
}

void Session::tell_refusal(Refusal::What what, std::string_view address, const Reply& r) {
  Refusal out{what, {}, client_.address, {}, {}, r};
  if (envelope_ && what != Refusal::What::sender) {
    out.id = envelope_->id;
    out.from = envelope_->from;
  }
  (what == Refusal::What::sender ? out.from : out.to) = address;
  actions_.refused.push_back(std::move(out));
}

// At MAIL or RCPT.
void Session::refuse(Refusal::What what, std::string_view address, const Reply& r) {
  tell_refusal(what, address, r);
  if (r.code >= 500) ++refused_;
  if (what == Refusal::What::recipient) ++refused_recipients_;
  reply(r);
}

// Between two transactions, where an MTA loses nothing by it: it opens another connection for the next
// message.
bool Session::refused_too_much() {
  if (refused_ < config_.refused_max) return false;
  close_with(421, "4.7.0", "Too many refused senders and recipients");
  return true;
}

void Session::close_with(int code, std::string_view enhanced, std::string_view text) {
  if (state_ == State::closed) return;
  if (code == 421 && enhanced != "4.3.2")
    tell_refusal(Refusal::What::connection, {}, make_reply(code, enhanced, text));
  if (state_ != State::delivering) drop_body();
  reply(code, enhanced, text);
  state_ = State::closed;
  holds_back_ = false;
  actions_.close = true;
}

// Where no reply can be sent: TLS has not begun, and clear text has ended.
void Session::end_silently() {
  state_ = State::closed;
  holds_back_ = false;
  actions_.close = true;
}

void Session::start(Client client) {
  client_ = std::move(client);
  peer_address_ = client_.address;
  greet();
}
void Session::greet() {
  reply(make_reply(220, "", config_.hostname + " Twinloft LMTP"));
}

void Session::idle_timeout() {
  if (state_ == State::handshake) return end_silently();
  if (waits_for_client()) close_with(421, "4.4.2", "Idle for too long");
}

void Session::transaction_timeout() {
  if (have_sender_ && waits_for_client()) close_with(421, "4.4.2", "The message takes too long");
}

void Session::leave() {
  close_with(421, "4.3.2", "The server is being stopped");
}

void Session::shutdown() {
  shutting_down_ = true;
  if (state_ == State::handshake) return end_silently();
  if (waits_for_client()) leave();
}

void Session::abort() {
  if (state_ == State::handshake) return end_silently();
  leave();
}

void Session::drain() {
  draining_ = true;
  leave_if_drained();
}

// In a handshake, or in a chunk that is skipped, no reply can be sent: it is the next command's turn.
void Session::leave_if_drained() {
  if (draining_ && state_ == State::command && !have_sender_) leave();
}

// ---- input
// ---------------------------------------------------------------------------------------------------------

void Session::receive(ByteSpan bytes) {
  if (state_ == State::closed || state_ == State::handshake) return;
  bool pending = state_ == State::lookup || state_ == State::delivering;
  if (waiting_begin_ == waiting_.size()) {  // all of it was looked at, and spans into it ended with this
                                            // event
    forget_waiting();
  }
  if (!pending && waiting_.empty()) {
    ByteSpan in = bytes;
    process(in);
    waiting_.assign(in.begin(), in.end());
    return;
  }
  // Compact before growing: what was looked at is of no more use.
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(waiting_begin_));
  waiting_begin_ = 0;
  waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  if (!pending) resume();
}

// Goes on with input that was kept. The spans of body bytes point into it, so it is not moved before the next
// event.
void Session::resume() {
  ByteSpan in = ByteSpan(waiting_).subspan(waiting_begin_);
  if (in.empty() || state_ == State::closed) return;
  process(in);
  waiting_begin_ = waiting_.size() - in.size();
  if (in.empty() && actions_.body.empty()) forget_waiting();
}

bool Session::has_quit_ahead() const {
  constexpr std::string_view quit = "QUIT\r\n";
  std::string_view kept = as_text(ByteSpan(waiting_).subspan(waiting_begin_));
  if (kept.size() < quit.size() ||
      ::strncasecmp(kept.data() + kept.size() - quit.size(), quit.data(), quit.size()) != 0)
    return false;
  kept.remove_suffix(quit.size());
  return kept.empty() || kept.ends_with("\r\n");
}

// One burst must not cost its memory for as long as the connection lives.
void Session::forget_waiting() {
  waiting_.clear();
  waiting_begin_ = 0;
  if (waiting_.capacity() > waiting_memory_max) std::vector<std::byte>().swap(waiting_);
}

void Session::process(ByteSpan& in) {
  holds_back_ = false;
  while (!in.empty()) {
    if (state_ == State::command && replies_unsent_ + actions_.send.size() >= replies_at_once_max) {
      holds_back_ = true;
      return;
    }
    if (state_ == State::handshake)
      in = {};
    else if (state_ == State::body)
      take_body(in);
    else if (state_ == State::chunk)
      take_chunk(in);
    else if (state_ != State::command || !take_line(in))
      return;
    leave_if_drained();
  }
}

// One command line; false: it is not complete yet. Only CR LF ends one (RFC 5321 section 2.3.8): what stands
// behind a bare LF is of the same line, and is never executed.
bool Session::take_line(ByteSpan& in) {
  if (skipping_line_) return skip_line(in);
  const void* found = std::memchr(in.data(), '\n', in.size());
  std::size_t length = found ? static_cast<std::size_t>(static_cast<const std::byte*>(found) - in.data()) + 1
                             : in.size();
  if (length > command_line_bytes_max) return refuse_line(in, "Line too long");
  if (!found) return false;
  std::string_view line = as_text(in.first(length));
  if (!line.ends_with("\r\n")) return refuse_line(in, "A command ends with CRLF, not with LF alone");
  in = in.subspan(length);
  execute(line.substr(0, line.size() - 2));
  return true;
}

// At once, so that a person who types does not wait for nothing; the rest of the line gets no reply.
bool Session::refuse_line(ByteSpan& in, std::string_view why) {
  skipping_line_ = true;
  skipped_cr_ = false;
  bool bdat = is_bdat(as_text(in.first(std::min(in.size(), command_line_bytes_max))));
  bad(make_reply(500, "5.5.2", why));
  if (bdat) close_with(421, "4.5.4", "A BDAT that cannot be read: its data cannot be told from commands");
  return state_ != State::closed && skip_line(in);
}

bool Session::skip_line(ByteSpan& in) {
  while (skipping_line_) {
    const void* found = std::memchr(in.data(), '\n', in.size());
    if (!found) {
      skipped_cr_ = in.empty() ? skipped_cr_ : in.back() == std::byte{'\r'};
      in = {};
      return false;
    }
    auto at = static_cast<std::size_t>(static_cast<const std::byte*>(found) - in.data());
    skipping_line_ = at > 0 ? in[at - 1] != std::byte{'\r'} : !skipped_cr_;
    skipped_cr_ = false;
    in = in.subspan(at + 1);
  }
  return true;
}

// What may be said before a TLS that is required. BDAT is there too, since its data has to be skipped before
// it is refused.
template <class C>
constexpr bool in_clear_too = std::is_same_v<C, Lhlo> || std::is_same_v<C, StartTls> ||
                              std::is_same_v<C, Noop> || std::is_same_v<C, Quit> || std::is_same_v<C, Bdat>;

void Session::execute(std::string_view line) {
  auto command = parse_command(line);
  if (!command) {
    if (is_mail(line)) mail_refused_ = !have_sender_;
    if (is_mail(line) && mail_refused_) refused_recipients_ = 0;
    if (is_mail(line) || is_rcpt(line))
      tell_refusal(is_mail(line) ? Refusal::What::sender : Refusal::What::recipient, line, command.error());
    bad(command.error());
    // Where its data ends, and commands begin, is anybody's guess: what follows is not looked at.
    if (is_bdat(line)) close_with(421, "4.5.4", "BDAT without a size: its data cannot be told from commands");
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
    return refuse(Refusal::What::sender, c.from.text, starttls_first());
  else if constexpr (std::is_same_v<C, Rcpt>)
    return refuse(Refusal::What::recipient, c.to.text, starttls_first());
  ++refused_;
  reply(starttls_first());
}

// ---- commands
// ------------------------------------------------------------------------------------------------------

void Session::on(const Lhlo& c) {
  reset_transaction();
  origin_ = {};
  greeted_ = true;
  lhlo_ = c.domain;
  std::vector<std::string> offered = {config_.hostname, "PIPELINING", "ENHANCEDSTATUSCODES",
                                      "8BITMIME",       "CHUNKING",   "SMTPUTF8"};
  if (client_.tls != TlsPolicy::none && tls_.empty()) offered.push_back("STARTTLS");
  bool may_speak_for = client_.may_speak_for && !lacks_tls();
  if (may_speak_for) offered.push_back("XCLIENT NAME ADDR PORT PROTO HELO LOGIN");
  if (may_speak_for) offered.push_back("XFORWARD NAME ADDR PORT PROTO HELO IDENT SOURCE");
  offered.push_back(fmt::format("SIZE {}", config_.message_bytes_max));
  append_reply_lines(actions_.send, 250, offered);
}

void Session::on(const Mail& c) {
  mail_refused_ = !have_sender_;  // until it is accepted
  if (mail_refused_) refused_recipients_ = 0;
  if (refused_too_much()) return;
  if (!greeted_ || have_sender_) {
    Reply out_of_order = make_reply(503, "5.5.1",
                                    greeted_ ? "A transaction is open already" : "Say LHLO first");
    tell_refusal(Refusal::What::sender, c.from.text, out_of_order);
    return bad(out_of_order);
  }
  if (c.size && *c.size > config_.message_bytes_max)
    return refuse(Refusal::What::sender, c.from.text, too_large());
  envelope_ = std::make_shared<ChargedEnvelope>();
  envelope_->id = config_.new_id();
  envelope_->from = c.from.text;
  envelope_->lhlo = client_helo_.empty() ? lhlo_ : client_helo_;
  envelope_->client = client_.address;
  envelope_->client_name = client_name_;
  envelope_->tls = tls_;
  envelope_->origin = origin_;
  envelope_->body_8bitmime = c.body_8bitmime;
  envelope_->smtputf8 = c.smtputf8;
  envelope_->ret = c.ret;
  envelope_->envelope_id = c.envelope_id;
  have_sender_ = true;
  ++transactions_;
  mail_refused_ = false;
  announced_size_ = c.size.value_or(0);
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
  return make_reply(503, "5.5.1", "A message in chunks is under way: BDAT, or RSET");
}
void Session::within_chunks() {
  bad(chunks_first());
}

void Session::on(const Rcpt& c) {
  if (!have_sender_ || has_body_)
    tell_refusal(Refusal::What::recipient, c.to.text, has_body_ ? chunks_first() : mail_first());
  if (!have_sender_) {
    // More than a message can have, and nobody has sent them ahead of a reply to MAIL.
    if (mail_refused_ && ++refused_recipients_ > config_.recipients_max) return bad(mail_first());
    return no_sender();
  }
  if (has_body_) return within_chunks();
  if (envelope_->recipients.size() >= config_.recipients_max || refused_recipients_ >= config_.recipients_max)
    return refuse(Refusal::What::recipient, c.to.text, make_reply(452, "4.5.3", "Too many recipients"));
  SplitLocalPart split = split_detail(c.to.local_part, config_.detail_delimiter);
  pending_ = Recipient{};
  pending_.text = c.to.text;
  pending_.local_part = split.user;
  pending_.detail = split.detail;
  pending_.domain = c.to.domain;
  pending_.original_to = c.original_to;
  pending_.original_type = c.original_type;
  pending_.notify = c.notify;
  actions_.lookup = LookupRequest{pending_.local_part, pending_.detail, pending_.domain, announced_size_};
  state_ = State::lookup;
}

Reply Session::database_away() {
  return make_reply(451, "4.3.0", "User lookup temporarily unavailable");
}

// A row that is wrong stays so until somebody mends it; the log names it.
Reply Session::failed_lookup(const Error& error) {
  if (error.code != Errc::invalid && error.code != Errc::denied) return database_away();
  return make_reply(451, "4.3.5", "This mailbox is set up wrongly in the user database");
}

// Why a user that there is gets no mail.
std::optional<Reply> Session::refusal_of(const User& user) const {
  if (user.state == UserState::disabled) return make_reply(550, "5.2.1", "This mailbox takes no mail");
  if (user.state == UserState::deferred)
    return make_reply(450, "4.2.1", "This mailbox takes no mail now, try again later");
  if (!is_ascii(pending_.text) && config_.takes_utf8 && !config_.takes_utf8(user))
    return make_reply(553, "5.6.7", "This mailbox takes no mail for addresses beyond ASCII");
  return std::nullopt;
}

// Of the pending recipient.
std::optional<Reply> Session::refusal_of(const Resolved& found) const {
  std::optional<Reply> refusal = refusal_of(pending_.user);
  if (!refusal) refusal = found.refusal;
  if (!refusal && config_.agent_refusal) refusal = config_.agent_refusal(*envelope_, pending_);
  if (refusal && refusal->code >= 500 && pending_.user.is_old) return database_away();
  return refusal;
}

void Session::lookup_done(LookupResult found) {
  if (state_ != State::lookup) return;  // the client is gone, or the server leaves
  state_ = State::command;
  if (!found) {
    refuse(Refusal::What::recipient, pending_.text, failed_lookup(found.error()));
  } else if (!*found) {
    refuse(Refusal::What::recipient, pending_.text, make_reply(550, "5.1.1", "No such user"));
  } else {
    pending_.user = std::move((*found)->user);
    if (config_.takes_utf8 && !is_ascii(pending_.text) && !config_.takes_utf8(pending_.user))
      pending_.text = with_ascii_domain(pending_.text, pending_.domain);
    if ((*found)->detail) pending_.detail = std::move(*(*found)->detail);
    if (auto refusal = refusal_of(**found))
      refuse(Refusal::What::recipient, pending_.text, *refusal);
    else
      accept();
  }
  if (shutting_down_) return leave();
  resume();
}

void Session::accept() {
  if (!charge_for(pending_))
    return refuse(Refusal::What::recipient, pending_.text,
                  make_reply(452, "4.3.1", "No memory for more recipients now, try again later"));
  refused_ = 0;
  envelope_->recipients.push_back(std::move(pending_));
  reply(250, "2.1.5", "Ok");
}

// What it takes until its reply is sent, in the queue of deliveries too.
bool Session::charge_for(const Recipient& r) {
  std::size_t bytes = sizeof r + reply_line_bytes_max + queued_bytes;
  for (const std::string* text :
       {&r.text, &r.local_part, &r.detail, &r.domain, &r.original_to, &r.original_type, &r.notify,
        &r.user.name, &r.user.home, &r.user.maildir, &r.user.agent})
    bytes += text->capacity();
  return envelope_->memory.add(config_.memory, bytes);
}

void Session::on(const Data&) {
  if (!have_sender_) {
    no_sender();
    mail_refused_ = false;  // DATA is the last of what is sent ahead
    return;
  }
  // RFC 2033 section 4.2: without an accepted recipient there would be nobody to reply for. No bad command: a
  // client that pipelines could not know.
  if (envelope_->recipients.empty()) return reply(503, "5.5.1", "No valid recipients");
  if (has_body_) return within_chunks();
  state_ = State::body;
  begin_body();
  decoder_.reset();
  reply(354, "", "End data with <CR><LF>.<CR><LF>");
}

void Session::begin_body() {
  has_body_ = true;
  body_bytes_ = 0;
  header_.reset();
  body_refusal_.reset();
  refusal_told_ = false;
  actions_.begin_body = true;
  actions_.body_size_hint = announced_size_;
}

// A chunk that is refused is skipped before its reply (RFC 3030 section 2), so that nothing in it counts as a
// command.
void Session::on(const Bdat& c) {
  chunk_ = c;
  chunk_refusal_.reset();
  state_ = State::chunk;
  if (lacks_tls())
    chunk_refusal_ = starttls_first();
  else if (!have_sender_)
    chunk_refusal_ = mail_first();
  else if (envelope_->recipients.empty())
    chunk_refusal_ = make_reply(503, "5.5.1", "No valid recipients");
  else if (!has_body_)
    begin_body();
  if (!chunk_refusal_ && !body_refusal_ && chunk_.size > config_.message_bytes_max - body_bytes_)
    body_failed(too_large());
  if (chunk_.size == 0) chunk_complete();
}

// What the client has sent behind it in clear is thrown away: it could be somebody else's, put in on the way.
void Session::on(const StartTls&) {
  if (client_.tls == TlsPolicy::none) return bad(make_reply(502, "5.5.1", "TLS is not configured"));
  if (!tls_.empty()) return bad(make_reply(503, "5.5.1", "TLS is in use already"));
  if (have_sender_) return bad(make_reply(503, "5.5.1", "A transaction is open: STARTTLS comes before MAIL"));
  reply(220, "2.0.0", "Begin the handshake");
  state_ = State::handshake;
  actions_.start_tls = true;
}

void Session::tls_started(std::string how) {
  if (state_ != State::handshake) return;
  state_ = State::command;
  tls_ = std::move(how);
  greeted_ = false;
  lhlo_.clear();
  origin_ = {};
  client_.address = peer_address_;
  client_name_.clear();
  client_helo_.clear();
  reset_transaction();
  if (shutting_down_) leave();
  leave_if_drained();
}

// From here on it is another client's session.
void Session::on(const Xclient& c) {
  if (!client_.may_speak_for) return bad(make_reply(550, "5.7.0", "XCLIENT is not for this client"));
  if (have_sender_) return bad(make_reply(503, "5.5.1", "A transaction is open: XCLIENT comes before MAIL"));
  if (c.address) client_.address = c.address->empty() ? peer_address_ : *c.address;
  if (c.name) client_name_ = *c.name;
  if (c.helo) client_helo_ = *c.helo;
  greeted_ = false;
  lhlo_.clear();
  origin_ = {};
  greet();
}

void Session::on(const Xforward& c) {
  if (!client_.may_speak_for) return bad(make_reply(550, "5.7.0", "XFORWARD is not for this client"));
  if (have_sender_) return bad(make_reply(503, "5.5.1", "A transaction is open: XFORWARD comes before MAIL"));
  for (auto [from, to] : {std::pair(&c.name, &origin_.name),
                          {&c.address, &origin_.address},
                          {&c.helo, &origin_.helo},
                          {&c.ident, &origin_.ident}})
    if (*from) *to = **from;
  reply(250, "2.0.0", "Ok");
}

void Session::on(const Rset&) {
  origin_ = {};
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
  reply(252, "2.5.0", "Send some mail: RCPT tells whether a recipient exists");
}
void Session::on(const Quit&) {
  close_with(221, "2.0.0", "Bye");
}

}  // namespace twinloft::lmtpd
