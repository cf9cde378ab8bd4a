// The message of a transaction: its bytes, its deliveries, and the transaction's end.
#include "twinloft/lmtpd/session/session.h"

#include <algorithm>

#include "twinloft/base/check.h"

namespace twinloft::lmtpd {

void Session::take_body(ByteSpan& in) {
  std::size_t before = actions_.body.size();
  bool end = decoder_.decode(in, actions_.body);
  look_at_body(before);
  if (end) body_complete();
}

// What has come of the message since then: too much of it, or still its header?
void Session::look_at_body(std::size_t first_piece) {
  for (std::size_t i = first_piece; i < actions_.body.size(); ++i) {
    body_bytes_ += actions_.body[i].size();
    header_.feed(actions_.body[i]);
  }
  // Of two limits that these bytes have passed the lower one was first: what is said depends on no split.
  if (header_.bytes() > config_.header_bytes_max && config_.header_bytes_max <= config_.message_bytes_max)
    body_failed(make_reply(552, "5.3.4",
                           fmt::format("Message header larger than {} bytes", config_.header_bytes_max)));
  if (body_bytes_ > config_.message_bytes_max) body_failed(too_large());
  if (body_refusal_) actions_.body.clear();
}

void Session::take_chunk(ByteSpan& in) {
  ByteSpan piece = in.first(static_cast<std::size_t>(std::min<std::uint64_t>(in.size(), chunk_.size)));
  in = in.subspan(piece.size());
  chunk_.size -= piece.size();
  if (!chunk_refusal_ && !body_refusal_) {
    actions_.body.push_back(piece);
    look_at_body(actions_.body.size() - 1);
  }
  if (chunk_.size == 0) chunk_complete();
}

// RFC 2033 section 4.3: the last chunk has a reply for each accepted recipient, also where an earlier one was
// refused, and none where there is no such recipient; a client counts on it. Any other chunk has one.
void Session::chunk_complete() {
  state_ = State::command;
  if (chunk_refusal_ && chunk_.last) return reset_transaction();
  if (chunk_refusal_) {
    if (mail_refused_ || (have_sender_ && envelope_->recipients.empty()))
      reply(*chunk_refusal_);
    else
      bad(*chunk_refusal_);
    return;
  }
  if (chunk_.last) return body_complete();
  if (!body_refusal_) return reply(250, "2.0.0", "Chunk taken");
  if (std::exchange(refusal_told_, true))
    return reply(503, "5.5.1", "A chunk before this one was refused: RSET");
  reply(*body_refusal_);
}

void Session::body_failed(const Reply& r) {
  if (!has_body_ || body_refusal_) return;
  bool streaming = state_ != State::delivering;
  body_refusal_ = r;
  actions_.abort_body = true;
  actions_.body.clear();
  if (streaming) return;
  // The owner found out after the end of the data: nobody has been asked to deliver what is not there.
  actions_.deliver.reset();
  for (auto& result : results_) result = r;
  results_missing_ = 0;
  finish_transaction();
  resume();
}

void Session::body_complete() {
  state_ = State::delivering;
  results_.assign(envelope_->recipients.size(), std::nullopt);
  results_missing_ = results_.size();
  if (body_refusal_) {
    for (auto& result : results_) result = *body_refusal_;
    results_missing_ = 0;
    return finish_transaction();
  }
  actions_.deliver = envelope_;
}

void Session::delivery_done(std::size_t recipient, const Reply& r) {
  if (state_ != State::delivering || recipient >= results_.size() || results_[recipient]) return;
  results_[recipient] = r;
  if (--results_missing_ > 0) return;
  finish_transaction();
  resume();
}

// RFC 2033 section 4.2: one reply for each accepted recipient, in the order of their RCPT commands. Called
// from within process() for a message that was refused while it arrived: going on with kept input is for the
// callers outside of it.
void Session::finish_transaction() {
  for (const auto& result : results_) reply(*result);
  if (body_refusal_) tell_refusal(Refusal::What::message, envelope_->recipients.front().text, *body_refusal_);
  results_.clear();
  bad_commands_ = 0;
  refused_ = 0;
  origin_ = {};
  has_body_ = false;  // its owner has it, or it was given up
  body_refusal_.reset();
  reset_transaction();
  state_ = State::command;
  if (shutting_down_) leave();
  leave_if_drained();
}

void Session::drop_body() {
  if (!std::exchange(has_body_, false) || std::exchange(body_refusal_, std::nullopt))
    return;  // or the owner has been told
  actions_.abort_body = true;
  actions_.body.clear();
}

void Session::reset_transaction() {
  drop_body();
  have_sender_ = false;
  mail_refused_ = false;
  announced_size_ = 0;
  refused_recipients_ = 0;
  envelope_.reset();
}

}  // namespace twinloft::lmtpd
