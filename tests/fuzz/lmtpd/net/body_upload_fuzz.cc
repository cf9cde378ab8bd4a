// The input is a sequence of events while a message arrives: a part arrives, a worker's write succeeds or
// fails, the message ends. There is at most one write at a time. The stored bytes are those that arrived, in
// order. After a failure, nothing is delivered.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "body_upload.h"
#include "twinloft/base/check.h"

using namespace twinloft;
using namespace twinloft::lmtpd;

namespace {

Result<Fd> make_memory_file(const std::string&) {
  Fd fd(::memfd_create("body", MFD_CLOEXEC));
  if (!fd) return fail_errno(errno, "memfd_create");
  return fd;
}

std::string text_of(const MessageBody& body) {
  if (body.in_memory()) return body.memory;
  std::string out(body.size, '\0');
  TL_CHECK(::pread(body.file.get(), out.data(), out.size(), 0) == static_cast<ssize_t>(out.size()));
  return out;
}

class Message {
 public:
  // A part with this number of bytes, in two pieces.
  void come(std::size_t bytes) {
    if (complete_) return;
    std::string part;
    while (part.size() < bytes) part += static_cast<char>('a' + came_++ % 26);
    ByteSpan all = as_bytes(part);
    const ByteSpan pieces[] = {all.first(bytes / 3), all.subspan(bytes / 3)};
    expected_ += part;
    take(upload_.append(pieces));
  }
  void end_write(bool well) {
    if (!open_) return;
    BodyWrite write = *std::exchange(open_, std::nullopt);
    Status kept = well ? write.store->append(write.bytes) : fail(Errc::io, "the disk is full");
    take(upload_.written(std::move(write.store), kept));
  }
  void complete() {
    if (!std::exchange(complete_, true)) upload_.complete(envelope_);
  }
  void look() {
    TL_CHECK(upload_.is_away() == open_.has_value());
    auto whole = upload_.take_whole();
    TL_CHECK(whole.has_value() == (complete_ && !lost_ && !open_ && !taken_));
    if (!whole) return;
    taken_ = true;
    TL_CHECK(whole->envelope == envelope_ && text_of(whole->store->body()) == expected_);
  }
  bool taken() const { return taken_; }
  bool lost() const { return lost_; }

 private:
  void take(BodyUpload::Next next) {
    if (!next) {
      lost_ = true;
    } else if (*next) {
      TL_CHECK(!open_ && !lost_);
      open_ = std::move(**next);
    }
  }

  MemoryBudget memory_{64}, disk_{600};
  BodyLimits limits_{8, "", make_memory_file, &disk_};
  std::shared_ptr<const Envelope> envelope_ = std::make_shared<Envelope>();
  BodyUpload upload_{std::make_shared<BodyStore>(limits_, memory_)};
  std::optional<BodyWrite> open_;
  std::string expected_;
  std::size_t came_ = 0;
  bool complete_ = false, lost_ = false, taken_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Message message;
  for (std::size_t i = 0; i < size && !message.taken(); ++i) {
    std::uint8_t what = data[i];
    if (what < 160)
      message.come(what % 40);
    else if (what < 230)
      message.end_write(true);
    else if (what < 240)
      message.end_write(false);
    else if (what < 244)
      message.complete();
    message.look();
  }
  message.complete();
  for (int i = 0; i < 3; ++i) {
    message.end_write(true);
    message.look();
  }
  TL_CHECK(message.taken() != message.lost());
  return 0;
}
