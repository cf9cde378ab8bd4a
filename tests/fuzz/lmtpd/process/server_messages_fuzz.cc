// The input is a packet between the supervisor, which may be root, and a server process that an attacker
// controls. A decoded message is encoded to the same bytes, except for fields that a newer peer has appended.
#include <cstdint>
#include <span>

#include "twinloft/base/check.h"
#include "twinloft/lmtpd/process/server_messages.h"

using namespace twinloft;
using namespace twinloft::lmtpd;

namespace {

constexpr std::size_t header_bytes = 4;

template <class Message>
void check(ByteSpan packet, const Message& message) {
  TL_CHECK(packet.size() <= server_message_bytes_max);
  const auto again = encode_message(message);
  TL_CHECK(again.size() <= packet.size());
  TL_CHECK(as_text(again).substr(0, 2) == as_text(packet).substr(0, 2));
  TL_CHECK(as_text(packet).substr(header_bytes).starts_with(as_text(again).substr(header_bytes)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteSpan packet = std::as_bytes(std::span(data, size));
  const auto from = decode_from_server(packet);
  const auto to = decode_to_server(packet);
  if (from && *from) check(packet, **from);
  if (to && *to) check(packet, **to);
  TL_CHECK(!(from && *from && to && *to));
  return 0;
}
