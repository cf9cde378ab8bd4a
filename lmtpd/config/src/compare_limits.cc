#include "compare_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace twinloft::lmtpd {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The time in which an MTA expects the replies to a message: RFC 5321 section 4.5.3.2.6, Postfix's
// lmtp_data_done_timeout, and the examples for other MTAs (docs/mta.md).
constexpr milliseconds mta_waits = std::chrono::minutes(10);
// The time for the reply to a recipient: section 4.5.3.2.3, lmtp_rcpt_timeout.
constexpr milliseconds mta_waits_for_recipient = std::chrono::minutes(5);

class Comparison {
 public:
  explicit Comparison(const Config& config) : config_(config), l_(config.limits) {}

  std::vector<std::string> run() {
    within_limits();
    input_of_agents();
    for (const AgentSpec& agent : config_.agents) with_agent(agent);
    for (const NextHopSettings& hop : config_.next_hops) with_next_hop(hop.spec);
    filters();
    return std::move(found_);
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    found_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void never_reached(std::string_view key, std::uint32_t value, std::string_view bound, std::uint32_t most) {
    if (value > most) say("{} ({}) is above {} ({}), and is never reached", key, value, bound, most);
  }

  void within_limits() {
    never_reached("limits.deliveries_per_user", l_.deliveries_per_user, "limits.deliveries", l_.deliveries);
    never_reached("limits.deliveries_per_transaction", l_.deliveries_per_transaction, "limits.deliveries",
                  l_.deliveries);
    never_reached("limits.connections_per_address", l_.connections_per_address_max, "limits.connections",
                  l_.connections_max);
    if (config_.users.lookup_timeout >= mta_waits_for_recipient)
      say("users.lookup_timeout ({}) is as long as an MTA waits for the reply to a recipient (5min)",
          whole(config_.users.lookup_timeout));
    if (l_.queue_time >= mta_waits)
      say("limits.queue_time ({}) is as long as an MTA waits for a reply (10min): it would deliver messages "
          "twice",
          whole(l_.queue_time));
  }

  // An agent's input is a second file of the message.
  void input_of_agents() {
    const std::uint64_t message = l_.message_bytes_max;
    if (config_.agents.empty() || message <= config_.delivery.external.memory_bytes_max ||
        message <= l_.body_memory)
      return;
    if (message > l_.body_disk_total / 2)
      say("limits.body_disk_total ({} bytes) has no room for a message of limits.message_size ({} bytes) "
          "twice, as received and as the input of an agent: the largest messages always get 452",
          l_.body_disk_total, message);
  }

  void with_agent(const AgentSpec& agent) {
    if (agent.limits.file_bytes != 0 && agent.limits.file_bytes <= l_.message_bytes_max)
      say("agent.{}.rlimits.file_size ({} bytes) is not above limits.message_size ({} bytes): the agent "
          "cannot store the largest messages, which always get 451",
          agent.name, agent.limits.file_bytes, l_.message_bytes_max);
    if (agent.deliveries_max != unlimited_deliveries) {
      const std::string key = fmt::format("agent.{}.deliveries", agent.name);
      never_reached(key, agent.deliveries_max, "limits.deliveries", l_.deliveries);
      never_reached(key, agent.deliveries_max, "delivery.runs", config_.spawner.runs_max);
    }
    milliseconds longest = l_.queue_time + agent.time_limit + agent.kill_grace + filters_at_end();
    if (longest >= mta_waits)
      say("agent.{0}.timeout: with limits.queue_time{2} a delivery may take {1}, and an MTA waits 10min for "
          "the "
          "reply: it would deliver messages twice",
          agent.name, whole(longest), with_filters());
  }

  void with_next_hop(const NextHopSpec& hop) {
    const std::string key = hop.local() ? hop.name : "next_hop." + hop.name;
    if (hop.connections_max >= l_.deliveries)
      say("{}.connections ({}) is not below limits.deliveries ({}): a store that hangs takes all "
          "threads that deliver",
          key, hop.connections_max, l_.deliveries);
    // A connection and its greeting may be waited for right before data_timeout is over.
    milliseconds longest = l_.queue_time + 2 * hop.target.timeout + hop.data_timeout + filters_at_end();
    if (longest >= mta_waits)
      say("{}.data_timeout: with limits.queue_time and connect_timeout{} a delivery may take {}, and an MTA "
          "waits 10min "
          "for the reply: it would deliver messages twice",
          key, with_filters(), whole(longest));
  }

  // For all filters at the end of a message. They may wait for a thread as long as deliveries do.
  milliseconds filters_at_end() const {
    if (config_.filters.order.empty()) return milliseconds{0};
    milliseconds all = l_.queue_time;
    for (const FilterSettings& filter : config_.filters.order) all += filter.spec.message_most;
    return all;
  }
  const char* with_filters() const {
    return config_.filters.order.empty() ? "" : " and the filters' message_limit";
  }

  // Filters are asked one after the other. At MAIL, a filter has a connection, the negotiation and three
  // events; at RCPT one event, behind the look-up.
  void filters() {
    if (config_.filters.order.empty()) return;
    milliseconds at_mail = l_.queue_time, at_rcpt = l_.queue_time + config_.users.lookup_timeout;
    for (const FilterSettings& filter : config_.filters.order) {
      const milter::FilterSpec& spec = filter.spec;
      at_mail += filter.target.timeout + 4 * spec.command_timeout;
      at_rcpt += spec.command_timeout;
      if (spec.message_timeout > spec.message_most)
        say("filter.{0}.message_timeout ({1}) is above filter.{0}.message_limit ({2}), and is never reached",
            spec.name, whole(spec.message_timeout), whole(spec.message_most));
    }
    for (auto [command, longest] : {std::pair("MAIL", at_mail), {"RCPT", at_rcpt}})
      if (longest >= mta_waits_for_recipient)
        say("filter.NAME.command_timeout: with limits.queue_time, all filters together may take {} at {}, "
            "and an "
            "MTA waits 5min for the reply",
            whole(longest), command);
    if (milliseconds longest = l_.queue_time + filters_at_end(); longest >= mta_waits)
      say("filter.NAME.message_limit: with limits.queue_time, filters and a delivery may take {}, and an MTA "
          "waits "
          "10min for the reply: it would deliver messages twice",
          whole(longest));
  }

  static std::string whole(milliseconds time) {
    return fmt::format("{}s", std::chrono::ceil<seconds>(time).count());
  }

  const Config& config_;
  const LimitSettings& l_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> compare_limits(const Config& config) {
  return Comparison(config).run();
}

}  // namespace twinloft::lmtpd
