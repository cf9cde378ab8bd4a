#include "twinloft/lmtpd/maildir/message_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "twinloft/base/crc32c.h"

namespace twinloft::lmtpd {

namespace {
constexpr std::size_t chunk_bytes = 256 * 1024;
}

void LineEndConverter::put_line(std::string_view line, std::string& out) {
  if (!line.empty()) last_ = line.back();
  out.append(line);
  bare_lf_count_ += last_ != '\r';
  out += '\n';
  last_ = '\n';
}

void LineEndConverter::feed(std::string_view in, std::string& out) {
  if (in.empty()) return;
  if (pending_cr_) {
    pending_cr_ = false;
    if (in.front() != '\n') {
      out += '\r';
      last_ = '\r';
    }
  }
  const char* at = in.data();
  const char* end = at + in.size();
  while (
      const char* lf = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at)))) {
    std::string_view line(at, static_cast<std::size_t>(lf - at));
    if (line.ends_with('\r')) line.remove_suffix(1);
    put_line(line, out);
    at = lf + 1;
    if (at == end) return;
  }
  std::string_view rest(at, static_cast<std::size_t>(end - at));
  if (rest.ends_with('\r')) {
    pending_cr_ = true;
    rest.remove_suffix(1);
  }
  if (!rest.empty()) last_ = rest.back();
  out.append(rest);
}

void LineEndConverter::finish(std::string& out) {
  if (!pending_cr_) return;
  pending_cr_ = false;
  out += '\r';
  last_ = '\r';
}

Status read_body(const MessageBody& body, std::uint64_t limit, const ChunkSink& sink) {
  limit = std::min(limit, body.size);
  if (body.in_memory()) {
    if (body.memory.size() != body.size)
      return fail(Errc::internal, "a message of {} bytes holds {}", body.size, body.memory.size());
    std::string_view text = body.memory;
    for (std::uint64_t at = 0; at < limit; at += chunk_bytes)
      TL_TRY(sink(text.substr(at, std::min<std::uint64_t>(chunk_bytes, limit - at))));
    return {};
  }
  std::string buffer(std::min<std::uint64_t>(chunk_bytes, limit), '\0');
  std::uint32_t checksum = 0;
  for (std::uint64_t at = 0; at < limit;) {
    std::size_t want = std::min<std::uint64_t>(buffer.size(), limit - at);
    ssize_t n = ::pread(body.file.get(), buffer.data(), want, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read of the received message at byte {}", at);
    if (n == 0) return fail(Errc::corrupt, "the received message ends at byte {} of {}", at, body.size);
    std::string_view chunk(buffer.data(), static_cast<std::size_t>(n));
    checksum = crc32c(as_bytes(chunk), checksum);
    TL_TRY(sink(chunk));
    at += chunk.size();
  }
  // The file is never synced, so the file system may lose written bytes without an error at read.
  if (limit == body.size && body.checksum && checksum != *body.checksum)
    return fail(Errc::corrupt,
                "the received message of {} bytes differs from what was written to limits.body_directory",
                body.size);
  return {};
}

namespace {

std::string with_crlf(std::string_view header) {
  std::string out;
  out.reserve(header.size() + 16);
  for (char c : header) {
    if (c == '\n') out += '\r';
    out += c;
  }
  return out;
}

Result<StoredSize> write_as_received(std::string_view header, const MessageBody& body,
                                     const ChunkSink& sink) {
  std::string head = with_crlf(header);
  TL_TRY(sink(head));
  TL_TRY(read_body(body, body.size, sink));
  return StoredSize{head.size() + body.size, head.size() + body.size};
}

}  // namespace

Result<StoredSize> write_message(std::string_view header, const MessageBody& body, bool crlf,
                                 const ChunkSink& sink) {
  if (crlf) return write_as_received(header, body, sink);
  LineEndConverter converter;
  StoredSize size;
  std::string out;
  out.reserve(std::min<std::uint64_t>(body.size, chunk_bytes) + header.size() + 2);
  converter.feed(header, out);
  auto flush = [&]() -> Status {
    size.bytes += out.size();
    Status written = sink(out);
    out.clear();
    return written;
  };
  TL_TRY(read_body(body, body.size, [&](std::string_view chunk) -> Status {
    converter.feed(chunk, out);
    return out.size() < chunk_bytes ? Status{} : flush();
  }));
  converter.finish(out);
  if (!out.empty()) TL_TRY(flush());
  size.crlf_bytes = size.bytes + converter.bare_lf_count();
  return size;
}

}  // namespace twinloft::lmtpd
