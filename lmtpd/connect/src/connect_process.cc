#include <algorithm>
#include <cstdint>
#include <string>

#include "twinloft/lmtpd/connect/connector.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t lanes_max = 128;
constexpr auto spare_time = std::chrono::seconds(1);  // in which the process itself reports a timeout
constexpr std::size_t message_bytes_max = 4096;

// 1: with a descriptor. 0: with the code and the text of an error.
LaneAnswer encode_connected(Result<Fd> connected) {
  LaneAnswer answer;
  Writer out(answer.packet);
  out.put(static_cast<std::uint8_t>(connected ? 1 : 0));
  if (connected) {
    answer.fd = std::move(*connected);
    return answer;
  }
  out.put(static_cast<std::uint8_t>(connected.error().code));
  out.put_text(std::string_view(connected.error().message).substr(0, message_bytes_max));
  return answer;
}

Result<Fd> decode_connected(LaneAnswer answer) {
  Reader in(answer.packet);
  bool connected = in.get<std::uint8_t>() == 1;
  if (in.ok() && connected && in.remaining() == 0 && answer.fd) return std::move(answer.fd);
  auto code = in.get<std::uint8_t>();
  auto message = in.get_text(message_bytes_max);
  if (connected || !message || code > static_cast<std::uint8_t>(Errc::internal))
    return fail(Errc::unavailable, "the process that makes connections sent an invalid answer");
  return fail(static_cast<Errc>(code), "{}", *message);
}

LaneAnswer connect_for(const std::vector<ConnectTarget>& targets, ByteSpan request) {
  Reader in(request);
  auto target = in.get<std::uint32_t>();
  if (!in.ok() || in.remaining() != 0 || target >= targets.size())
    return encode_connected(fail(Errc::denied, "no such target is configured"));
  return encode_connected(connect_to(targets[target]));
}

}  // namespace

Result<std::unique_ptr<ConnectProcess>> ConnectProcess::start(std::vector<ConnectTarget> targets,
                                                              const std::function<Status()>& become) {
  std::size_t each = std::clamp<std::size_t>(lanes_max / std::max<std::size_t>(targets.size(), 1), 1,
                                             at_once_max);
  auto open = [&targets]() -> Result<LaneProcess::Serve> {
    return LaneProcess::Serve([targets](ByteSpan request) { return connect_for(targets, request); });
  };
  TL_TRY_ASSIGN(auto process, LaneProcess::start({"lmtpd-connect", "the process that makes connections", each,
                                                  targets.size()},
                                                 become, open));
  return std::unique_ptr<ConnectProcess>(new ConnectProcess(std::move(process), targets));
}

ConnectProcess::ConnectProcess(std::unique_ptr<LaneProcess> process,
                               const std::vector<ConnectTarget>& targets)
    : process_(std::move(process)) {
  for (const ConnectTarget& target : targets) timeouts_.push_back(target.timeout);
}

Result<Fd> ConnectProcess::connect(std::size_t target) {
  if (target >= timeouts_.size()) return fail(Errc::denied, "no such target is configured");
  std::vector<std::byte> request;
  Writer(request).put(static_cast<std::uint32_t>(target));
  TL_TRY_ASSIGN(LaneAnswer answer, process_->ask(request, timeouts_[target] + spare_time, target));
  return decode_connected(std::move(answer));
}

}  // namespace twinloft::lmtpd
