// The arbiter in Pacemaker: a cluster property, changed by a patch of the CIB that applies to one version of
// it only.
//
// The CIB alone is no arbiter, since every partition has one. It becomes one by quorum and by fencing: the
// value is changed only in a partition with quorum, and only where every node that holds a replica is either
// a member of this partition or known to be down (docs/decisions/arbiter-pacemaker.md).
#pragma once

#include <functional>
#include <memory>

#include "cib.h"
#include "twinloft/base/program.h"
#include "twinloft/spool-repl/arbiter/arbiter.h"

namespace twinloft::repl::arbiter {

class PacemakerStore final : public Store {
 public:
  // Runs a program of Pacemaker's; given as a seam for tests.
  using Run = std::function<Result<ProgramResult>(const std::vector<std::string>& argv,
                                                  const std::string& input, Instant deadline)>;

  PacemakerStore(const Settings& settings, const Uuid& volume, ReplicaId self, const Clock& clock,
                 Run run = nullptr);
  core::ArbiterAnswer perform(const core::ArbiterRequest& request) override;
  void cancel() override;

 private:
  Result<core::ArbiterAnswer> swap(const core::ArbiterRequest& request, Instant deadline);
  Result<Cib> query(Instant deadline);
  Status check_name(Instant deadline);
  std::string obstacle(const Cib& cib) const;
  std::string unaccounted(const Cib& cib, const core::ArbiterRequest& request) const;
  std::string unsettled(const Cib& cib, const core::ArbiterRequest& request);
  Result<std::optional<core::EpochValue>> value_of(const Cib& cib) const;
  Result<ProgramResult> program(std::vector<std::string> argv, const std::string& input, Instant deadline);

  const Settings settings_;
  const Uuid volume_;
  const ReplicaId self_;
  const Clock& clock_;
  const std::string set_, property_;
  ProgramRunner runner_;
  Run run_;
  bool name_checked_ = false;
  Uuid written_;  // attempt of the value that drops a node which was online, first seen in the CIB ...
  Instant written_since_;  // ... then
  std::atomic<bool> cancelled_ = false;
};

}  // namespace twinloft::repl::arbiter
