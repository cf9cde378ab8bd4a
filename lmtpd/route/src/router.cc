#include "twinloft/lmtpd/route/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <unordered_map>

#include "hop.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/delivery/delivery_lines.h"
#include "twinloft/lmtpd/maildir/headers.h"
#include "twinloft/lmtpd/proto/error_reply.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::chrono::seconds sweep_pause{1};

}  // namespace

Result<HopTls> parse_hop_tls(std::string_view text) {
  if (text == "none") return HopTls::none;
  if (text == "may") return HopTls::may;
  if (text == "encrypt") return HopTls::encrypt;
  if (text == "verify") return HopTls::verify;
  return fail(Errc::invalid, "expected \"none\", \"may\", \"encrypt\" or \"verify\"");
}

Result<HopRecipient> parse_hop_recipient(std::string_view text) {
  if (text == "address") return HopRecipient::address;
  if (text == "user") return HopRecipient::user;
  return fail(Errc::invalid, "expected \"address\" or \"user\"");
}

std::string text_of_hop(std::string_view name) {
  return name == local_hop_name ? "dovecot-lmtp" : fmt::format("next hop {}", name);
}

struct Router::Impl {
  Impl(RouterConfig c, Deliverer* l, Connector& connector, const Clock& k, ForeignWrites* w)
      : config(std::move(c)), local(l), clock(k), writes(w) {
    for (const RouterConfig::Hop& hop : config.hops)
      hops.emplace(hop.spec.name, std::make_unique<Hop>(hop, config, connector, clock));
    sweeper = std::thread([this] { sweep(); });
  }
  ~Impl() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    sweeper.join();
  }

  void sweep() {
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, sweep_pause, [this] { return stopping; }))
      for (auto& [name, hop] : hops) hop->close_idle();
  }

  std::vector<DeliveryOutcome> hand_over(const std::string& name, const Envelope& envelope,
                                         std::span<const std::size_t> recipients, const MessageBody& body,
                                         const GivenUp& given_up);
  void soften(const Envelope& envelope, std::span<const std::size_t> recipients,
              std::vector<DeliveryOutcome>& outcomes) const;
  void make_durable(const SpoolHandle& handle, std::vector<DeliveryOutcome>& outcomes);

  const RouterConfig config;
  Deliverer* const local;
  const Clock& clock;
  ForeignWrites* const writes;                                 // null: no hop is local
  std::unordered_map<std::string, std::unique_ptr<Hop>> hops;  // never changed
  DeliveryLines log;
  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;
  std::thread sweeper;
};

