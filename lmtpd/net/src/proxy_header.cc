#include "proxy_header.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "twinloft/base/crc32c.h"
#include "twinloft/lmtpd/net/networks.h"

namespace twinloft::lmtpd {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view signature = "\r\n\r\n\0\r\nQUIT\n"sv;
constexpr std::size_t fixed_bytes = 16;
constexpr unsigned version_2 = 0x2, command_local = 0x0, command_proxy = 0x1;
constexpr unsigned family_inet = 0x1, family_inet6 = 0x2, transport_stream = 0x1;
constexpr std::size_t inet_bytes = 12, inet6_bytes = 36;
constexpr unsigned tlv_crc32c = 0x03;

unsigned byte_at(ByteSpan in, std::size_t at) {
  return std::to_integer<unsigned>(in[at]);
}
std::size_t u16_at(ByteSpan in, std::size_t at) {
  return byte_at(in, at) << 8 | byte_at(in, at + 1);
}

// The checksum covers the whole header, with the four bytes of the checksum as zeros.
Status check_crc(ByteSpan header, std::size_t at) {
  std::uint32_t said = static_cast<std::uint32_t>(u16_at(header, at) << 16 | u16_at(header, at + 2));
  std::vector<std::byte> copy(header.begin(), header.end());
  std::fill_n(copy.begin() + static_cast<std::ptrdiff_t>(at), 4, std::byte{0});
  if (crc32c(copy) != said) return fail(Errc::corrupt, "a PROXY header whose checksum is wrong");
  return {};
}

Status check_tlvs(ByteSpan header, std::size_t at) {
  while (at < header.size()) {
    if (header.size() - at < 3 || header.size() - at - 3 < u16_at(header, at + 1))
      return fail(Errc::invalid, "a PROXY header whose last field is cut off");
    std::size_t size = u16_at(header, at + 1);
    if (byte_at(header, at) == tlv_crc32c) {
      if (size != 4) return fail(Errc::invalid, "a PROXY header with a checksum of {} bytes", size);
      TL_TRY(check_crc(header, at + 3));
    }
    at += 3 + size;
  }
  return {};
}

sockaddr_storage inet_source(ByteSpan address) {
  sockaddr_storage out{};
  auto& to = reinterpret_cast<sockaddr_in&>(out);
  to.sin_family = AF_INET;
  std::memcpy(&to.sin_addr, address.data(), 4);
  std::memcpy(&to.sin_port, address.data() + 8, 2);
  return out;
}

sockaddr_storage inet6_source(ByteSpan address) {
  sockaddr_storage out{};
  auto& to = reinterpret_cast<sockaddr_in6&>(out);
  to.sin6_family = AF_INET6;
  std::memcpy(&to.sin6_addr, address.data(), 16);
  std::memcpy(&to.sin6_port, address.data() + 32, 2);
  return unmapped(out);
}

}  // namespace

Result<std::optional<ProxyHeader>> decode_proxy_header(ByteSpan in) {
  std::size_t known = std::min(in.size(), signature.size());
  if (as_text(in.first(known)) != signature.substr(0, known))
    return fail(Errc::invalid, "no PROXY header of version 2, but [[listen]] proxy names this address");
  if (in.size() < fixed_bytes) return std::nullopt;
  unsigned version = byte_at(in, 12) >> 4, command = byte_at(in, 12) & 0xf, family = byte_at(in, 13) >> 4,
           transport = byte_at(in, 13) & 0xf;
  std::size_t rest = u16_at(in, 14);
  if (version != version_2 || command > command_proxy)
    return fail(Errc::invalid, "a PROXY header of version {}, command {}", version, command);
  if (fixed_bytes + rest > proxy_header_bytes_max)
    return fail(Errc::invalid, "a PROXY header of {} bytes; at most {} are accepted", fixed_bytes + rest,
                proxy_header_bytes_max);
  if (in.size() < fixed_bytes + rest) return std::nullopt;
  ByteSpan header = in.first(fixed_bytes + rest), address = header.subspan(fixed_bytes);
  ProxyHeader out{header.size(), std::nullopt};
  std::size_t used = 0;
  if (command == command_local) return out;  // the rest of the header is skipped
  if (transport == transport_stream && (family == family_inet || family == family_inet6)) {
    used = family == family_inet ? inet_bytes : inet6_bytes;
    if (address.size() < used)
      return fail(Errc::invalid, "a PROXY header of {} bytes, too short for its addresses", header.size());
    out.source = family == family_inet ? inet_source(address) : inet6_source(address);
    TL_TRY(check_tlvs(header, fixed_bytes + used));
  }
  return out;
}

}  // namespace twinloft::lmtpd
