#include "pacemaker.h"

#include "twinloft/spool-repl/arbiter/value.h"

namespace twinloft::repl::arbiter {

namespace {

using core::ArbiterAnswer;
using core::ArbiterRequest;
using Outcome = ArbiterAnswer::Outcome;

constexpr std::size_t crm_text_max = 200;

// The last line of a program's standard error, for a log line.
std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  if (std::size_t at = text.rfind('\n'); at != std::string::npos) text.erase(0, at + 1);
  std::string out;
  for (char c : text.substr(0, crm_text_max)) out += c >= ' ' && c < 127 ? c : '?';
  return out;
}

std::string seconds_text(Duration d) {
  return std::to_string(
      std::max<std::int64_t>(1, std::chrono::duration_cast<std::chrono::seconds>(d).count()));
}

}  // namespace

PacemakerStore::PacemakerStore(const Settings& settings, const Uuid& volume, ReplicaId self,
                               const Clock& clock, Run run)
    : settings_(settings),
      volume_(volume),
      self_(self),
      clock_(clock),
      set_("twinloft-" + volume.text()),
      property_(set_ + "-epoch"),
      runner_(clock),
      run_(std::move(run)) {
  if (!run_)
    run_ = [this](const std::vector<std::string>& argv, const std::string& input, Instant deadline) {
      return runner_.run(argv, input, deadline);
    };
}

void PacemakerStore::cancel() {
  cancelled_ = true;
  runner_.cancel();
}

ArbiterAnswer PacemakerStore::perform(const ArbiterRequest& request) {
  Result<ArbiterAnswer> answer = swap(request, clock_.now() + settings_.timeout);
  if (answer) return *answer;
  return {request.token, Outcome::unknown, std::nullopt, "pacemaker: " + answer.error().message};
}

Result<ProgramResult> PacemakerStore::program(std::vector<std::string> argv, const std::string& input,
                                              Instant deadline) {
  argv[0] = settings_.programs + "/" + argv[0];
  return run_(argv, input, deadline);
}

Result<Cib> PacemakerStore::query(Instant deadline) {
  TL_TRY_ASSIGN(
      ProgramResult r,
      program({"cibadmin", "--query", "--timeout", seconds_text(deadline - clock_.now())}, "", deadline));
  if (r.exit_code != 0)
    return fail(Errc::unavailable, "cibadmin --query: exit {}: {}", r.exit_code, last_line(r.err));
  return read_cib(r.out, set_, property_);
}

// The state of a node is evidence only if the replica runs on this node, so the names are checked.
Status PacemakerStore::check_name(Instant deadline) {
  if (name_checked_) return {};
  TL_TRY_ASSIGN(ProgramResult r, program({"crm_node", "--name"}, "", deadline));
  if (r.exit_code != 0)
    return fail(Errc::unavailable, "crm_node --name: exit {}: {}", r.exit_code, last_line(r.err));
  std::string name = last_line(r.out);
  if (name != settings_.nodes.at(self_))
    return fail(Errc::invalid, "this node is {} in the cluster, and {} in nodes: correct the configuration",
                name, settings_.nodes.at(self_));
  name_checked_ = true;
  return {};
}

std::string PacemakerStore::obstacle(const Cib& cib) const {
  if (!cib.fencing)
    return "stonith-enabled is false: without fencing, the cluster cannot distinguish a dead node from a "
           "silent node. Configure fencing";
  if (!cib.quorum) return "this partition has no quorum";
  auto self = cib.nodes.find(settings_.nodes.at(self_));
  if (self == cib.nodes.end() || self->second != NodeFate::online)
    return fmt::format("this node ({}) is not a full member of the cluster", settings_.nodes.at(self_));
  return "";
}

