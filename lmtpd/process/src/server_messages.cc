#include "twinloft/lmtpd/process/server_messages.h"

#include <utility>

namespace twinloft::lmtpd {

namespace {

constexpr std::uint8_t version = 1;

template <class Message>
void put_fields(Writer&, const Message&) {}
void put_fields(Writer& out, const ServerReady& m) {
  out.put(m.generation);
}
void put_fields(Writer& out, const DrainServer& m) {
  out.put(m.successor);
}

template <class Message>
void get_fields(Reader&, Message&) {}
void get_fields(Reader& in, ServerReady& m) {
  m.generation = in.get<Generation>();
}
void get_fields(Reader& in, DrainServer& m) {
  m.successor = in.get<Generation>();
}

template <class Message>
std::vector<std::byte> encode(const Message& message) {
  std::vector<std::byte> payload, packet;
  Writer fields(payload);
  put_fields(fields, message);
  Writer out(packet);
  out.put(version);
  out.put(Message::type);
  out.put(static_cast<std::uint16_t>(payload.size()));
  out.put_bytes(payload);
  return packet;
}

// Decodes the payload into the alternative of Messages with this type.
template <class Messages, std::size_t at = 0>
Result<std::optional<Messages>> decode_payload(std::uint8_t type, Reader& in) {
  if constexpr (at == std::variant_size_v<Messages>) {
    return std::nullopt;
  } else {
    using Message = std::variant_alternative_t<at, Messages>;
    if (type != Message::type) return decode_payload<Messages, at + 1>(type, in);
    Message message;
    get_fields(in, message);
    if (!in.ok()) return fail(Errc::invalid, "the payload of a message of type {} is too short", type);
    return Messages(message);
  }
}

template <class Messages>
Result<std::optional<Messages>> decode(ByteSpan packet) {
  if (packet.size() > server_message_bytes_max)
    return fail(Errc::invalid, "a message of more than {} bytes", server_message_bytes_max);
  Reader in(packet);
  auto its_version = in.get<std::uint8_t>();
  auto type = in.get<std::uint8_t>();
  auto length = in.get<std::uint16_t>();
  if (!in.ok()) return fail(Errc::invalid, "a message of {} bytes", packet.size());
  if (its_version != version) return fail(Errc::invalid, "a message of version {}", its_version);
  if (length != in.remaining())
    return fail(Errc::invalid, "a message with {} bytes of payload, but its header says {}", in.remaining(),
                length);
  return decode_payload<Messages>(type, in);
}

}  // namespace

std::vector<std::byte> encode_message(const FromServer& message) {
  return std::visit([](const auto& m) { return encode(m); }, message);
}
std::vector<std::byte> encode_message(const ToServer& message) {
  return std::visit([](const auto& m) { return encode(m); }, message);
}

Result<std::optional<FromServer>> decode_from_server(ByteSpan packet) {
  return decode<FromServer>(packet);
}
Result<std::optional<ToServer>> decode_to_server(ByteSpan packet) {
  return decode<ToServer>(packet);
}

}  // namespace twinloft::lmtpd
