#include "twinloft/lmtpd/intake/replay.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "segments_of.h"
#include "twinloft/intake_log/decide.h"
#include "twinloft/intake_log/entries.h"
#include "twinloft/intake_log/group.h"
#include "twinloft/intake_log/mark.h"
#include "twinloft/intake_log/scan.h"

namespace twinloft::lmtpd {

namespace {

struct Loaded {
  intake_log::Mark mark;
  intake_log::Scan scan;
  intake_log::LogEntries entries;

  bool is_of(const MountInstance& here) const {
    return !scan.groups.empty() && scan.groups.back().mount == here;
  }
};

Result<Loaded> load(const LogDirectory& log) {
  TL_TRY_ASSIGN(std::vector<std::byte> bytes, log.read_mark());
  TL_TRY_ASSIGN(intake_log::Mark mark, intake_log::Mark::decode(bytes, log.incarnation()));
  const SegmentsOf segments(log);
  TL_TRY_ASSIGN(intake_log::Scan scan, intake_log::scan(log.shape(), log.incarnation(), segments));
  TL_TRY(intake_log::check_mark(mark, scan));
  TL_TRY_ASSIGN(intake_log::LogEntries entries, intake_log::LogEntries::read(scan, segments));
  return Loaded{std::move(mark), std::move(scan), std::move(entries)};
}

std::string describe_damage(const intake_log::Scan& scan) {
  std::string out;
  for (const intake_log::Damage& damage : scan.damage)
    out += fmt::format("{}{} is damaged: groups {} to {}, with entries {} to {}, cannot be read: {}",
                       out.empty() ? "" : "; ", log_directory_name, damage.first_group, damage.end_group - 1,
                       damage.first_entry, damage.end_entry - 1, damage.why);
  return out;
}

class Replay {
 public:
  Replay(LogDirectory& log, const ReplayConfig& config, FileOps& ops, Loaded loaded)
      : log_(log),
        files_(config.files ? *config.files : log),
        config_(config),
        ops_(ops),
        loaded_(std::move(loaded)) {}

  Result<ReplayReport> run() {
    report_.same_mount = loaded_.is_of(config_.here);
    report_.damage = describe_damage(loaded_.scan);
    gather();
    if (!entries_.empty()) TL_TRY(place());
    TL_TRY(retire());
    return std::move(report_);
  }

 private:
  // Entries whose files have to be looked for go to entries_.
  void gather() {
    for (const intake_log::LogEntry& entry : loaded_.entries.entries()) {
      ++report_.entries;
      const intake_log::EntryFacts facts{
          .cancelled = entry.cancelled,
          .settled = loaded_.mark.is_settled(entry.number),
          .on_same_mount = loaded_.scan.groups[entry.group].mount == config_.here};
      if (intake_log::depends_on_presence(facts))
        entries_.push_back({entry.number, std::string(entry.name.maildir), std::string(entry.name.folder),
                            std::string(entry.name.name), entry.content, facts.settled});
      else
        count(intake_log::decide(facts));
    }
  }

  void count(const intake_log::Decision& decision) {
    if (decision.why == intake_log::Why::cancelled)
      ++report_.withdrawn;
    else
      ++(decision.verdict == intake_log::Verdict::drop ? report_.dropped : report_.present);
  }

  Status place() {
    Placing placing({config_.root, log_.directory(), log_.incarnation(), config_.counts}, entries_, ops_);
    placing.look();
    TL_TRY(settle(placing));
    TL_TRY(placing.place([&] { return settle(placing); }));
    placing.verify();
    TL_TRY(settle(placing));
    for (std::size_t i = 0; i < entries_.size(); ++i) count(entries_[i], placing.outcomes()[i]);
    return {};
  }

  // A later run, with readers at work, must not deliver what this run has found or placed.
  Status settle(const Placing& placing) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const Fate fate = placing.outcomes()[i].fate;
      const std::uint64_t number = entries_[i].number;
      if (fate != Fate::missing && fate != Fate::kept && number < loaded_.mark.room())
        loaded_.mark.settle(number);
    }
    return files_.set_mark(loaded_.mark.encode());
  }

  void count(const PlacedEntry& entry, const PlacedOutcome& outcome) {
    switch (outcome.fate) {
      case Fate::present:
        ++report_.present;
        return;
      case Fate::gone:
        ++report_.gone;
        return;
      case Fate::delivered:
        ++report_.delivered;
        return;
      default:
        report_.notes.push_back({entry.number, entry.maildir, entry.folder, entry.name, outcome});
    }
  }

  // First everything below becomes durable, then a group says so.
  Status retire() {
    if (report_.of(Fate::kept) > 0) return files_.sync();
    if (loaded_.scan.groups.empty()) {
      report_.retired = true;
      return log_.clear_failure();
    }
    loaded_.mark.settle_below(loaded_.scan.next_entry);
    TL_TRY(files_.set_mark(loaded_.mark.encode()));
    TL_TRY(files_.sync());
    if (!report_.damage.empty()) return {};
    TL_TRY(append_empty_group());
    report_.retired = true;
    return log_.clear_failure();
  }

  Status append_empty_group() {
    const intake_log::Scan& scan = loaded_.scan;
    LogBuffer memory(log_block_bytes);
    intake_log::GroupBuilder builder(memory.bytes());
    intake_log::GroupHeader header;
    header.incarnation = log_.incarnation();
    header.number = scan.next_group;
    header.first_entry = scan.next_entry;
    header.mount = config_.here;
    header.retired = scan.next_entry;
    header.oldest_number = header.number;
    header.at = intake_log::place_for(log_.shape(), scan.end, log_block_bytes);
    header.oldest = header.at;
    return files_.append(header.at.segment, header.at.offset, builder.finish(header));
  }

  LogDirectory& log_;
  LogFiles& files_;
  const ReplayConfig& config_;
  FileOps& ops_;
  Loaded loaded_;
  std::vector<PlacedEntry> entries_;
  ReplayReport report_;
};

}  // namespace

std::uint64_t ReplayReport::of(Fate fate) const {
  return static_cast<std::uint64_t>(
      std::ranges::count(notes, fate, [](const ReplayNote& note) { return note.outcome.fate; }));
}

Result<ReplayReport> replay_log(LogDirectory& log, const ReplayConfig& config, FileOps& ops) {
  TL_TRY_ASSIGN(Loaded loaded, load(log));
  TL_TRY_ASSIGN(std::optional<std::string> failure, log.failure());
  if (failure && loaded.is_of(config.here))
    return fail(Errc::unavailable,
                "the intake log failed on this mount: {}; unmount the spool and mount it again, since only a "
                "fresh mount shows what is on the disk",
                *failure);
  return Replay(log, config, ops, std::move(loaded)).run();
}

Result<LogContent> look_into_log(const LogDirectory& log, const MountInstance& here) {
  TL_TRY_ASSIGN(Loaded loaded, load(log));
  if (!loaded.scan.damage.empty()) return fail(Errc::corrupt, "{}", describe_damage(loaded.scan));
  LogContent out;
  out.of_this_mount = loaded.is_of(here);
  TL_TRY_ASSIGN(out.failure, log.failure());
  for (const intake_log::LogEntry& entry : loaded.entries.entries()) {
    ++out.entries;
    if (!entry.cancelled && !loaded.mark.is_settled(entry.number)) ++out.unsettled;
  }
  for (const intake_log::GroupHeader& group : loaded.scan.groups)
    if (group.end_entry() > loaded.scan.retired) out.bytes += group.bytes;
  return out;
}

}  // namespace twinloft::lmtpd
