#include "body_store.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

namespace twinloft::lmtpd {

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
  if (body_.in_memory() && !fits_memory(bytes.size())) TL_TRY(move_to_file());
  if (!body_.in_memory()) {
    TL_TRY(write_to_file(body_.file.get(), bytes));
  } else {
    if (!budget_.take(bytes.size()))
      return fail(Errc::exhausted, "messages being received use all of limits.body_memory_total");
    charged_ += bytes.size();
    body_.memory.append(bytes);
  }
  body_.size += bytes.size();
  return {};
}

Status BodyStore::write_to_file(int file, std::string_view bytes) {
  if (!on_disk_.add(limits_.disk, bytes.size())) return fail(Errc::exhausted, "messages in files use all of limits.body_disk_total");
  return write_all(file, as_bytes(bytes));
}

Result<Fd> make_unlinked_file(const std::string& directory) {
  Fd file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) return fail_errno(errno, "{}: no file for a large message", directory);
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

void BodyStore::give_back() { budget_.give_back(std::exchange(charged_, 0)); }

}  // namespace twinloft::lmtpd
