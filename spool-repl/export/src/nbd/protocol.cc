#include <algorithm>
#include <cerrno>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/export/nbd_protocol.h"

namespace twinloft::repl::nbd {

WireError to_wire_error(int sys) {
  switch (sys) {
    case 0:
      return WireError::none;
    case EPERM:
    case EACCES:
    case EROFS:
      return WireError::eperm;
    case ENOMEM:
      return WireError::enomem;
    case EINVAL:
      return WireError::einval;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return WireError::enospc;
    case EOPNOTSUPP:
      return WireError::enotsup;
    case ESHUTDOWN:
      return WireError::eshutdown;
    default:
      return WireError::eio;
  }
}

std::optional<Request> decode_request(std::span<const std::byte, request_bytes> in) {
  if (load_be<std::uint32_t>(in.data()) != request_magic) return std::nullopt;
  Request r;
  r.flags = load_be<std::uint16_t>(in.data() + 4);
  r.command = load_be<std::uint16_t>(in.data() + 6);
  r.cookie = load_be<std::uint64_t>(in.data() + 8);
  r.offset = load_be<std::uint64_t>(in.data() + 16);
  r.length = load_be<std::uint32_t>(in.data() + 24);
  return r;
}

void encode_request(const Request& r, std::span<std::byte, request_bytes> out) {
  store_be(out.data(), request_magic);
  store_be(out.data() + 4, r.flags);
  store_be(out.data() + 6, r.command);
  store_be(out.data() + 8, r.cookie);
  store_be(out.data() + 16, r.offset);
  store_be(out.data() + 24, r.length);
}

namespace {

std::uint16_t allowed_flags(Command command) {
  switch (command) {
    case Command::read:
      return command_fua | command_df;
    case Command::write_zeroes:
      return command_fua | command_no_hole | command_fast_zero;
    default:
      return command_fua;  // the specification allows FUA for every command
  }
}

bool inside(const Request& r, std::uint64_t size_bytes) {
  return r.offset <= size_bytes && r.length <= size_bytes - r.offset;
}

}  // namespace

WireError check_request(const Request& r, std::uint64_t size_bytes) {
  if (r.command > static_cast<std::uint16_t>(Command::write_zeroes)) return WireError::einval;
  auto command = static_cast<Command>(r.command);
  if ((r.flags & ~allowed_flags(command)) != 0) return WireError::einval;
  switch (command) {
    case Command::disconnect:
      return WireError::none;
    case Command::flush:
      return r.offset == 0 && r.length == 0 ? WireError::none : WireError::einval;
    case Command::read:
      if (r.length > max_payload_bytes) return WireError::einval;
      [[fallthrough]];
    case Command::trim:
    case Command::cache:
      return r.length > 0 && inside(r, size_bytes) ? WireError::none : WireError::einval;
    case Command::write:
      if (r.length > max_payload_bytes) return WireError::einval;
      [[fallthrough]];
    case Command::write_zeroes:
      if (r.length == 0) return WireError::einval;
      return inside(r, size_bytes) ? WireError::none : WireError::enospc;
  }
  return WireError::einval;
}

namespace {

constexpr std::uint16_t chunk_done = 1;
constexpr std::uint16_t chunk_offset_data = 1;
constexpr std::uint16_t chunk_error = 0x8001;

ReplyHeader structured_reply(const Request& r, WireError error) {
  ReplyHeader h;
  std::byte* at = h.bytes.data();
  store_be(at, structured_reply_magic);
  store_be(at + 4, chunk_done);
  store_be(at + 8, r.cookie);
  if (error == WireError::none) {
    store_be(at + 6, chunk_offset_data);
    store_be(at + 16, static_cast<std::uint32_t>(r.length + 8));
    store_be(at + 20, r.offset);
    h.size = 28;
  } else {
    store_be(at + 6, chunk_error);
    store_be(at + 16, std::uint32_t{6});
    store_be(at + 20, static_cast<std::uint32_t>(error));
    store_be(at + 24, std::uint16_t{0});  // no message
    h.size = 26;
  }
  return h;
}

}  // namespace

ReplyHeader encode_reply(const Request& r, WireError error, bool structured) {
  if (structured && r.is(Command::read)) return structured_reply(r, error);
  ReplyHeader h;
  store_be(h.bytes.data(), simple_reply_magic);
  store_be(h.bytes.data() + 4, static_cast<std::uint32_t>(error));
  store_be(h.bytes.data() + 8, r.cookie);
  h.size = 16;
  return h;
}

RequestReader::Event RequestReader::next(ByteSpan& in, ByteSpan& piece) {
  if (in.empty()) return Event::need_input;
  if (payload_left_ > 0) {
    piece = in.first(std::min<std::size_t>(in.size(), payload_left_));
    in = in.subspan(piece.size());
    payload_left_ -= static_cast<std::uint32_t>(piece.size());
    return Event::payload;
  }
  std::size_t n = std::min(in.size(), request_bytes - header_have_);
  std::copy_n(in.begin(), n, header_.begin() + static_cast<std::ptrdiff_t>(header_have_));
  in = in.subspan(n);
  header_have_ += n;
  // Four bytes show a wrong magic: a client of another protocol may never send more.
  if (header_have_ >= 4 && load_be<std::uint32_t>(header_.data()) != request_magic) return Event::bad_magic;
  if (header_have_ < request_bytes) return Event::need_input;
  header_have_ = 0;
  request_ = *decode_request(header_);
  if (request_.is(Command::write)) payload_left_ = request_.length;
  return Event::request;
}

void RequestReader::payload_received(std::uint32_t bytes) {
  TL_CHECK(bytes <= payload_left_);
  payload_left_ -= bytes;
}

}  // namespace twinloft::repl::nbd
