#include "body_store.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "twinloft/base/crc32c.h"

namespace twinloft::lmtpd {

bool BodyStore::take_memory(std::uint64_t bytes) {
  if (!body_.in_memory() || body_.size + bytes > limits_.memory_bytes_max) return false;
  if (!budget_.take(bytes, budget_.bytes_max() / 4)) return false;
  charged_ += bytes;
  return true;
}

bool BodyStore::append_to_memory(std::span<const ByteSpan> pieces) {
  std::uint64_t bytes = 0;
  for (ByteSpan piece : pieces) bytes += piece.size();
  if (!take_memory(bytes)) return false;
  for (ByteSpan piece : pieces) body_.memory += as_text(piece);
  body_.size += bytes;
  return true;
}

Status BodyStore::append(std::string_view bytes) {
  Status added = add(bytes);
  if (!added) {
    body_ = {};
    give_back();
    on_disk_.release();
  }
  return added;
}

Status BodyStore::add(std::string_view bytes) {
  ByteSpan piece = as_bytes(bytes);
  if (append_to_memory({&piece, 1})) return {};
  if (body_.in_memory()) TL_TRY(move_to_file());
  TL_TRY(write_to_file(body_.file.get(), bytes));
  body_.size += bytes.size();
  return {};
}

Status BodyStore::write_to_file(int file, std::string_view bytes) {
  if (!on_disk_.add(limits_.disk, bytes.size()))
    return fail(Errc::exhausted, "messages in files use all of limits.body_disk_total");
  body_.checksum = crc32c(as_bytes(bytes), body_.checksum.value_or(0));
  Status written = write_all(file, as_bytes(bytes));
  if (written) return written;
  Error error = std::move(written).error();
  error.message = fmt::format("{}: {}", limits_.directory, error.message);
  return std::unexpected(std::move(error));
}

Result<Fd> make_unlinked_file(const std::string& directory) {
  Fd file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) return fail_errno(errno, "{}: cannot create a file for a large message", directory);
  return file;
}

Status BodyStore::move_to_file() {
  TL_TRY_ASSIGN(Fd file, limits_.make_file(limits_.directory));
  TL_TRY(write_to_file(file.get(), body_.memory));
  std::string().swap(body_.memory);
  body_.file = std::move(file);
  give_back();
  return {};
}

void BodyStore::give_back() {
  budget_.give_back(std::exchange(charged_, 0));
}

}  // namespace twinloft::lmtpd
