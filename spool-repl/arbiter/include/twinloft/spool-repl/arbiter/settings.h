// What the section [volume.<name>.arbiter] says.
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

// The core gives a promotion up after 10 s without an answer: one that comes later would never be heard.
inline constexpr Duration timeout_min = std::chrono::milliseconds(50);
inline constexpr Duration timeout_max = std::chrono::seconds(9);
inline constexpr std::size_t endpoints_max = 16;
inline constexpr std::size_t prefix_bytes_max = 256;
// Whether this is an endpoint of etcd: http://host:port or https://host:port.
Status check_endpoint(const std::string& url);
// One text for all ways to write one endpoint: case, port, slash at the end, forms of an address. Others are
// returned as they are.
std::string normal_endpoint(const std::string& url);
// "/twinloft" and "/twinloft/" lead to the same key.
std::string normal_prefix(std::string prefix);

struct Settings {
  Kind kind = Kind::manual;
  Duration timeout = std::chrono::seconds(5);  // for one request, all endpoints and tries together

  // etcd
  std::vector<std::string> endpoints;        // http://host:port or https://host:port
  std::string prefix = "/twinloft";          // the key is PREFIX/UUID/epoch
  std::string ca_file, cert_file, key_file;  // for https; no ca_file: the system's
  std::string user, password_file;

  // pacemaker
  std::map<ReplicaId, std::string> nodes;  // every replica's node, by its name in the cluster
  std::string programs = "/usr/sbin";      // where cibadmin and crm_node are
  // Within this time corosync notices that a node is gone: token + consensus, 6.6 s by default, and something
  // for a slow machine.
  Duration settle = std::chrono::seconds(10);

  bool operator==(const Settings&) const = default;
};

}  // namespace twinloft::repl::arbiter
