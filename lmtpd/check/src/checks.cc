#include "twinloft/lmtpd/check/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/connect/connector.h"
#include "twinloft/lmtpd/net/try_address.h"
#include "twinloft/lmtpd/process/privileges.h"
#include "twinloft/lmtpd/quota_status/quota_status.h"
#include "twinloft/lmtpd/spool/spool.h"
#include "twinloft/lmtpd/users/users.h"
#include "twinloft/spool-state/spool_state.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t pem_bytes_max = 4u << 20;

struct DirectConnector final : Connector {
  const ConnectTarget& target;
  explicit DirectConnector(const ConnectTarget& t) : target(t) {}
  Result<Fd> connect(std::size_t) override { return connect_to(target); }
};

// Checks the TLS files of a user database, because the client library reports a missing file only as a failed
// connection.
void check_database_files(const UserSettings& users, Checker& check) {
  if (users.driver != UserDriver::mysql) return;
  const MysqlDbConfig& mysql = users.mysql;
  for (const PemFile& file : {PemFile{"users.tls_ca", mysql.tls_ca},
                              {"users.tls_certificate", mysql.tls_certificate},
                              {"users.tls_key", mysql.tls_key}})
    if (auto text = file.path.empty() ? std::string() : read_pem(file); !text)
      check.problem(text.error().message);
}

}  // namespace

Result<std::string> read_pem(const PemFile& file) {
  auto text = read_file(file.path, pem_bytes_max);
  if (!text) return fail(text.error().code, "{}: {}", file.key, text.error().message);
  return text;
}

void check_spool(const Config& config, Checker& check) {
  static OsFileOps ops;
  auto spool = Spool::create(config.delivery.spool, ops);
  if (!spool) return check.problem("spool.path: " + spool.error().message);
  if (const std::string& path = config.spool_watch.state_file; !path.empty())
    if (auto state = spool_state::read_state(path); !state)
      check.problem("spool.state_file: " + state.error().message);
  auto opened = (*spool)->open();
  if (!opened) return check.problem("spool: " + opened.error().message);
  bool for_agents = std::ranges::any_of(config.agents, [](const AgentSpec& agent) { return !agent.syncs; });
  if (for_agents && !(*spool)->sees_failure(*opened))
    check.warning(fmt::format(
        "spool: lmtpd cannot write to {} or to {} in it. If the file system's journal fails, mail "
        "of agents may be acknowledged for a moment; give one of them to lmtpd's user",
        (*spool)->root(), spool_marker_name));
}

void check_quota_status(const QuotaStatusConfig& config, const Clock& clock, Checker& check) {
  DirectConnector connector(config.target);
  User nobody;
  nobody.name = "nobody@invalid";
  auto answer = QuotaStatus(config, connector, 0, clock).room(nobody, 1);
  if (!answer && answer.error().code != Errc::conflict)
    check.problem("quota.address: " + answer.error().message);
}

bool check_user_source(const UserSettings& users, const Clock& clock, Checker& check) {
  check_database_files(users, check);
  auto opened = open_users(users, clock);
  if (!opened) check.problem("users: " + opened.error().message);
  return opened.has_value();
}

void check_group(const ListenSettings& listen, const char* key, Checker& check) {
  if (listen.group.empty()) return;
  if (auto gid = find_group_id(listen.group, key); !gid) check.problem(gid.error().message);
}

// The process that listens at the address may be this program before a reload, or the service manager.
void check_listen(const ListenSettings& listen, std::string_view key, std::string_view program,
                  Checker& check, std::ostream& err) {
  check_group(listen, (std::string(key.substr(0, key.rfind('.'))) + ".group").c_str(), check);
  auto outcome = try_address(
      {listen.address, listen.host, listen.port, listen.unix_path, listen.mode, {}, {}});
  if (!outcome) return check.problem(fmt::format("{}: {}", key, outcome.error().message));
  if (*outcome == AddressState::free) return;
  auto who = find_socket_owner({listen.host, listen.port, listen.unix_path});
  if (who && !who->is_ours() && who->pid != 1)
    return check.problem(fmt::format("{}: {} is in use by {}, process {}: stop it, or choose another address",
                                     key, listen.address, who->name, who->pid));
  err << "note: " << key << ": a server listens at " << listen.address << " already: this " << program
      << ", or a server that must be stopped\n";
}

}  // namespace twinloft::lmtpd
