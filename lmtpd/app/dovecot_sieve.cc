#include "dovecot_sieve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "doveconf.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/sieve/doveconf_output.h"

namespace twinloft::lmtpd {

namespace {

bool by_lmtp(const Config& config) {
  return !config.delivery.sieve.next_hop.empty();
}
std::string protocol_of(const Config& config) {
  return by_lmtp(config) ? "lmtp" : "lda";
}

// hidden: gets SieveSettings::hidden_rows.
Result<ScriptRule> ask_scripts(const Config& config, const Doveconf& doveconf,
                               std::vector<std::string>* hidden = nullptr) {
  TL_TRY_ASSIGN(std::string text, doveconf.ask({"-f", "protocol=" + protocol_of(config)}));
  TL_TRY_ASSIGN(DoveconfOutput output, parse_doveconf(text));
  SieveSettings settings = read_sieve_settings(output);
  if (hidden) *hidden = settings.hidden_rows;
  return decide_scripts(settings, config.scripts.scripts_in_rows.value_or(false));
}

std::uint64_t number_of(const std::string& text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// 0, or no value, is the default.
Result<std::uint64_t> ask_processes(const Doveconf& doveconf) {
  TL_TRY_ASSIGN(std::string text, doveconf.ask({"service"}));
  TL_TRY_ASSIGN(DoveconfOutput output, parse_doveconf("# 0.0\n" + text));
  const DoveconfSection* lmtp = output.root.find("service", "lmtp");
  if (std::uint64_t limit = lmtp ? number_of(lmtp->value("process_limit")) : 0; limit > 0) return limit;
  TL_TRY_ASSIGN(std::string by_default, doveconf.value("default_process_limit"));
  return number_of(by_default);
}

const NextHopSpec* local_hop(const Config& config) {
  auto at = std::ranges::find_if(config.next_hops, [](const NextHopSettings& h) { return h.spec.local(); });
  return at == config.next_hops.end() ? nullptr : &at->spec;
}

const AgentSpec* sieve_agent(const Config& config) {
  auto at = std::ranges::find(config.agents, config.delivery.sieve.agent, &AgentSpec::name);
  return at == config.agents.end() ? nullptr : &*at;
}

class Comparison {
 public:
  Comparison(const Config& config, const DovecotDelivery& dovecot) : config_(config), dovecot_(dovecot) {}

  SieveFindings run() {
    scripts();
    rows();
    delimiter();
    if (dovecot_.mail_fsync == "never")
      problem("delivery.sieve: Dovecot's mail_fsync is \"never\": write \"optimized\" or \"always\" there");
    if (by_lmtp(config_)) folders(), processes();
    if (const AgentSpec* agent = sieve_agent(config_)) command(*agent);
    return std::move(found_);
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> text, Args&&... args) {
    found_.problems.push_back(fmt::format(text, std::forward<Args>(args)...) + where());
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> text, Args&&... args) {
    found_.warnings.push_back(fmt::format(text, std::forward<Args>(args)...) + where());
  }
  std::string where() const { return " (" + config_.scripts.dovecot + ")"; }

  void scripts() {
    if (const auto* nobody = std::get_if<NoUser>(&dovecot_.scripts))
      problem("delivery.sieve: no script would run: {}", nobody->why);
    if (const auto* all = std::get_if<AllUsers>(&dovecot_.scripts); all && !config_.scripts.all_users)
      warning("delivery.sieve: the mail of all users goes through Dovecot: {}", all->why);
  }

  // A row may name another script, or scripts for all, and lmtpd would not look there.
  void rows() {
    // lmtpd sees the lines of a passwd-file itself.
    std::vector<std::string> hidden = dovecot_.hidden_rows;
    if (config_.users.driver == UserDriver::passwd_file) std::erase(hidden, "userdb passwd-file");
    if (hidden.empty() || config_.scripts.scripts_in_rows ||
        !std::holds_alternative<ByFile>(dovecot_.scripts))
      return;
    warning(
        "delivery.sieve.scripts_in_rows: doveconf does not show the fields of users in {}: if no row has a "
        "field "
        "about Sieve, write scripts_in_rows = false; otherwise true, and the mail of all users goes through "
        "Dovecot",
        fmt::join(hidden, ", "));
  }

  // LMTP: Dovecot splits the address at its own delimiter. lda: only scripts see the detail.
  void delimiter() {
    const std::string& ours = config_.users.directory.detail_delimiter;
    const std::string& theirs = dovecot_.recipient_delimiter;
    if (by_lmtp(config_)) {
      if (theirs.substr(0, 1) != ours || theirs.find_first_not_of(ours) != std::string::npos)
        problem(
            "users.detail_delimiter: is \"{0}\", but Dovecot's recipient_delimiter is \"{1}\": Dovecot's "
            "LMTP "
            "ends a user's name at each of these characters, so mail for such names gets 451; write "
            "recipient_delimiter = {0} there, or the other character here",
            ours, theirs);
      else if (config_.users.directory.detail_first && !theirs.empty())
        warning(
            "users.detail_first: a user whose name has a \"{}\" gets 451 if a script runs, because Dovecot's "
            "LMTP "
            "ends the name there; dovecot-lda does not",
            ours);
    } else if (!ours.empty() && theirs.find(ours) == std::string::npos) {
      warning(
          "users.detail_delimiter: is \"{0}\", but Dovecot's recipient_delimiter is \"{1}\": scripts would "
          "see no "
          "detail of ann{0}lists@; write recipient_delimiter = {0} there",
          ours, theirs);
    }
  }

  // What Dovecot does with the detail, where the script does nothing else.
  void folders() {
    constexpr std::string_view key = "maildir.detail_folders";
    const FolderConfig& folders = config_.delivery.maildir.folders;
    const bool saves = dovecot_.save_to_detail_mailbox == "yes", creates = dovecot_.autocreate == "yes";
    if (saves != (folders.detail != FoldersByDetail::none))
      warning(
          "{}: mail to ann+lists@ goes to {} of users without a script, and to {} of users with one: write "
          "lmtp_save_to_detail_mailbox = {} in Dovecot's configuration",
          key, saves ? "the inbox" : "folder lists", saves ? "folder lists" : "the inbox",
          saves ? "no" : "yes");
    else if (saves && creates != (folders.detail == FoldersByDetail::create))
      warning(
          "{}: missing folders are {}created for users without a script, and {}created for users with one: "
          "write lda_mailbox_autocreate = {} in Dovecot's configuration",
          key, creates ? "not " : "", creates ? "" : "not ", creates ? "no" : "yes");
    else if (saves && creates && folders.subscribe != (dovecot_.autosubscribe == "yes"))
      warning(
          "maildir.subscribe: write lda_mailbox_autosubscribe = {} in Dovecot's configuration, so that "
          "created "
          "folders are alike",
          folders.subscribe ? "yes" : "no");
  }

  void processes() {
    const NextHopSpec* hop = local_hop(config_);
    if (hop && dovecot_.lmtp_processes > 0 && hop->connections_max > dovecot_.lmtp_processes)
      problem(
          "delivery.sieve.connections: is {}, but Dovecot's service lmtp has at most {} processes "
          "(process_limit), and one for each connection",
          hop->connections_max, dovecot_.lmtp_processes);
    else if (hop && dovecot_.lmtp_processes > 0 &&
             2 * std::uint64_t{hop->connections_max} > dovecot_.lmtp_processes)
      warning(
          "delivery.sieve.connections: is {}, and at a reload the old and the new server process may have as "
          "many "
          "each, but Dovecot's service lmtp has at most {} processes (process_limit): mail may wait then",
          hop->connections_max, dovecot_.lmtp_processes);
  }

  void command(const AgentSpec& agent) {
    if (agent.command.find("dovecot-lda") == std::string::npos ||
        agent.command.find(" -a ") != std::string::npos)
      return;
    warning("agent.{}.command: has no \"-a %to%\": scripts would see the user's name in place of the address",
            agent.name);
  }

  const Config& config_;
  const DovecotDelivery& dovecot_;
  SieveFindings found_;
};

}  // namespace

Result<ScriptRule> ask_for_scripts(const Config& config) {
  if (!config.delivery.sieve.on()) return NoUser{"[delivery.sieve] is not configured"};
  if (config.scripts.all_users) return AllUsers{"users = \"all\""};
  TL_TRY_ASSIGN(Doveconf doveconf, Doveconf::find(config.scripts.dovecot));
  return ask_scripts(config, doveconf);
}

ScriptRule in_doubt_all(ScriptRule rule, const Config& config) {
  const auto* nobody = std::get_if<NoUser>(&rule);
  if (!nobody || !config.delivery.sieve.on()) return rule;
  return AllUsers{"doveconf shows no script: " + nobody->why};
}

std::string find_delimiters(const Config& config) {
  if (!by_lmtp(config)) return {};
  auto doveconf = Doveconf::find(config.scripts.dovecot);
  auto found = doveconf ? doveconf->value("recipient_delimiter", "lmtp")
                        : Result<std::string>(std::unexpected(doveconf.error()));
  return found ? *std::move(found) : "+" + config.users.directory.detail_delimiter;
}

ScriptRule find_scripts(const Config& config) {
  auto rule = ask_for_scripts(config);
  if (!rule) {
    log_error("delivery.sieve: the mail of all users goes through Dovecot until the next reload: {}: {}",
              config.scripts.dovecot, rule.error().message);
    return AllUsers{rule.error().message};
  }
  if (!config.delivery.sieve.on()) return *std::move(rule);
  rule = in_doubt_all(*std::move(rule), config);
  if (std::holds_alternative<ByFile>(*rule) || config.scripts.all_users)
    log_info("Sieve scripts run for {}", describe_rule(*rule));
  else
    log_warning("Sieve scripts run for {}", describe_rule(*rule));
  return *std::move(rule);
}

Result<DovecotDelivery> read_dovecot_delivery(const Config& config) {
  TL_TRY_ASSIGN(Doveconf doveconf, Doveconf::find(config.scripts.dovecot));
  const std::string protocol = protocol_of(config);
  DovecotDelivery out;
  TL_TRY_ASSIGN(out.scripts, ask_scripts(config, doveconf, &out.hidden_rows));
  if (config.scripts.all_users && !std::holds_alternative<NoUser>(out.scripts))
    out.scripts = AllUsers{"users = \"all\""};
  TL_TRY_ASSIGN(out.mail_fsync, doveconf.value("mail_fsync", protocol));
  TL_TRY_ASSIGN(out.recipient_delimiter, doveconf.value("recipient_delimiter", protocol));
  TL_TRY_ASSIGN(out.save_to_detail_mailbox, doveconf.value("lmtp_save_to_detail_mailbox", protocol));
  TL_TRY_ASSIGN(out.autocreate, doveconf.value("lda_mailbox_autocreate", protocol));
  TL_TRY_ASSIGN(out.autosubscribe, doveconf.value("lda_mailbox_autosubscribe", protocol));
  if (by_lmtp(config)) {
    TL_TRY_ASSIGN(out.lmtp_processes, ask_processes(doveconf));
  }
  return out;
}

SieveFindings compare_sieve(const Config& config, const DovecotDelivery& dovecot) {
  return Comparison(config, dovecot).run();
}

}  // namespace twinloft::lmtpd
