#include "twinloft/lmtpd/service/control.h"

#include <poll.h>

#include <cstddef>
#include <variant>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

void obey(const DrainServer& order, const Control& control, const Ordered& server) {
  log_info("generation {} serves: generation {} of the configuration drains", order.successor,
           control.generation());
  server.drain();
}

void obey(const StopServer&, const Control&, const Ordered& server) {
  server.stop();
}

void obey(const AbortServer&, const Control&, const Ordered& server) {
  server.abort();
}

// False: the supervisor is gone.
bool obey_next(const Control& control, const Ordered& server) {
  std::vector<std::byte> packet;
  switch (read_packet(control.channel(), packet)) {
    case Heard::nothing:
      return true;
    case Heard::end:
      return false;
    case Heard::packet:
      break;
  }
  auto message = decode_to_server(packet);
  if (!message)
    log_error("from the supervisor: {}", message.error().message);
  else if (*message)
    std::visit([&](const auto& order) { obey(order, control, server); }, **message);
  return true;
}

// Notifies the supervisor, once for each helper that has ended or gives no sign of life. A client that stays
// here would only get 451.
void tell_crippled(const Control& control, const Ordered& server, Helper& helper, std::string_view what) {
  helper.lifeline = -1;
  helper.beat = nullptr;
  log_error("{}: another server process will take over", what);
  if (helper.for_all) server.hurry();
  (void)control.say(ServerCrippled{});
}

void look_after(const Control& control, const Ordered& server, Helper& helper, const pollfd& waited) {
  if (!helper.beat) return;
  if (waited.revents != 0) return tell_crippled(control, server, helper, helper.gone);
  if (Status alive = helper.beat(); !alive) tell_crippled(control, server, helper, alive.error().message);
}

// A process that hangs sends no sign of life, so the supervisor kills it.
class SignsOfLife {
 public:
  SignsOfLife(const Control& control, const Ordered& server, const Clock& clock)
      : control_(control), server_(server), clock_(clock), due_(clock.now()) {}

  void give() {
    constexpr Duration pause = std::chrono::seconds(5);
    Instant now = clock_.now();
    if (now < due_ || !server_.takes_turns()) return;
    (void)control_.say(ServerLives{}, WhenFull::drop);
    due_ = now + pause;
  }

 private:
  const Control& control_;
  const Ordered& server_;
  const Clock& clock_;
  Instant due_;
};

}  // namespace

bool Control::say(const FromServer& message, WhenFull when_full) const {
  return write_packet(channel_, encode_message(message), when_full);
}

// If the supervisor is gone, the server stops, because no other process can stop it.
void obey_supervisor(const Control& control, const Ordered& server, std::vector<Helper> helpers,
                     const std::atomic<bool>& aborted, const Clock& clock) {
  constexpr int beat_ms = 1000;
  SignsOfLife signs(control, server, clock);
  std::vector<pollfd> waits(helpers.size() + 1, pollfd{control.channel(), POLLIN, 0});
  for (;;) {
    for (std::size_t i = 0; i < helpers.size(); ++i) waits[i + 1] = {helpers[i].lifeline, 0, 0};
    if (::poll(waits.data(), waits.size(), beat_ms) < 0) continue;
    signs.give();
    for (std::size_t i = 0; i < helpers.size() && !aborted; ++i)
      look_after(control, server, helpers[i], waits[i + 1]);
    if (aborted) helpers.clear(), waits.resize(1);  // their end is expected
    if (waits[0].revents == 0) continue;
    if (!obey_next(control, server)) return server.stop();
  }
}

}  // namespace twinloft::lmtpd
