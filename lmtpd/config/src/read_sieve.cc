#include "read_sieve.h"

#include <fmt/format.h>

namespace twinloft::lmtpd {

namespace {

constexpr std::string_view only_lmtp[] = {"connections", "connect_timeout", "reply_timeout", "data_timeout",
                                          "idle_timeout"};

// Dovecot's LMTP as a next hop.
void read_lmtp(const TomlTable& t, const std::string& address, Config& config) {
  NextHopSettings hop;
  NextHopSpec& spec = hop.spec;
  auto target = parse_connect_target(address);
  if (!target || target->unix_path.empty())
    return t.error("lmtp",
                   fmt::format("\"{}\": expected the Unix socket of Dovecot's LMTP, such as "
                               "\"unix:/run/dovecot/lmtp\": the mail must lie on this machine's spool",
                               address));
  spec.name = local_hop_name;
  spec.target = std::move(*target);
  spec.recipient = HopRecipient::user_and_original;
  spec.xclient = true;
  t.number("connections", 1, 4096, spec.connections_max);
  t.duration("connect_timeout", spec.target.timeout);
  t.duration("reply_timeout", spec.reply_timeout);
  t.duration("data_timeout", spec.data_timeout);
  t.duration("idle_timeout", spec.idle_timeout);
  config.delivery.sieve.next_hop = spec.name;
  config.next_hops.push_back(std::move(hop));
}

}  // namespace

void read_sieve(const TomlTable& top, Config& config) {
  const toml::table* delivery = top.raw().get_as<toml::table>("delivery");
  if (!delivery || !delivery->contains("sieve")) return;
  const toml::table* raw = TomlTable(top.problems(), *delivery, "delivery").child("sieve");
  if (!raw) return;
  TomlTable t(top.problems(), *raw, "delivery.sieve");
  t.allow(only_lmtp, {"agent", "lmtp", "dovecot", "users", "scripts_in_rows"});
  SieveConfig& sieve = config.delivery.sieve;
  std::string lmtp, users = "scripts";
  t.text("agent", sieve.agent);
  t.text("lmtp", lmtp);
  if (!config.dovecot.empty()) config.scripts.dovecot = config.dovecot;
  t.path("dovecot", config.scripts.dovecot);
  t.text("users", users);
  if (t.has("scripts_in_rows")) t.flag("scripts_in_rows", config.scripts.scripts_in_rows.emplace());
  config.scripts.all_users = users == "all";
  if (users != "scripts" && users != "all")
    t.wrong_word("users", "expected \"scripts\" or \"all\"", users, {"scripts", "all"});
  if (sieve.agent.empty() == lmtp.empty())
    t.error(lmtp.empty() ? "agent" : "lmtp",
            "expected one of agent and lmtp: an [agent.NAME], or the Unix socket of Dovecot's LMTP");
  if (!lmtp.empty()) read_lmtp(t, lmtp, config);
  for (std::string_view key : only_lmtp)
    if (lmtp.empty() && t.has(key)) t.error(key, "needs lmtp");
  if (!config.delivers_here()) t.error(lmtp.empty() ? "agent" : "lmtp", "needs a [spool]");
  if (config.delivery.default_agent != builtin_agent)
    t.warning(lmtp.empty() ? "agent" : "lmtp",
              fmt::format("only users of the built-in agent go there, and delivery.agent is \"{}\"",
                          config.delivery.default_agent));
}

}  // namespace twinloft::lmtpd
