#include "dialogue.h"

#include <fmt/format.h>

#include <algorithm>

#include "twinloft/lmtpd/maildir/message_writer.h"
#include "twinloft/lmtpd/proto/path.h"
#include "twinloft/mail/data_encoder.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t piece_bytes = 64 * 1024;  // in one write
constexpr std::size_t pipelined_max = 101;      // commands before their replies: MAIL, and
                                                // next_hop.NAME.recipients by default

std::unexpected<Error> refused(std::string_view what, const mail::LmtpReply& reply) {
  return fail(Errc::conflict, "{} was answered {}", what, reply.text());
}

Reply reply_of_failure(const Error& error) {
  switch (error.code) {
    case Errc::corrupt:
      return {451, "4.5.0", "The mail store does not answer as it should"};
    case Errc::timeout:
      return {451, "4.4.2", "The mail store does not answer in time"};
    case Errc::unavailable:
      return {451, "4.4.2", "The connection to the mail store has ended"};
    default:
      return {451, "4.3.0", "The mail store cannot be used now"};
  }
}

// lmtpd has found the user. If a local hop denies the user, one of the two is configured wrongly.
Reply reply_to_recipient(Reply reply, const NextHopSpec& spec) {
  if (!spec.local() || reply.code != 550 || !reply.enhanced.starts_with("5.1.")) return reply;
  return make_reply(451, "4.3.0", "The mail store does not know this user");
}

// The size of a header with LF line ends, after their conversion to CRLF.
std::uint64_t with_crlf_bytes(std::string_view header) {
  return header.size() + static_cast<std::uint64_t>(std::count(header.begin(), header.end(), '\n'));
}

}  // namespace

// ---- one reply after the other

Result<mail::LmtpReply> Dialogue::read_reply(Instant deadline) {
  for (;;) {
    TL_TRY_ASSIGN(std::optional<mail::LmtpReply> reply, parser_.next());
    if (reply) return std::move(*reply);
    std::byte bytes[4096];
    TL_TRY_ASSIGN(std::size_t count, stream_->read(bytes, deadline));
    parser_.feed({reinterpret_cast<const char*>(bytes), count});
  }
}

Result<mail::LmtpReply> Dialogue::ask(std::string_view command, Instant deadline) {
  TL_TRY(stream_->write(command, deadline));
  return read_reply(deadline);
}

// ---- before a transaction

Status Dialogue::greet(Instant deadline) {
  TL_TRY_ASSIGN(mail::LmtpReply greeting, read_reply(deadline));
  if (greeting.code != 220) return refused("the connection", greeting);
  return {};
}

Status Dialogue::say_lhlo(Instant deadline) {
  TL_TRY_ASSIGN(mail::LmtpReply reply, ask("LHLO " + hostname_ + "\r\n", deadline));
  if (reply.code != 250) return refused("LHLO", reply);
  offer_ = mail::read_offer(reply.lines);
  return {};
}

// Everything that the hop sent in clear is discarded (CVE-2011-0411).
Status Dialogue::open(const TlsClientContext* tls) {
  Instant deadline = in(spec_.target.timeout);
  TL_TRY(greet(deadline));
  TL_TRY(say_lhlo(deadline));
  first_offer_ = offer_;
  if (!tls || (spec_.tls == HopTls::may && !offer_.start_tls)) return {};
  if (!offer_.start_tls) return fail(Errc::conflict, "it does not offer STARTTLS");
  TL_TRY_ASSIGN(mail::LmtpReply reply, ask("STARTTLS\r\n", deadline));
  if (reply.code != 220) return refused("STARTTLS", reply);
  if (parser_.pending() != 0) return fail(Errc::corrupt, "it sent clear text after its reply to STARTTLS");
  TL_TRY(stream_->start_tls(*tls, deadline));
  TL_TRY(say_lhlo(deadline));
  first_offer_ = offer_;
  return {};
}

