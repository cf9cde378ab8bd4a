// The message of a transaction: its bytes, its deliveries, and the transaction's end.
#include <fmt/format.h>

#include <algorithm>

#include "twinloft/lmtpd/session/session.h"

namespace twinloft::lmtpd {

std::vector<ByteSpan>& Session::body_pieces() {
  if (actions_.empty() || !std::holds_alternative<BodyBytes>(actions_.back()))
    actions_.emplace_back(BodyBytes{});
  return std::get<BodyBytes>(actions_.back()).pieces;
}

bool Session::has_body_to_pass_on() const {
  return std::ranges::any_of(actions_, [](const Action& a) { return std::holds_alternative<BodyBytes>(a); });
}

// Removes all body bytes from the list: the message is refused. The list never holds bytes of two messages,
// because the question about a recipient comes between them.
void Session::withhold_body() {
  std::erase_if(actions_, [](const Action& a) { return std::holds_alternative<BodyBytes>(a); });
}

void Session::take_data(ByteSpan& input) {
  DataDecoder& decoder = in<InData>()->decoder;
  bool end;
  if (transaction_->message->refusal) {
    std::vector<ByteSpan> ignored;
    end = decoder.decode(input, ignored);
  } else {
    std::vector<ByteSpan>& pieces = body_pieces();
    const std::size_t before = pieces.size();
    end = decoder.decode(input, pieces);
    for (std::size_t i = before; i < pieces.size(); ++i) look_at_body(pieces[i]);
    if (pieces.empty()) actions_.pop_back();
    judge_sizes();
  }
  if (end) message_complete();
}

void Session::look_at_body(ByteSpan piece) {
  transaction_->message->bytes += piece.size();
  transaction_->message->header.feed(piece);
}

// If the message has passed both limits, the lower one decides the reply. So the reply does not depend on how
// the input was split.
void Session::judge_sizes() {
  const Message& message = *transaction_->message;
  if (message.header.bytes() > config_.header_bytes_max &&
      config_.header_bytes_max <= config_.message_bytes_max)
    body_failed(make_reply(552, "5.3.4",
                           fmt::format("Message header larger than {} bytes", config_.header_bytes_max)));
  if (message.bytes > config_.message_bytes_max) body_failed(too_large());
}

void Session::take_chunk(ByteSpan& input) {
  InChunk& chunk = *in<InChunk>();
  ByteSpan piece = input.first(
      static_cast<std::size_t>(std::min<std::uint64_t>(input.size(), chunk.command.size)));
  input = input.subspan(piece.size());
  chunk.command.size -= piece.size();
  if (!chunk.refusal && !transaction_->message->refusal) {
    body_pieces().push_back(piece);
    look_at_body(piece);
    judge_sizes();
  }
  if (chunk.command.size == 0) chunk_complete();
}

// RFC 2033 section 4.3: the last chunk gets one reply per accepted recipient, even if an earlier chunk was
// refused. Without accepted recipients it gets none. Any other chunk gets one reply.
void Session::chunk_complete() {
  const InChunk chunk = std::move(*in<InChunk>());
  state_ = AtCommand{};
  if (chunk.refusal && chunk.command.last) return reset_transaction();
  if (chunk.refusal) {
    if (mail_refused_ || (transaction_ && transaction_->envelope->recipients.empty()))
      reply(*chunk.refusal);
    else
      bad(*chunk.refusal);
    return;
  }
  if (chunk.command.last) return message_complete();
  Message& message = *transaction_->message;
  if (!message.refusal) return reply(250, "2.0.0", "Chunk accepted");
  if (std::exchange(message.refusal_told, true))
    return reply(503, "5.5.1", "An earlier chunk was refused: send RSET");
  reply(*message.refusal);
}

void Session::body_failed(const Reply& r) {
  if (!has_message() || transaction_->message->refusal) return;
  transaction_->message->refusal = r;
  withhold_body();
  actions_.emplace_back(AbortBody{});
  Delivering* now = in<Delivering>();
  if (!now) return;
  // The owner's storage failed after the end of the data. The message must not be delivered.
  std::erase_if(actions_, [](const Action& a) { return std::holds_alternative<Deliver>(a); });
  finish_transaction(std::vector<std::optional<Reply>>(now->results.size(), r));
  resume();
}

void Session::message_complete() {
  const std::size_t recipients = transaction_->envelope->recipients.size();
  if (const auto& refusal = transaction_->message->refusal)
    return finish_transaction(std::vector<std::optional<Reply>>(recipients, *refusal));
  state_ = Delivering{std::vector<std::optional<Reply>>(recipients), recipients};
  actions_.emplace_back(Deliver{transaction_->envelope});
}

void Session::delivery_done(std::size_t recipient, const Reply& r) {
  Delivering* now = in<Delivering>();
  if (!now || recipient >= now->results.size() || now->results[recipient]) return;
  now->results[recipient] = r;
  if (--now->missing > 0) return;
  finish_transaction(std::move(now->results));
  resume();
}

// RFC 2033 section 4.2: one reply for each accepted recipient, in the order of their RCPT commands. Does not
// resume kept input, because process() calls this for a message that was refused while it arrived.
void Session::finish_transaction(std::vector<std::optional<Reply>> results) {
  for (const auto& result : results) reply(*result);
  if (const auto& refusal = transaction_->message->refusal)
    tell_refusal(Refused::What::message, transaction_->envelope->recipients.front().text, *refusal);
  bad_commands_ = 0;
  refused_ = 0;
  said_.origin = {};
  transaction_->message.reset();  // the owner has taken it, or it was refused
  reset_transaction();
  state_ = AtCommand{};
  if (std::exchange(closes_after_replies_, false)) return end_silently();
  if (leaving_ == Leaving::when_nothing_is_pending) leave();
  leave_if_drained();
}

void Session::drop_message() {
  if (!has_message()) return;
  const bool owner_knows = transaction_->message->refusal.has_value();
  transaction_->message.reset();
  if (owner_knows) return;
  withhold_body();
  actions_.emplace_back(AbortBody{});
}

void Session::reset_transaction() {
  drop_message();
  if (transaction_ && config_.has_filters) actions_.emplace_back(ForgetTransaction{});
  transaction_.reset();
  mail_refused_ = false;
  refused_recipients_ = 0;
}

}  // namespace twinloft::lmtpd
