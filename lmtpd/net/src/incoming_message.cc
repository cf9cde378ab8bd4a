#include "incoming_message.h"

#include <stdexcept>
#include <utility>

namespace twinloft::lmtpd {

IncomingMessage::Receiving& IncomingMessage::receiving() {
  if (auto* now = std::get_if<Receiving>(&state_)) return *now;
  throw std::logic_error("an action for a message that has not begun");
}

void IncomingMessage::begin(std::shared_ptr<BodyStore> store) {
  if (!std::holds_alternative<None>(state_))
    throw std::logic_error("a message begins while another message is open");
  state_ = Receiving{std::make_shared<BodyUpload>(std::move(store))};
}

bool IncomingMessage::take(std::span<const ByteSpan> pieces) {
  std::shared_ptr<BodyUpload> upload = receiving().upload;
  if (upload->is_lost()) return true;
  BodyUpload::Next next = upload->append(pieces);
  if (!next) return owner_.lost(next.error()), false;
  if (*next) owner_.write(std::move(upload), std::move(**next));
  return true;
}

void IncomingMessage::abort() {
  if (std::holds_alternative<Receiving>(state_)) state_ = None{};
}

void IncomingMessage::complete(std::shared_ptr<const Envelope> envelope) {
  BodyUpload& upload = *receiving().upload;
  if (upload.is_lost()) return;
  upload.complete(std::move(envelope));
  hand_over_if_whole(upload);
}

void IncomingMessage::written(const std::shared_ptr<BodyUpload>& upload, std::shared_ptr<BodyStore> store,
                              const Status& kept) {
  const auto* now = std::get_if<Receiving>(&state_);
  if (!now || now->upload != upload) return;
  BodyUpload::Next next = upload->written(std::move(store), kept);
  if (!next) return owner_.lost(next.error());
  if (*next) return owner_.write(upload, std::move(**next));
  hand_over_if_whole(*upload);
}

void IncomingMessage::hand_over_if_whole(BodyUpload& upload) {
  auto whole = upload.take_whole();
  if (!whole) return;
  state_ = Whole{};
  owner_.take(std::move(*whole));
}

void IncomingMessage::delivering(std::shared_ptr<Transaction> deliveries) {
  if (!std::holds_alternative<Whole>(state_) && !std::holds_alternative<Delivering>(state_))
    throw std::logic_error("deliveries of a message that is not complete");
  state_ = Delivering{std::move(deliveries)};
}

bool IncomingMessage::is_storing() const {
  const auto* now = std::get_if<Receiving>(&state_);
  return now && now->upload->is_away();
}

std::shared_ptr<Transaction> IncomingMessage::deliveries() const {
  const auto* now = std::get_if<Delivering>(&state_);
  return now ? now->transaction : nullptr;
}

}  // namespace twinloft::lmtpd