Status Dialogue::speak_for(const Envelope& envelope) {
  std::string command = wanted_for(envelope);
  if (command == spoken_for_) return {};
  Instant deadline = in(spec_.reply_timeout);
  TL_TRY_ASSIGN(mail::LmtpReply reply, ask(command, deadline));
  if (reply.code != 220) return refused("XCLIENT", reply);
  TL_TRY(say_lhlo(deadline));
  spoken_for_ = std::move(command);
  return {};
}

void Dialogue::quit() {
  (void)stream_->write("QUIT\r\n", clock_.now());
}

// ---- one transaction

struct Dialogue::Attempt {
  const Envelope& envelope;
  std::span<const std::size_t> recipients;
  std::uint64_t size;
  std::vector<std::optional<Reply>> results = std::vector<std::optional<Reply>>(recipients.size());
  bool begun = false;     // MAIL was sent
  bool answered = false;  // it has sent a reply other than 421
  bool in_body = false;   // the hop may have a part of the message
  std::string problem{};

  bool all_have_results() const {
    for (const auto& r : results)
      if (!r) return false;
    return true;
  }
  void settle_rest(const Reply& reply) {
    for (auto& r : results)
      if (!r) r = reply;
  }
};

// Without waiting if the hop offers PIPELINING (RFC 2920). All received replies are available, also if an
// error ended the dialogue.
Status Dialogue::ask_each(const std::vector<std::string>& commands, std::vector<mail::LmtpReply>& replies) {
  // The limit of all commands together.
  const Instant latest = in(spec_.data_timeout);
  auto next = [&] { return std::min(in(spec_.reply_timeout), latest); };
  // In portions, since the hop may stop reading commands while its replies are not read (RFC 2920 section
  // 3.1).
  const std::size_t at_once = offer_.pipelining ? pipelined_max : 1;
  for (std::size_t sent = 0; sent < commands.size();) {
    std::string some;
    for (std::size_t end = std::min(sent + at_once, commands.size()); sent < end; ++sent)
      some += commands[sent];
    TL_TRY(stream_->write(some, next()));
    while (replies.size() < sent) {
      TL_TRY_ASSIGN(mail::LmtpReply reply, read_reply(next()));
      replies.push_back(std::move(reply));
    }
  }
  return {};
}

// The sender is sent as received. A recipient with a local-part in UTF-8 is refused if the hop lacks
// SMTPUTF8.
Status Dialogue::offer_recipients(Attempt& attempt) {
  const Envelope& envelope = attempt.envelope;
  std::vector<std::string> commands;
  if (spec_.xforward)
    if (std::string forward = xforward_command(envelope, offer_); !forward.empty())
      commands.push_back(std::move(forward));
  std::size_t mail = commands.size();
  bool utf8 = says_smtputf8(envelope, attempt.recipients, spec_.recipient, offer_);
  commands.push_back(mail_command(envelope, attempt.size, offer_, utf8));
  std::vector<std::size_t> offered;  // the numbers of the recipients that were sent
  for (std::size_t i = 0; i < attempt.recipients.size(); ++i) {
    const Recipient& recipient = envelope.recipients[attempt.recipients[i]];
    const bool can = spec_.recipient == HopRecipient::user_and_original ? utf8 : offer_.smtputf8;
    if (!can && needs_smtputf8(recipient, spec_.recipient, detail_delimiter_)) {
      attempt.results[i] = {553, "5.6.7", "The mail store accepts no addresses beyond ASCII"};
      continue;
    }
    offered.push_back(i);
    commands.push_back(rcpt_command(recipient, spec_.recipient, detail_delimiter_, offer_, utf8));
  }
  if (offered.empty()) {
    attempt.answered = true;
    return {};
  }
  std::vector<mail::LmtpReply> replies;
  attempt.begun = true;
  Status asked = ask_each(commands, replies);
  attempt.answered = !replies.empty() && replies[0].code != 421;
  if (mail > 0 && !replies.empty() && !replies[0].positive())
    attempt.problem = "XFORWARD was answered " + replies[0].text();
  if (replies.size() > mail && !replies[mail].positive())
    attempt.settle_rest(reply_of_hop(replies[mail], Stage::sender));
  for (std::size_t i = mail + 1; i < replies.size(); ++i)
    if (auto& result = attempt.results[offered[i - mail - 1]]; !result && !replies[i].positive())
      result = reply_to_recipient(reply_of_hop(replies[i], Stage::recipient), spec_);
  return asked;
}

