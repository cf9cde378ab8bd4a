// Pacemaker's cluster information base (CIB) as XML: the fields that the arbiter needs, and a patch that
// changes one property if the CIB has not changed otherwise. Pure functions.
// docs/decisions/arbiter-pacemaker.md explains the choice of fields.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::repl::arbiter {

// The state of a node in the cluster, by its node_state.
enum class NodeFate {
  online,  // a member of this partition whose controller has joined
  down,    // fenced, or stopped cleanly: the cluster expects it to be down, and it is down
  lost,    // any other state: gone and not (yet) fenced, joining, leaving, or never seen
};

struct Cib {
  struct Version {
    std::uint64_t admin_epoch = 0, epoch = 0, num_updates = 0;
    auto operator<=>(const Version&) const = default;
  };
  Version version;
  bool quorum = false;
  bool fencing = false;                   // no property set has stonith-enabled = false
  std::map<std::string, NodeFate> nodes;  // by name
  std::optional<std::string> value;       // of the property
  std::string value_set;       // id of the cluster_property_set of the property; empty: no such set yet
  std::size_t value_sets = 0;  // the number of cluster_property_sets
};

// Names of the property of a volume and of its set are XML ids: a letter first, no colon.
// Errors: Errc::corrupt (not a CIB).
Result<Cib> read_cib(std::string_view xml, const std::string& set, const std::string& property);
// A diff that changes the property in `cib`, and increments its epoch. `cibadmin --patch` applies it only to
// the version of `cib`.
std::string cib_patch(const Cib& cib, const std::string& set, const std::string& property,
                      const std::string& value);

}  // namespace twinloft::repl::arbiter
