// The settings of the section [volume.<name>.arbiter].
#pragma once

#include <map>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::arbiter {

enum class Kind { manual, etcd, pacemaker };
const char* name_of(Kind kind);

// The core cancels a promotion after 10 s without an answer, so a longer timeout would have no effect.
inline constexpr Duration timeout_min = std::chrono::milliseconds(50);
inline constexpr Duration timeout_max = std::chrono::seconds(9);
inline constexpr std::size_t endpoints_max = 16;
inline constexpr std::size_t prefix_bytes_max = 256;
// Checks that this is an endpoint of etcd: http://host:port or https://host:port. Errors: Errc::invalid.
Status check_endpoint(const std::string& url);
// The normal form of an endpoint: case, port, slash at the end, form of an address. Other texts are returned
// unchanged.
std::string normal_endpoint(const std::string& url);
// The normal form of a prefix: "/twinloft" and "/twinloft/" are the same prefix.
std::string normal_prefix(std::string prefix);

struct Settings {
  Kind kind = Kind::manual;
  Duration timeout = std::chrono::seconds(5);  // of a request, with all endpoints and attempts

  // etcd
  std::vector<std::string> endpoints;        // http://host:port or https://host:port
  std::string prefix = "/twinloft";          // the key is PREFIX/UUID/epoch
  std::string ca_file, cert_file, key_file;  // for https; no ca_file: the machine's authorities
  std::string user, password_file;

  // pacemaker
  std::map<ReplicaId, std::string> nodes;  // the name of each replica's node in the cluster
  std::string programs = "/usr/sbin";      // the directory of cibadmin and crm_node
  // The time in which corosync detects the loss of a node: token and consensus (6.6 s by default), and a
  // reserve for a slow machine (corosync.conf(5)).
  Duration settle = std::chrono::seconds(10);

  bool operator==(const Settings&) const = default;
};

}  // namespace twinloft::repl::arbiter