// Without CHUNKING, the hop's reply to DATA is awaited. Unexpected earlier output would count as replies to
// the message.
Status Dialogue::begin_body(Attempt& attempt) {
  if (!is_idle()) return fail(Errc::corrupt, "it sent unexpected output");
  if (offer_.chunking) return {};
  TL_TRY_ASSIGN(mail::LmtpReply reply, ask("DATA\r\n", in(spec_.reply_timeout)));
  if (reply.code == 354) return {};
  attempt.settle_rest(reply_of_hop(reply, Stage::body));
  return {};
}

Status Dialogue::send_message(const MessageBody& body, const std::string& header) {
  const Instant deadline = in(spec_.data_timeout);
  mail::DataEncoder encoder;
  // RFC 3030: the message is sent unchanged, with any lines.
  std::string out = offer_.chunking ? fmt::format("BDAT {} LAST\r\n", with_crlf_bytes(header) + body.size)
                                    : std::string();
  auto sink = [&](std::string_view bytes) -> Status {
    if (offer_.chunking)
      out += bytes;
    else
      encoder.feed(bytes, out);
    if (out.size() < piece_bytes) return {};
    Status written = stream_->write(out, deadline);
    out.clear();
    return written;
  };
  TL_TRY(write_message(header, body, true, sink));
  if (!offer_.chunking) encoder.finish(out);
  return stream_->write(out, deadline);
}

// A reply for each accepted recipient, in their order (RFC 2033 section 4.2).
Status Dialogue::take_results(Attempt& attempt) {
  const Instant deadline = in(spec_.data_timeout);
  for (auto& result : attempt.results) {
    if (result) continue;
    TL_TRY_ASSIGN(mail::LmtpReply reply, read_reply(deadline));
    if (reply.code / 100 == 3) return fail(Errc::corrupt, "the message was answered {}", reply.text());
    result = reply_of_hop(reply, Stage::message);
  }
  return {};
}

Status Dialogue::reset() {
  TL_TRY_ASSIGN(mail::LmtpReply reply, ask("RSET\r\n", in(spec_.reply_timeout)));
  if (!reply.positive()) return refused("RSET", reply);
  return {};
}

Handed Dialogue::hand_over(const Envelope& envelope, std::span<const std::size_t> recipients,
                           const MessageBody& body, const std::string& header) {
  Attempt attempt{envelope, recipients, with_crlf_bytes(header) + body.size};
  bool was_used = std::exchange(was_used_, true);
  auto run = [&]() -> Status {
    TL_TRY(offer_recipients(attempt));
    if (!attempt.begun) return {};
    if (attempt.all_have_results()) return reset();
    TL_TRY(begin_body(attempt));
    if (attempt.all_have_results()) return reset();
    attempt.in_body = true;
    TL_TRY(send_message(body, header));
    return take_results(attempt);
  };
  Status ran = run();
  Handed out;
  out.reusable = ran.has_value();
  out.problem = ran ? std::move(attempt.problem) : ran.error().message;
  if (!ran) attempt.settle_rest(reply_of_failure(ran.error()));
  out.untouched = was_used && !attempt.answered && !attempt.in_body &&
                  (ran || ran.error().code == Errc::unavailable);
  for (auto& result : attempt.results) out.replies.push_back(std::move(*result));
  return out;
}

}  // namespace twinloft::lmtpd
