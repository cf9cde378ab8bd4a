#include "sealed_output.h"

#include <utility>

namespace twinloft::repl::stream {

namespace {
constexpr std::uint8_t alert_record = 21, handshake_record = 22;  // RFC 8446, 5.1
constexpr std::size_t record_bytes = 16 << 10;
constexpr std::size_t pieces_of_call = 1024;  // of one system call
constexpr std::size_t alerts_max = 8;         // that wait; a connection has one or two
}  // namespace

std::unique_ptr<SealedOutput> SealedOutput::begin(Stream& below, TrafficSecret secret,
                                                  std::uint64_t records_of_key) {
  auto key = secret.key();
  if (!key || !below.seal_output(*key)) return nullptr;
  return std::unique_ptr<SealedOutput>(new SealedOutput(below, std::move(secret), records_of_key));
}

Result<std::size_t> SealedOutput::write(std::span<iovec> from) {
  if (records_ >= records_of_key_) change_key();
  TL_TRY(push());
  if (is_waiting() || from.empty()) return 0;
  // Each call begins a record of its own, also one that ends for want of room.
  const std::size_t calls = from.size() / pieces_of_call + 2;
  TL_TRY_ASSIGN(std::size_t accepted, below_.write(from));
  records_ += accepted / record_bytes + calls;
  return accepted;
}

void SealedOutput::change_key() {
  for (const Record& r : waiting_)
    if (r.changes_key) return;
  // A KeyUpdate that asks for none (RFC 8446, 4.6.3).
  waiting_.push_back({handshake_record, {std::byte{24}, {}, {}, std::byte{1}, {}}, true});
}

void SealedOutput::alert(std::uint8_t level, std::uint8_t description) {
  if (waiting_.size() >= alerts_max) return;
  waiting_.push_back({alert_record, {std::byte{level}, std::byte{description}}, false});
}

Status SealedOutput::push() {
  if (so_far_) so_far_ = push_waiting();
  if (!so_far_) waiting_.clear();
  return so_far_;
}

Status SealedOutput::push_waiting() {
  while (!waiting_.empty()) {
    TL_TRY_ASSIGN(bool sent, below_.write_record(waiting_.front().type, waiting_.front().content));
    if (!sent) return {};
    ++records_;
    const bool changes_key = waiting_.front().changes_key;
    waiting_.pop_front();
    if (changes_key) TL_TRY(use_next_key());
  }
  return {};
}

Status SealedOutput::use_next_key() {
  TL_TRY(secret_.advance());
  TL_TRY_ASSIGN(RecordKey key, secret_.key());
  if (!below_.seal_output(key)) return fail(Errc::io, "the kernel does not take the next key of TLS");
  records_ = 0;
  return {};
}

}  // namespace twinloft::repl::stream
