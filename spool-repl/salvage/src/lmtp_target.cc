// make_lmtp_target(): a transaction for each message, over one connection as long as possible.
#include <optional>

#include "lmtp_connection.h"
#include "read_file.h"
#include "twinloft/mail/data_encoder.h"
#include "twinloft/mail/lmtp_offer.h"
#include "twinloft/spool-repl/salvage/target.h"

namespace twinloft::repl::salvage {

namespace {

using End = Sent::End;

// Dovecot can store compressed messages (mail_compress), which are not text.
bool is_compressed(std::string_view start) {
  for (std::string_view magic : {"\x1f\x8b", "BZh", "\x28\xb5\x2f\xfd", "Dovecot-LZ4"})
    if (start.starts_with(magic)) return true;
  return false;
}

Sent answered(const mail::LmtpReply& reply) {
  return {reply.code >= 500 ? End::refused : End::deferred, text_of(reply)};
}

class LmtpTarget final : public Target {
 public:
  LmtpTarget(LmtpServer server, LmtpOptions options)
      : server_(std::move(server)), options_(std::move(options)) {}

  Sent deliver(const Message&, const std::string& address, int content) override {
    auto path = forward_path(address);
    if (!path) return {End::failed, path.error().message};
    auto start = read_start(content, trace_bytes_max);
    if (!start) return {End::failed, start.error().message};
    if (is_compressed(*start))
      return {End::failed,
              "the message is stored compressed, and LMTP has text only: deliver it with --copy"};
    // The server may have closed the connection meanwhile. This is detected before a message is sent.
    if (connection_ && !still_there()) connection_.reset();
    if (auto begun = begin(); !begun) return lost(begun.error(), End::away);
    return transaction(*path, *start, content);
  }

 private:
  // Also ends a transaction in which a command was refused.
  bool still_there() {
    auto reply = connection_->ask("RSET");
    return reply && reply->positive();
  }

  Sent lost(const Error& error, End end) {
    connection_.reset();
    return {end, error.message};
  }

  Status begin() {
    if (connection_) return {};
    TL_TRY_ASSIGN(connection_, LmtpConnection::connect(server_, options_));
    auto said = [&](const Result<mail::LmtpReply>& reply, const char* to) -> Status {
      if (!reply) return fail(reply.error().code, "{}: {}: {}", server_.text, to, reply.error().message);
      if (!reply->positive()) return fail(Errc::unavailable, "{}: {}: {}", server_.text, to, text_of(*reply));
      return {};
    };
    TL_TRY(said(connection_->reply(), "greeting"));
    auto hello = connection_->ask("LHLO " + options_.hostname);
    TL_TRY(said(hello, "LHLO"));
    eight_bit_ = mail::read_offer(hello->lines).eight_bit_mime;
    return {};
  }

  Sent transaction(const std::string& path, std::string_view start, int content) {
    for (const std::string& command :
         {std::string("MAIL FROM:<>") + (eight_bit_ ? " BODY=8BITMIME" : ""), "RCPT TO:<" + path + ">"}) {
      auto reply = connection_->ask(command);
      if (!reply) return lost(reply.error(), End::failed);
      if (!reply->positive()) return refusal(*reply);
    }
    auto ready = connection_->ask("DATA");
    if (!ready) return lost(ready.error(), End::failed);
    if (ready->code != 354) return refusal(*ready);
    return hand_over(start, content);
  }

  // 421: the server closes the connection.
  Sent refusal(const mail::LmtpReply& reply) {
    if (reply.code == 421 || reply.code < 400) connection_.reset();
    return answered(reply);
  }

  Sent hand_over(std::string_view start, int content) {
    if (auto sent = send_content(start, content); !sent) {
      // Without the final dot, the message is incomplete. The server may have sent the reason of its end.
      auto why = connection_->reply();
      connection_.reset();
      return {End::failed, why ? text_of(*why) : sent.error().message};
    }
    connection_->set_reply_timeout(options_.final_timeout);
    Status dot = connection_->send(".\r\n");
    auto reply = dot ? connection_->reply() : std::unexpected(dot.error());
    if (!reply || (reply->code >= 300 && reply->code < 400)) {
      connection_.reset();
      return {End::unknown, "no reply to the message: " + (reply ? text_of(*reply) : reply.error().message)};
    }
    connection_->set_reply_timeout(options_.timeout);
    return reply->positive() ? Sent{End::delivered, text_of(*reply)} : refusal(*reply);
  }

  Status send_content(std::string_view start, int content) {
    mail::DataEncoder encoder(mail::LoneCr::keep);
    std::string out;
    std::size_t trace = trace_length(start, start.size() < trace_bytes_max), skipped = 0;
    encoder.feed(without_delivered_to(start.substr(0, trace)), out);
    Status sent = read_pieces(content, [&](ByteSpan piece) -> Result<bool> {
      std::size_t skip = std::min(trace - skipped, piece.size());
      skipped += skip;
      encoder.feed(as_text(piece.subspan(skip)), out);
      TL_TRY(connection_->send(out));
      out.clear();
      return true;
    });
    if (!sent) return sent;
    encoder.end_line(out);
    return connection_->send(out);
  }

  LmtpServer server_;
  LmtpOptions options_;
  std::optional<LmtpConnection> connection_;
  bool eight_bit_ = false;
};

}  // namespace

std::unique_ptr<Target> make_lmtp_target(LmtpServer server, LmtpOptions options) {
  return std::make_unique<LmtpTarget>(std::move(server), std::move(options));
}

}  // namespace twinloft::repl::salvage
