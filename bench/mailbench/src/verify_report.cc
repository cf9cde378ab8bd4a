#include <iterator>

#include "twinloft/base/json.h"
#include "twinloft/mailbench/verify.h"

namespace twinloft::mailbench {

namespace {
std::string json_key(ProblemKind kind) {
  std::string key(to_string(kind));
  if (kind == ProblemKind::nobody) return "nobody";
  for (char& c : key)
    if (c == ' ') c = '_';
  return key;
}
double ms(std::uint64_t ns) {
  return static_cast<double>(ns) / 1e6;
}
// The MTA's 250 is no delivery, so this rate covers MTA and delivery as one.
double delivered_per_minute(const VerifyResult& r) {
  double seconds = std::chrono::duration<double>(r.delivery).count();
  return seconds > 0 ? static_cast<double>(r.dated) * 60 / seconds : 0;
}
ProblemKind kind_at(std::size_t i) {
  return static_cast<ProblemKind>(i);
}
}  // namespace

std::string verify_text(const VerifyOptions& options, const VerifyResult& r) {
  std::string out;
  auto at = std::back_inserter(out);
  auto row = [&](std::string_view what, std::uint64_t count, std::string_view note) {
    fmt::format_to(at, "{:<22}{:>10}  {}\n", what, count, note);
  };
  fmt::format_to(at, "mailbench verify {}\n", options.imap.empty() ? options.spool : options.imap);
  row("acknowledged", r.acknowledged, "recipients that must have their message");
  row("found whole and once", r.acknowledged_found, "");
  if (r.extra_copies_allowed > 0)
    row("second copies", r.extra_copies_allowed, "allowed: an earlier attempt ended without a reply");
  if (r.unknown_present + r.unknown_absent > 0) {
    row("unknown, there", r.unknown_present, "allowed: the connection ended without a reply");
    row("unknown, not there", r.unknown_absent, "allowed");
  }
  if (r.deferred_present > 0) row("deferred, there", r.deferred_present, "allowed: the last reply was 4xx");
  if (r.refused > 0) row("refused", r.refused, "recipients that must not have their message");
  if (r.unlisted_allowed > 0) row("unlisted", r.unlisted_allowed, "allowed: the account is not complete");
  row(options.imap.empty() ? "files read" : "messages read", r.files,
      fmt::format("{:.1f} MiB; {} of other runs, {} without an id", static_cast<double>(r.bytes) / 1048576,
                  r.foreign, r.unmarked));
  if (r.dated > 0) {
    fmt::format_to(at, "{:<22}{:>10.0f}  a minute, from the start of the load to the last file ({:.2f} s)\n",
                   "delivered", delivered_per_minute(r), std::chrono::duration<double>(r.delivery).count());
    fmt::format_to(at, "{:<22}{:>10}  p50 {:.1f} ms, p99 {:.1f} ms, max {:.1f} ms\n", "from reply to file",
                   "", ms(r.delay_ns.percentile(50)), ms(r.delay_ns.percentile(99)), ms(r.delay_ns.max()));
  }
  if (r.queued > 0) row("PROBLEM: queued", r.queued, "files are in the queues of the MTA");
  if (r.left_in_tmp > 0) row("left in tmp/", r.left_in_tmp, "deliveries that never ended");
  if (!r.accounts_complete)
    out += "The account has no closing line: the load was killed, and what it sent last may not be listed.\n";
  for (std::size_t i = 0; i < kProblemKinds; ++i)
    if (r.problem_counts[i] > 0)
      row(fmt::format("PROBLEM: {}", to_string(kind_at(i))), r.problem_counts[i], "");
  for (const Problem& p : r.problems)
    fmt::format_to(at, "  {} {} for {}{}{}: {}\n", to_string(p.kind), p.id,
                   p.recipient.empty() ? "?" : p.recipient, p.path.empty() ? "" : " in ", p.path, p.detail);
  bool missing = r.problem_counts[static_cast<std::size_t>(ProblemKind::lost)] > 0;
  for (const std::string& file : r.unmarked_files)
    if (missing) fmt::format_to(at, "  without an id, so it may be one of the lost: {}\n", file);
  out += r.good() ? "All acknowledged messages are there, whole, and once.\n"
                  : "NOT all is as it was acknowledged.\n";
  return out;
}

std::string verify_json(const VerifyOptions& options, const VerifyResult& r) {
  json::object counts;
  for (std::size_t i = 0; i < kProblemKinds; ++i) counts[json_key(kind_at(i))] = r.problem_counts[i];
  json::array problems, unmarked_files;
  for (const Problem& p : r.problems)
    problems.push_back(json::object{{"kind", json_key(p.kind)},
                                    {"id", json_text(p.id)},
                                    {"recipient", json_text(p.recipient)},
                                    {"path", json_text(p.path)},
                                    {"detail", json_text(p.detail)}});
  for (const std::string& file : r.unmarked_files) unmarked_files.emplace_back(json_text(file));
  json::object root{{"kind", "mailbench-verify"},
                    {"version", 1},
                    {"spool", json_text(options.spool)},
                    {"imap", json_text(options.imap)},
                    {"good", r.good()},
                    {"accounts_complete", r.accounts_complete},
                    {"acknowledged", r.acknowledged},
                    {"acknowledged_found", r.acknowledged_found},
                    {"extra_copies_allowed", r.extra_copies_allowed},
                    {"unknown_present", r.unknown_present},
                    {"unknown_absent", r.unknown_absent},
                    {"deferred_present", r.deferred_present},
                    {"refused", r.refused},
                    {"unlisted_allowed", r.unlisted_allowed},
                    {"files", r.files},
                    {"bytes", r.bytes},
                    {"foreign", r.foreign},
                    {"unmarked", r.unmarked},
                    {"left_in_tmp", r.left_in_tmp},
                    {"queued", r.queued},
                    {"problem_counts", std::move(counts)},
                    {"problems", std::move(problems)},
                    {"unmarked_files", std::move(unmarked_files)}};
  if (r.dated > 0) {
    root["delivered_per_minute"] = delivered_per_minute(r);
    root["delivery_s"] = std::chrono::duration<double>(r.delivery).count();
    root["delay_ms"] = json::object{{"p50", ms(r.delay_ns.percentile(50))},
                                    {"p99", ms(r.delay_ns.percentile(99))},
                                    {"max", ms(r.delay_ns.max())}};
  }
  return indented_json(root);
}

}  // namespace twinloft::mailbench
