// Pacemaker's cluster information base as XML: what the arbiter needs of it, and a patch that changes one
// property if nothing else has changed. Pure. docs/decisions/arbiter-pacemaker.md says why these fields.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::repl::arbiter {

// What the cluster knows of a node, by its node_state.
enum class NodeFate {
  online,  // a member of this partition whose controller has joined
  down,    // fenced, or left in good order: the cluster expects it to be down, and it is
  lost,    // anything else: gone and not (yet) fenced, coming, going, or never seen
};

struct Cib {
  struct Version {
    std::uint64_t admin_epoch = 0, epoch = 0, num_updates = 0;
    auto operator<=>(const Version&) const = default;
  };
  Version version;
  bool quorum = false;
  bool fencing = false;                   // stonith-enabled is nowhere set to false
  std::map<std::string, NodeFate> nodes;  // by name
  std::optional<std::string> value;       // of the property
  std::string value_set;  // id of the cluster_property_set that holds it, or would; empty: there is none yet
  std::size_t value_sets = 0;  // cluster_property_sets
};

// Names of the property of a volume and of its set are XML ids: a letter first, no colon.
// Errc::corrupt where this is no CIB.
Result<Cib> read_cib(std::string_view xml, const std::string& set, const std::string& property);
// A diff from `cib` to the same with the property changed and the epoch raised. `cibadmin --patch` takes it
// only where the version is still that of `cib`.
std::string cib_patch(const Cib& cib, const std::string& set, const std::string& property,
                      const std::string& value);

}  // namespace twinloft::repl::arbiter
