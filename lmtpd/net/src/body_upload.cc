#include "body_upload.h"

namespace twinloft::lmtpd {

namespace {

void append_to(std::string& out, std::span<const ByteSpan> pieces) {
  for (ByteSpan piece : pieces) out += as_text(piece);
}

}  // namespace

BodyUpload::Next BodyUpload::append(std::span<const ByteSpan> pieces) {
  if (const Lost* lost = std::get_if<Lost>(&state_)) return std::unexpected(lost->error);
  if (Away* away = std::get_if<Away>(&state_)) {
    append_to(away->waiting, pieces);
    return std::nullopt;
  }
  std::shared_ptr<BodyStore>& store = std::get<Here>(state_).store;
  if (store->append_to_memory(pieces)) return std::nullopt;
  BodyWrite write;
  append_to(write.bytes, pieces);
  write.store = std::move(store);
  state_ = Away{};
  return write;
}

BodyUpload::Next BodyUpload::written(std::shared_ptr<BodyStore> store, const Status& kept) {
  Away* away = std::get_if<Away>(&state_);
  if (!away) return fail(Errc::internal, "a write has ended that was not started");
  if (!kept) return lose(kept.error());
  if (!away->waiting.empty()) return BodyWrite{std::move(store), std::exchange(away->waiting, {})};
  state_ = Here{std::move(store)};
  return std::nullopt;
}

std::optional<BodyUpload::Whole> BodyUpload::take_whole() {
  Here* here = std::get_if<Here>(&state_);
  if (!here || !envelope_) return std::nullopt;
  Whole whole{std::move(envelope_), std::move(here->store)};
  state_ = Lost{{Errc::internal, "the message is being delivered"}};
  return whole;
}

BodyUpload::Next BodyUpload::lose(const Error& error) {
  state_ = Lost{error};
  return std::unexpected(error);
}

}  // namespace twinloft::lmtpd
