#include "twinloft/lmtpd/agents/external.h"

#include <fmt/format.h>

#include "agent_stdin.h"
#include "agent_values.h"
#include "twinloft/lmtpd/maildir/headers.h"
#include "twinloft/lmtpd/proto/error_reply.h"

namespace twinloft::lmtpd {

namespace {

const char* name_of(RunResult::End end) {
  switch (end) {
    case RunResult::End::exited:
      return "exit";
    case RunResult::End::signalled:
      return "signal";
    case RunResult::End::timed_out:
      return "time limit";
    case RunResult::End::not_started:
      return "not started";
    case RunResult::End::refused:
      return "refused";
    case RunResult::End::busy:
      return "busy";
    case RunResult::End::unkillable:
      return "unkillable";
    case RunResult::End::lost:
      return "spawner lost";
  }
  return "unknown";
}

RunRequest make_request(std::uint32_t agent, const Envelope& envelope, const Recipient& recipient,
                        const MessageBody& body) {
  const User& user = recipient.user;
  RunRequest request;
  request.agent = agent;
  request.id = envelope.id;
  request.user = user.name;
  request.uid = user.uid;
  request.gid = user.gid;
  request.home = user.home;
  request.values = agent_values(envelope, recipient, body.size);
  return request;
}

std::string describe(const RunResult& result) {
  if (result.end != RunResult::End::not_started || result.value == 0)
    return fmt::format("{} {} {}", name_of(result.end), result.value, clean_reply_text(result.output));
  // Some steps have the reason in their name.
  std::string step = clean_reply_text(result.output),
              reason = fail_errno(result.value, "{}", step).error().message;
  bool says_why = step.ends_with(std::string_view(reason).substr(step.size()));
  return fmt::format("{}: {}", name_of(result.end), says_why ? step : reason);
}

HeaderChoice chosen_headers(const AgentSpec& spec) {
  return {spec.add_return_path, spec.add_delivered_to, spec.add_original_to, spec.add_received};
}

DeliveryOutcome not_delivered(const Error& error) {
  return {reply_of_error(error), error.message};
}

}  // namespace

DeliveryOutcome ExternalAgents::deliver(std::uint32_t agent, const SpoolHandle& handle,
                                        const Envelope& envelope, const Recipient& recipient,
                                        const MessageBody& body) {
  const AgentSpec& spec = spawner_.agents()[agent];
  ForeignWrites::InFlight in_flight(writes_);
  auto loop = find_loop(body, recipient, {true, config_.received_max});
  if (!loop) return not_delivered(loop.error());
  if (*loop) return {{554, "5.4.6", clean_reply_text(**loop)}, **loop};
  // syncfs covers the spool alone: mail in another place would not be durable before the 250. An agent with
  // `syncs` may use another place, if the user's row names no Maildir.
  const std::string& where = recipient.user.maildir.empty() ? recipient.user.home : recipient.user.maildir;
  auto inside = spool_.relative(where);
  if (!inside && (!recipient.user.maildir.empty() || !spec.syncs)) return not_delivered(inside.error());
  std::string header = delivery_header(envelope, recipient, chosen_headers(spec), config_.hostname,
                                       clock_.wall());
  auto message = AgentStdin::create(
      header, body, spec.crlf,
      {config_.memory_bytes_max, config_.memory.get(), config_.temporary, config_.disk.get()});
  if (!message) return not_delivered(message.error());
  RunResult result = spawner_.run(make_request(agent, envelope, recipient, body), message->fd());
  Reply reply = reply_of_run(spec, result, message->was_read());
  if (reply.code != 250) return {std::move(reply), describe(result)};
  Status durable{};
  if (!spec.syncs)
    durable = writes_.make_durable(handle);
  else if (inside)
    durable = writes_.check(handle);
  if (!durable) return {{451, "4.3.0", "The message could not be made durable"}, durable.error().message};
  return {std::move(reply),
          {},
          {},
          header.size() + body.size,
          spec.syncs ? MadeDurable::by_agent : MadeDurable::after_agent};
}

}  // namespace twinloft::lmtpd