Router::Router(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Router::~Router() = default;

std::unique_ptr<Router> Router::create(RouterConfig config, Deliverer* local, Connector& connector,
                                       const Clock& clock, ForeignWrites* writes) {
  return std::unique_ptr<Router>(
      new Router(std::make_unique<Impl>(std::move(config), local, connector, clock, writes)));
}

void Router::give_up() {
  for (auto& [name, hop] : impl_->hops) hop->give_up();
}

void Router::settle_lines() {
  impl_->log.settle();
}

// ---- local deliveries

DeliveryLimits Router::limits(const User& user) const {
  if (user.next_hop.empty()) return impl_->local ? impl_->local->limits(user) : DeliveryLimits{};
  auto hop = impl_->hops.find(user.next_hop);
  if (hop == impl_->hops.end()) return {};
  return {unlimited_deliveries, {text_of_hop(user.next_hop), hop->second->spec().connections_max}};
}

// ---- deliveries to next hops

std::string Router::group_of(const User& user) const {
  if (!user.next_hop.empty()) return user.next_hop;
  return impl_->local ? impl_->local->group_of(user) : std::string();
}

namespace {

// The next hop's reply and the error, for the log.
DeliveryOutcome outcome_of(Hop::Outcome one, std::uint64_t bytes) {
  DeliveryOutcome out{std::move(one.reply)};
  out.detail = out.reply.text;
  if (!one.problem.empty()) out.detail += (out.detail.empty() ? "" : ": ") + one.problem;
  if (out.reply.code == 250) out.bytes = bytes, out.durable = MadeDurable::by_next_hop;
  return out;
}

}  // namespace

std::vector<DeliveryOutcome> Router::Impl::hand_over(const std::string& name, const Envelope& envelope,
                                                     std::span<const std::size_t> recipients,
                                                     const MessageBody& body, const GivenUp& given_up) {
  auto all = [&](const Reply& reply, const std::string& problem) {
    return std::vector<DeliveryOutcome>(recipients.size(), outcome_of({reply, problem}, 0));
  };
  const Reply not_configured{451, "4.3.5", "The mail system is not configured for this mailbox"};
  auto hop = hops.find(name);
  if (name.empty())
    return all(not_configured, "the user's row names no next hop, and there is no [spool] here");
  if (hop == hops.end())
    return all(
        not_configured,
        fmt::format("the user's row names the next hop \"{}\", which no section [next_hop.{}] configures",
                    name, name));
  auto loop = find_route_loop(body, config.hostname, config.received_max, config.passes_max);
  if (!loop) return all({451, "4.3.0", "The message could not be read"}, loop.error().message);
  if (*loop) return all(make_reply(554, "5.4.6", **loop), **loop);
  std::optional<SpoolHandle> handle;
  std::optional<ForeignWrites::InFlight> in_flight;
  if (hop->second->spec().local()) {
    auto opened = writes ? writes->begin() : fail(Errc::internal, "there is no [spool] here");
    if (!opened) return all(reply_of_error(opened.error()), opened.error().message);
    handle = std::move(*opened);
    in_flight.emplace(*writes);
  }
  const Recipient* only = recipients.size() == 1 ? &envelope.recipients[recipients.front()] : nullptr;
  // A local hop stores the message in place of the built-in agent, and adds the other fields.
  std::string header = only && handle ? delivery_header(envelope, *only, {false, false, true, true},
                                                        config.hostname, clock.wall())
                                      : received_header(envelope, only, config.hostname, clock.wall());
  std::vector<DeliveryOutcome> out;
  for (Hop::Outcome& one : hop->second->deliver(envelope, recipients, body, header, given_up))
    out.push_back(outcome_of(std::move(one), header.size() + body.size));
  if (handle) soften(envelope, recipients, out), make_durable(*handle, out);
  return out;
}

// A full mailbox gets the configured reply. A temporary refusal of the hop never becomes permanent.
void Router::Impl::soften(const Envelope& envelope, std::span<const std::size_t> recipients,
                          std::vector<DeliveryOutcome>& outcomes) const {
  if (config.over_quota == OverQuota::reject) return;
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    if (outcomes[i].reply.enhanced == "5.2.2")
      outcomes[i].reply = reply_of(Room::full, config.over_quota, envelope.recipients[recipients[i]].user);
}

// The hop has synced little or nothing itself.
void Router::Impl::make_durable(const SpoolHandle& handle, std::vector<DeliveryOutcome>& outcomes) {
  auto taken = [](const DeliveryOutcome& one) { return one.reply.code == 250; };
  if (std::ranges::none_of(outcomes, taken)) return;
  Status durable = writes->make_durable(handle);
  for (DeliveryOutcome& one : outcomes) {
    if (!taken(one)) continue;
    if (durable)
      one.durable = MadeDurable::after_agent;
    else
      one = {{451, "4.3.0", "The message could not be made durable"}, durable.error().message};
  }
}

std::vector<DeliveryOutcome> Router::deliver_group(const Envelope& envelope,
                                                   std::span<const std::size_t> recipients,
                                                   const MessageBody& body, const GivenUp& given_up) {
  if (envelope.recipients[recipients.front()].user.next_hop.empty() && impl_->local)
    return impl_->local->deliver_group(envelope, recipients, body, given_up);
  Instant start = impl_->clock.now();
  const std::string& name = envelope.recipients[recipients.front()].user.next_hop;
  std::vector<DeliveryOutcome> outcomes = impl_->hand_over(name, envelope, recipients, body, given_up);
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    impl_->log.put(line_of(envelope, envelope.recipients[recipients[i]], text_of_hop(name), body, outcomes[i],
                           impl_->clock.now() - start));
  return outcomes;
}

DeliveryOutcome Router::deliver(const Envelope& envelope, const Recipient& recipient,
                                const MessageBody& body) {
  if (recipient.user.next_hop.empty() && impl_->local)
    return impl_->local->deliver(envelope, recipient, body);
  auto index = static_cast<std::size_t>(&recipient - envelope.recipients.data());
  return deliver_group(envelope, {&index, 1}, body, {}).front();
}

}  // namespace twinloft::lmtpd
