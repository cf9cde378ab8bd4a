#include "twinloft/lmtpd/milter/packet.h"

#include "twinloft/base/check.h"

namespace twinloft::lmtpd::milter {

namespace {

constexpr std::size_t length_bytes = 4;

std::uint32_t number_at(std::string_view bytes) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

}  // namespace

void append_number(std::string& out, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(number >> shift & 0xff);
}

void append_packet(std::string& out, char kind, std::string_view data) {
  TL_CHECK(data.size() <= data_bytes_max);
  append_number(out, static_cast<std::uint32_t>(data.size() + 1));
  out += kind;
  out += data;
}

std::uint32_t DataReader::number() {
  if (rest_.size() < length_bytes) {
    rest_ = {};
    ok_ = false;
    return 0;
  }
  std::uint32_t number = number_at(rest_);
  rest_.remove_prefix(length_bytes);
  return number;
}

std::string_view DataReader::text() {
  if (rest_.empty()) {
    ok_ = false;
    return {};
  }
  std::size_t end = rest_.find('\0');
  std::string_view text = rest_.substr(0, end);
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  return text;
}

void PacketReader::add(std::string_view bytes) {
  bytes_.erase(0, std::exchange(at_, 0));
  bytes_ += bytes;
}

Result<std::optional<Packet>> PacketReader::next() {
  std::string_view rest = std::string_view(bytes_).substr(at_);
  if (rest.size() < length_bytes) return std::nullopt;
  std::size_t length = number_at(rest);
  if (length == 0) return fail(Errc::invalid, "a packet without a kind");
  if (length - 1 > data_from_filter_max)
    return fail(Errc::invalid, "a packet of {} bytes; the limit is {}", length - 1, data_from_filter_max);
  if (rest.size() - length_bytes < length) return std::nullopt;
  at_ += length_bytes + length;
  return Packet{rest[length_bytes], rest.substr(length_bytes + 1, length - 1)};
}

}  // namespace twinloft::lmtpd::milter
