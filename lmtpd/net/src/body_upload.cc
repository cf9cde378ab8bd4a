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
  std::size_t bytes = 0;
  for (ByteSpan piece : pieces) bytes += piece.size();
  if (!store->fits_memory(bytes)) {
    BodyWrite write;
    write.bytes.reserve(bytes);
    append_to(write.bytes, pieces);
    write.store = std::move(store);
    state_ = Away{};
    return write;
  }
  for (ByteSpan piece : pieces)
    if (Status kept = store->append(as_text(piece)); !kept) return lose(kept.error());
  return std::nullopt;
}

BodyUpload::Next BodyUpload::written(std::shared_ptr<BodyStore> store, const Status& kept) {
  Away* away = std::get_if<Away>(&state_);
  if (!away) return fail(Errc::internal, "a part of a message was written that nobody has asked for");
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