// The replicas of the old or the new value whose node is neither a member of this partition nor known to be
// down.
std::string PacemakerStore::unaccounted(const Cib& cib, const ArbiterRequest& request) const {
  ReplicaSet counted = request.desired.in_sync;
  if (request.expected) counted |= request.expected->in_sync | set_of(request.expected->writer);
  std::string out;
  for (ReplicaId id = 1; id <= replica_id_max; ++id) {
    if (!(counted & set_of(id)) || id == self_) continue;
    auto name = settings_.nodes.find(id);
    auto node = name == settings_.nodes.end() ? cib.nodes.end() : cib.nodes.find(name->second);
    if (node != cib.nodes.end() && node->second != NodeFate::lost) continue;
    out += fmt::format("{}replica {} ({})", out.empty() ? "" : ", ", id,
                       name == settings_.nodes.end() ? "not in nodes" : name->second);
  }
  return out;
}

// A node that is online may be cut off already, before corosync has detected it. Then this partition is about
// to change, and no other node's CIB would have the value. So a replica on an online node is removed from the
// set only if the node is still online after the time of detection.
std::string PacemakerStore::unsettled(const Cib& cib, const ArbiterRequest& request) {
  if (!request.expected) return "";
  ReplicaSet dropped = (request.expected->in_sync | set_of(request.expected->writer)) &
                       ~request.desired.in_sync & ~set_of(self_);
  for (const auto& [id, name] : settings_.nodes)
    if (auto node = cib.nodes.find(name); node != cib.nodes.end() && node->second == NodeFate::down)
      dropped &= ~set_of(id);
  if (dropped == 0) return "";
  if (written_ != request.desired.attempt) written_ = request.desired.attempt, written_since_ = clock_.now();
  if (clock_.now() - written_since_ >= settings_.settle) return "";
  return fmt::format(
      "waits {} s, in case the cluster has lost the node of a replica to be removed from the set",
      seconds_text(settings_.settle));
}

Result<std::optional<core::EpochValue>> PacemakerStore::value_of(const Cib& cib) const {
  if (!cib.value) return std::nullopt;
  TL_TRY_ASSIGN(core::EpochValue value, decode_value(volume_, *cib.value));
  return value;
}

// Reads the CIB, and patches this version of it if the value is the expected value. The next reading shows
// the result, for every outcome of the patch. If the version has changed for another reason, the change is
// tried again on the new version.
Result<ArbiterAnswer> PacemakerStore::swap(const ArbiterRequest& request, Instant deadline) {
  TL_TRY(check_name(deadline));
  std::optional<Cib::Version> patched;
  std::string trouble;
  while (!cancelled_) {
    TL_TRY_ASSIGN(Cib cib, query(deadline));
    if (std::string why = obstacle(cib); !why.empty()) return fail(Errc::unavailable, "{}", why);
    TL_TRY_ASSIGN(auto current, value_of(cib));
    if (request.read) return ArbiterAnswer{request.token, Outcome::granted, current, ""};
    if (current != request.desired && current != request.expected)
      return ArbiterAnswer{request.token, Outcome::refused, current, ""};
    if (std::string lost = unaccounted(cib, request); !lost.empty())
      return fail(Errc::unavailable,
                  "{}: its node is neither a member of this partition nor known to be down (fenced, or "
                  "stopped cleanly). The change is made once the cluster has fenced it",
                  lost);
    if (current == request.desired) {
      if (std::string why = unsettled(cib, request); !why.empty()) return fail(Errc::unavailable, "{}", why);
      return ArbiterAnswer{request.token, Outcome::granted, current, ""};
    }
    if (patched == cib.version) return fail(Errc::unavailable, "cibadmin --patch: {}", trouble);
    patched = cib.version;
    TL_TRY_ASSIGN(ProgramResult r,
                  program({"cibadmin", "--patch", "--xml-pipe", "--sync-call", "--timeout",
                           seconds_text(deadline - clock_.now())},
                          cib_patch(cib, set_, property_, encode_value(volume_, request.desired)), deadline));
    trouble = r.exit_code == 0 ? "exit 0, and the value has not changed"
                               : fmt::format("exit {}: {}", r.exit_code, last_line(r.err));
  }
  return fail(Errc::unavailable, "cancelled: this node is being stopped");
}

}  // namespace twinloft::repl::arbiter
