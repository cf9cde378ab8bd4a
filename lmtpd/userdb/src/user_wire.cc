#include "user_wire.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/lmtpd/userdb/check.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t key_field_bytes_max = 1024;
constexpr std::size_t field_bytes_max = 8192;
constexpr std::uint8_t folders_max = static_cast<std::uint8_t>(FoldersByDetail::create) + 1;

enum class Kind : std::uint8_t { nobody, user, alias, error };

bool at_end(const Reader& in) {
  return in.ok() && in.remaining() == 0;
}

// A packet that begins with `kind`.
class Packet {
 public:
  explicit Packet(Kind kind) { out.put(static_cast<std::uint8_t>(kind)); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;

 public:
  Writer out{bytes_};
};

std::vector<std::byte> encode_error(Errc code, std::string_view message) {
  Packet packet(Kind::error);
  packet.out.put(static_cast<std::uint8_t>(code));
  packet.out.put_text(message.substr(0, field_bytes_max));
  return packet.take();
}

bool too_long(const UserEntry& entry) {
  if (const Alias* alias = std::get_if<Alias>(&entry)) return alias->address.size() > field_bytes_max;
  const User& u = std::get<User>(entry);
  for (const std::string* text : {&u.name, &u.home, &u.maildir, &u.agent, &u.next_hop})
    if (text->size() > field_bytes_max) return true;
  return false;
}

Result<FindResult> read_user(Reader& in) {
  User user;
  user.uid = in.get<std::uint32_t>();
  user.gid = in.get<std::uint32_t>();
  auto state = in.get<std::uint8_t>();
  user.quota.bytes = in.get<std::uint64_t>();
  user.quota.messages = in.get<std::uint64_t>();
  auto folders = in.get<std::uint8_t>();  // 0: no value
  for (std::string* text : {&user.name, &user.home, &user.maildir, &user.agent, &user.next_hop}) {
    auto value = in.get_text(field_bytes_max);
    if (!value) return fail(Errc::invalid, "a user that cannot be read");
    *text = *value;
  }
  if (!at_end(in) || state > static_cast<std::uint8_t>(UserState::deferred) || folders > folders_max)
    return fail(Errc::invalid, "a user that cannot be read");
  user.state = static_cast<UserState>(state);
  if (folders > 0) user.detail_folders = static_cast<FoldersByDetail>(folders - 1);
  TL_TRY(check_user(user));
  return FindResult(UserEntry(std::move(user)));
}

Result<FindResult> read_alias(Reader& in) {
  auto address = in.get_text(field_bytes_max);
  if (!address || !at_end(in)) return fail(Errc::invalid, "an alias that cannot be read");
  return FindResult(UserEntry(Alias{std::string(*address)}));
}

Result<FindResult> read_error(Reader& in) {
  auto code = in.get<std::uint8_t>();
  auto message = in.get_text(field_bytes_max);
  if (!message || !at_end(in) || code > static_cast<std::uint8_t>(Errc::internal))
    return fail(Errc::invalid, "an error that cannot be read");
  return FindResult(std::unexpected(Error{static_cast<Errc>(code), std::string(*message), 0}));
}

}  // namespace

Result<std::vector<std::byte>> encode_key(const UserKey& key) {
  if (key.local_part.size() > key_field_bytes_max || key.domain.size() > key_field_bytes_max)
    return fail(Errc::exhausted, "an address of more than {} bytes", key_field_bytes_max);
  std::vector<std::byte> packet;
  Writer out(packet);
  out.put_text(key.local_part);
  out.put_text(key.domain);
  return packet;
}

Result<UserKey> decode_key(ByteSpan packet) {
  Reader in(packet);
  auto local_part = in.get_text(key_field_bytes_max), domain = in.get_text(key_field_bytes_max);
  if (!local_part || !domain || !at_end(in)) return fail(Errc::invalid, "a key that cannot be read");
  return UserKey{std::string(*local_part), std::string(*domain)};
}

std::vector<std::byte> encode_found(const FindResult& found) {
  if (!found) return encode_error(found.error().code, found.error().message);
  if (!*found) return Packet(Kind::nobody).take();
  if (too_long(**found)) return encode_error(Errc::invalid, "a field of the row is too long");
  if (const Alias* alias = std::get_if<Alias>(&**found)) {
    Packet packet(Kind::alias);
    packet.out.put_text(alias->address);
    return packet.take();
  }
  const User& user = std::get<User>(**found);
  Packet packet(Kind::user);
  packet.out.put(user.uid);
  packet.out.put(user.gid);
  packet.out.put(static_cast<std::uint8_t>(user.state));
  packet.out.put(user.quota.bytes);
  packet.out.put(user.quota.messages);
  packet.out.put(
      static_cast<std::uint8_t>(user.detail_folders ? static_cast<int>(*user.detail_folders) + 1 : 0));
  for (const std::string* text : {&user.name, &user.home, &user.maildir, &user.agent, &user.next_hop})
    packet.out.put_text(*text);
  return packet.take();
}

Result<FindResult> decode_found(ByteSpan packet) {
  Reader in(packet);
  auto kind = in.get<std::uint8_t>();
  if (in.ok() && kind == static_cast<std::uint8_t>(Kind::nobody) && at_end(in))
    return FindResult(std::nullopt);
  if (kind == static_cast<std::uint8_t>(Kind::user)) return read_user(in);
  if (kind == static_cast<std::uint8_t>(Kind::alias)) return read_alias(in);
  if (kind == static_cast<std::uint8_t>(Kind::error)) return read_error(in);
  return fail(Errc::invalid, "an answer that cannot be read");
}

}  // namespace twinloft::lmtpd
