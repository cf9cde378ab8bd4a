#include "spawn_wire.h"

#include <algorithm>

#include "twinloft/argv/argv.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::uint32_t request_magic = 0x31525354;  // "TSR1"
constexpr std::uint32_t result_magic = 0x31535354;   // "TSS1"
constexpr std::uint32_t ping_magic = 0x31505354;     // "TSP1"
constexpr std::size_t name_bytes_max = 1024;
constexpr std::size_t path_bytes_max = 4096;
constexpr std::size_t value_bytes_max = 16384;
constexpr std::size_t output_bytes_max = 65536;
constexpr std::uint32_t values_max = 64;

Result<std::string> get_text(Reader& in, const char* field, std::size_t limit) {
  auto text = in.get_text(limit);
  if (!text) return fail(Errc::invalid, "field {} is cut off, or has more than {} bytes", field, limit);
  if (text->find('\0') != std::string_view::npos)
    return fail(Errc::invalid, "field {} holds a NUL byte", field);
  return std::string(*text);
}

bool is_macro(std::string_view name) {
  const auto& known = argv::mail_macros();
  return std::any_of(known.begin(), known.end(), [&](const argv::MacroName& m) { return m.name == name; });
}

bool is_clean_home(const std::string& home) {
  if (home.empty() || home[0] != '/') return false;
  std::string bounded = home + "/";
  return bounded.find("/../") == std::string::npos;
}

}  // namespace

Result<std::vector<std::byte>> encode_request(const RunRequest& request) {
  std::vector<std::byte> packet;
  packet.reserve(1024);
  Writer out(packet);
  out.put(request_magic);
  out.put(request.agent);
  out.put(request.uid);
  out.put(request.gid);
  out.put_text(request.id);
  out.put_text(request.user);
  out.put_text(request.home);
  out.put<std::uint32_t>(static_cast<std::uint32_t>(request.values.size()));
  for (const auto& [name, value] : request.values) {
    out.put_text(name);
    out.put_text(value);
  }
  if (packet.size() > spawn_packet_bytes_max)
    return fail(Errc::exhausted, "the agent's values have {} bytes, at most {} are possible", packet.size(),
                spawn_packet_bytes_max);
  return packet;
}

Result<RunRequest> decode_request(ByteSpan packet) {
  Reader in(packet);
  if (in.get<std::uint32_t>() != request_magic) return fail(Errc::invalid, "not a request");
  RunRequest request;
  request.agent = in.get<std::uint32_t>();
  request.uid = in.get<std::uint32_t>();
  request.gid = in.get<std::uint32_t>();
  TL_TRY_ASSIGN(request.id, get_text(in, "id", name_bytes_max));
  TL_TRY_ASSIGN(request.user, get_text(in, "user", name_bytes_max));
  TL_TRY_ASSIGN(request.home, get_text(in, "home", path_bytes_max));
  if (!is_clean_home(request.home))
    return fail(Errc::invalid, "field home is not an absolute path without \"..\"");
  std::uint32_t count = in.get<std::uint32_t>();
  if (count > values_max) return fail(Errc::invalid, "{} values, at most {} are allowed", count, values_max);
  for (std::uint32_t i = 0; i < count; ++i) {
    TL_TRY_ASSIGN(std::string name, get_text(in, "macro name", name_bytes_max));
    if (!is_macro(name)) return fail(Errc::invalid, "a value for an unknown macro");
    TL_TRY_ASSIGN(std::string value, get_text(in, "macro value", value_bytes_max));
    request.values.emplace_back(std::move(name), std::move(value));
  }
  if (!in.ok() || in.remaining() != 0) return fail(Errc::invalid, "the request is too short or too long");
  return request;
}

std::vector<std::byte> encode_ping() {
  std::vector<std::byte> packet;
  Writer(packet).put(ping_magic);
  return packet;
}

bool is_ping(ByteSpan packet) {
  Reader in(packet);
  return in.get<std::uint32_t>() == ping_magic && in.ok() && in.remaining() == 0;
}

std::vector<std::byte> encode_result(const RunResult& result) {
  std::vector<std::byte> packet;
  Writer out(packet);
  out.put(result_magic);
  out.put(static_cast<std::uint32_t>(result.end));
  out.put(static_cast<std::uint32_t>(result.value));
  std::string_view output = result.output;
  if (output.size() > output_bytes_max) output.remove_prefix(output.size() - output_bytes_max);
  out.put_bytes(as_bytes(output));
  return packet;
}

Result<RunResult> decode_result(ByteSpan packet) {
  Reader in(packet);
  if (in.get<std::uint32_t>() != result_magic) return fail(Errc::corrupt, "not a result");
  std::uint32_t end = in.get<std::uint32_t>();
  RunResult result;
  result.value = static_cast<int>(in.get<std::uint32_t>());
  if (!in.ok() || end > static_cast<std::uint32_t>(RunResult::End::lost))
    return fail(Errc::corrupt, "the result is too short");
  result.end = static_cast<RunResult::End>(end);
  result.output = as_text(in.get_bytes(in.remaining()));
  return result;
}

}  // namespace twinloft::lmtpd
