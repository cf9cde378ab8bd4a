// The arbiter in Pacemaker: a cluster property, changed by a patch that applies to a single version of the
// CIB.
//
// Each partition has a CIB, so quorum and fencing are needed too. The value is changed only in a partition
// with quorum, and only if every node of a replica is a member of this partition or known to be down
// (docs/decisions/arbiter-pacemaker.md).
#pragma once

#include <functional>
#include <memory>

#include "cib.h"
#include "twinloft/base/program.h"
#include "twinloft/spool-repl/arbiter/arbiter.h"

namespace twinloft::repl::arbiter {

class PacemakerStore final : public Store {
 public:
  // Runs a program of Pacemaker. Tests replace it.
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
  Uuid written_;           // the attempt of a value in the CIB that removes a replica on an online node
  Instant written_since_;  // when it was first seen
  std::atomic<bool> cancelled_ = false;
};

}  // namespace twinloft::repl::arbiter
