#include "twinloft/spool-repl/export/nbd_handshake.h"

#include <algorithm>

namespace twinloft::repl::nbd {

namespace {

template <std::unsigned_integral T>
void put(std::vector<std::byte>& out, T value) {
  std::byte b[sizeof(T)];
  store_be(b, value);
  out.insert(out.end(), b, b + sizeof b);
}
void put(std::vector<std::byte>& out, ByteSpan data) {
  out.insert(out.end(), data.begin(), data.end());
}

}  // namespace

void Handshake::greet(std::vector<std::byte>& out) const {
  put(out, greeting_magic);
  put(out, option_magic);
  put(out, static_cast<std::uint16_t>(handshake_fixed_newstyle | handshake_no_zeroes));
}

std::uint16_t Handshake::transmission_flags() const {
  // MULTI_CONN: all connections have the same target, so a flush covers the completed requests of all of
  // them. FAST_ZERO: zeros are extents without payload, and never slower than a write.
  std::uint16_t flags = flag_has_flags | flag_send_flush | flag_send_fua | flag_send_trim |
                        flag_send_write_zeroes | flag_can_multi_conn | flag_send_cache | flag_send_fast_zero;
  if (structured_) flags |= flag_send_df;
  return flags;
}

void Handshake::consume(ByteSpan& in, std::vector<std::byte>& out) {
  while (state_ == State::negotiating) {
    if (!gather(in)) return;
    on_gathered(out);
  }
}

// True once all bytes of the stage have arrived.
bool Handshake::gather(ByteSpan& in) {
  if (stage_ == Stage::skipping) {
    std::size_t n = std::min(skip_, in.size());
    in = in.subspan(n);
    skip_ -= n;
    return skip_ == 0;
  }
  std::size_t n = std::min(want_ - have_.size(), in.size());
  have_.insert(have_.end(), in.begin(), in.begin() + static_cast<std::ptrdiff_t>(n));
  in = in.subspan(n);
  return have_.size() == want_;
}

void Handshake::expect(Stage stage, std::size_t bytes) {
  stage_ = stage;
  want_ = bytes;
  have_.clear();
}

void Handshake::broken(std::string_view why) {
  state_ = State::broken;
  why_ = why;
}

void Handshake::on_gathered(std::vector<std::byte>& out) {
  switch (stage_) {
    case Stage::client_flags:
      return on_client_flags();
    case Stage::option_header:
      return on_option_header();
    case Stage::skipping:
      reply_error(out, OptionReply::err_too_big, "the option's data is too long");
      return expect(Stage::option_header, 16);
    case Stage::option_data:
      on_option(out);
      if (state_ == State::negotiating) expect(Stage::option_header, 16);
  }
}

void Handshake::on_client_flags() {
  auto flags = load_be<std::uint32_t>(have_.data());
  if ((flags & ~std::uint32_t{handshake_fixed_newstyle | handshake_no_zeroes}) != 0)
    return broken("unknown client flags");
  no_zeroes_ = (flags & handshake_no_zeroes) != 0;
  expect(Stage::option_header, 16);
}

void Handshake::on_option_header() {
  if (load_be<std::uint64_t>(have_.data()) != option_magic)
    return broken("an option without its magic number");
  if (++options_seen_ > max_options) return broken("too many options");
  option_ = static_cast<Option>(load_be<std::uint32_t>(have_.data() + 8));
  option_bytes_ = load_be<std::uint32_t>(have_.data() + 12);
  if (option_ == Option::export_name && option_bytes_ > max_name_bytes)
    return broken("the export's name is too long");  // this option has no error reply
  if (option_bytes_ > max_skipped_bytes) return broken("an option far too long");
  if (option_bytes_ <= max_option_bytes) return expect(Stage::option_data, option_bytes_);
  stage_ = Stage::skipping;
  skip_ = option_bytes_;
}

void Handshake::secured() {
  secured_ = true;
  structured_ = false;
  state_ = State::negotiating;
  expect(Stage::option_header, 16);
}

void Handshake::on_starttls(std::vector<std::byte>& out) {
  if (tls_ == Tls::none)
    return reply_error(out, OptionReply::err_policy, "this server has no TLS configured");
  if (secured_) return reply_error(out, OptionReply::err_invalid, "TLS has begun already");
  if (!have_.empty()) return reply_error(out, OptionReply::err_invalid, "STARTTLS carries no data");
  reply(out, OptionReply::ack);
  state_ = State::starting_tls;
}

void Handshake::on_option(std::vector<std::byte>& out) {
  bool forbidden = tls_ == Tls::required && !secured_ && option_ != Option::abort &&
                   option_ != Option::starttls;
  if (forbidden && option_ == Option::export_name)
    return broken("a client without TLS");  // this option has no error reply
  if (forbidden) return reply_error(out, OptionReply::err_tls_reqd, "this server demands STARTTLS");
  switch (option_) {
    case Option::export_name:
      return on_export_name(out);
    case Option::abort:
      reply(out, OptionReply::ack);
      state_ = State::finished;
      return;
    case Option::list:
      return on_list(out);
    case Option::info:
    case Option::go:
      return on_info_or_go(out);
    case Option::structured_reply:
      if (!have_.empty())
        return reply_error(out, OptionReply::err_invalid, "STRUCTURED_REPLY carries no data");
      structured_ = true;
      return reply(out, OptionReply::ack);
    case Option::starttls:
      return on_starttls(out);
    default:
      return reply_error(out, OptionReply::err_unsup, "unknown option");
  }
}

void Handshake::on_export_name(std::vector<std::byte>& out) {
  name_ = as_text(have_);
  auto size = exports_.find(name_);
  if (!size) return broken("no export of that name");
  put(out, *size);
  put(out, transmission_flags());
  if (!no_zeroes_) out.insert(out.end(), 124, std::byte{0});
  state_ = State::transmission;
}

void Handshake::on_list(std::vector<std::byte>& out) {
  if (!have_.empty()) return reply_error(out, OptionReply::err_invalid, "LIST carries no data");
  if (!exports_.list)
    return reply_error(out, OptionReply::err_policy, "this server does not list its exports");
  for (const auto& name : exports_.list()) {
    std::vector<std::byte> data;
    put(data, static_cast<std::uint32_t>(name.size()));
    put(data, as_bytes(name));
    reply(out, OptionReply::server, data);
  }
  reply(out, OptionReply::ack);
}

void Handshake::on_info_or_go(std::vector<std::byte>& out) {
  // A name length of 32 bits, the name, a count of 16 bits, and as many information requests of 16 bits.
  constexpr std::string_view malformed = "the option's lengths do not fit together";
  if (have_.size() < 6) return reply_error(out, OptionReply::err_invalid, malformed);
  std::size_t name_bytes = load_be<std::uint32_t>(have_.data());
  if (name_bytes > have_.size() - 6) return reply_error(out, OptionReply::err_invalid, malformed);
  std::size_t count = load_be<std::uint16_t>(have_.data() + 4 + name_bytes);
  if (have_.size() != 6 + name_bytes + 2 * count)
    return reply_error(out, OptionReply::err_invalid, malformed);
  if (name_bytes > max_name_bytes)
    return reply_error(out, OptionReply::err_too_big, "the export's name is too long");

  std::string name(as_text(ByteSpan(have_).subspan(4, name_bytes)));
  auto size = exports_.find(name);
  if (!size) return reply_error(out, OptionReply::err_unknown, "no export of that name");

  std::vector<std::byte> data;
  put(data, static_cast<std::uint16_t>(Info::export_));
  put(data, *size);
  put(data, transmission_flags());
  reply(out, OptionReply::info, data);
  // Also sent without a request for it, since the limits apply to every client.
  data.clear();
  put(data, static_cast<std::uint16_t>(Info::block_size));
  put(data, min_block_bytes);
  put(data, preferred_block_bytes);
  put(data, max_payload_bytes);
  reply(out, OptionReply::info, data);
  reply(out, OptionReply::ack);
  if (option_ != Option::go) return;
  name_ = std::move(name);
  state_ = State::transmission;
}

void Handshake::reply(std::vector<std::byte>& out, OptionReply type, ByteSpan data) const {
  put(out, option_reply_magic);
  put(out, static_cast<std::uint32_t>(option_));
  put(out, static_cast<std::uint32_t>(type));
  put(out, static_cast<std::uint32_t>(data.size()));
  put(out, data);
}

void Handshake::reply_error(std::vector<std::byte>& out, OptionReply type, std::string_view message) const {
  reply(out, type, as_bytes(message));
}

}  // namespace twinloft::repl::nbd
