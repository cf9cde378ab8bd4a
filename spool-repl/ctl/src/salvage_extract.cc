// `spool-repl salvage extract`: writes the mail that came after the parting into a bundle, on the losing
// side of a split brain.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <tuple>

#include "command_line.h"
#include "offline.h"
#include "twinloft/base/json.h"
#include "twinloft/spool-repl/journal/cut.h"
#include "twinloft/spool-repl/journal/written.h"
#include "twinloft/spool-repl/salvage/extract.h"
#include "twinloft/spool-repl/salvage/printable.h"
#include "twinloft/spool-repl/snapshot/file_blocks.h"
#include "twinloft/spool-repl/snapshot/mounted_image.h"

namespace twinloft::repl::ctl {

namespace {

namespace po = boost::program_options;
using salvage::printable;

constexpr const char* usage_text =
    "usage: spool-repl salvage extract VOLUME --bundle DIR --layout LAYOUT [options]\n"
    "       spool-repl salvage extract --journal FILE --data FILE --winner ID --bundle DIR --layout LAYOUT "
    "[options]\n"
    "\n"
    "Puts the mail that this replica took after its history and the winner's parted into a bundle, for "
    "`spool-repl salvage\n"
    "deliver` on the winner. The replica must not be served; nothing of it is changed.\n"
    "\n"
    "  --bundle DIR         where the mail goes: a directory that does not exist yet, or of an extraction "
    "that was interrupted\n"
    "  --layout LAYOUT      where a user's Maildir lies below the spool's root: %d domain, %n local part, %u "
    "address, %1n its\n"
    "                       first character: \"%d/%n/Maildir\". May be given several times\n"
    "  --winner ID          the replica whose history stays; needed where there are several others\n"
    "  --window TIME        mail this much older than the newest of before the parting may have been on its "
    "way (5min)\n"
    "  --slack TIME         the longest that a directory's sync took there: mail that was renamed that much "
    "before the newest of\n"
    "                       before the parting was stored may have been on its way (30s)\n"
    "  --all                take every message, also where it is not known what came after the parting. Mail "
    "that was deleted on\n"
    "                       the winner since comes back by this\n"
    "  --foreign-owners     take files that belong to another user than their Maildir does\n"
    "  --overlay DIR        room for a temporary file, as large as the file system's own journal (default: "
    "beside the bundle)\n"
    "  --journal FILE       the journal, in place of the one that the configuration names for VOLUME\n"
    "  --data FILE          the data area, likewise\n"
    "  --config FILE        default /etc/twinloft/spool-repl.toml\n"
    "  --json               the report as JSON\n"
    "\n"
    "Exit: 0 good; 1 failed: there is no bundle; 2 there is one, and something could not be taken; 64 usage; "
    "69 the replica is\n"
    "being served; 78 configuration.\n";

const CommandLine command{"spool-repl salvage extract", usage_text};

struct Options {
  std::string config = "/etc/twinloft/spool-repl.toml", volume, journal, data, overlay;
  ReplicaId winner = 0;
  std::string window = "300s", slack = "30s";
  bool json = false, all = false;
  salvage::ExtractOptions extract;
};

std::optional<int> parse_extract(const std::vector<std::string>& arguments, Options& o) {
  po::options_description all;
  all.add_options()("bundle", po::value(&o.extract.bundle))(
      "layout", po::value(&o.extract.layouts)->composing())("winner", po::value(&o.winner))(
      "window", po::value(&o.window))("slack", po::value(&o.slack))("all", po::bool_switch(&o.all))(
      "foreign-owners", po::bool_switch(&o.extract.foreign_owners))("overlay", po::value(&o.overlay))(
      "journal", po::value(&o.journal))("data", po::value(&o.data))("config", po::value(&o.config))(
      "json", po::bool_switch(&o.json))("help,h", "");
  all.add_options()("volume", po::value(&o.volume));
  po::positional_options_description positional;
  positional.add("volume", 1);
  if (auto done = command.parse(arguments, all, positional)) return done;
  if (o.extract.bundle.empty() || o.extract.layouts.empty())
    return command.complain_usage("--bundle and --layout are needed");
  if (o.volume.empty() && (o.journal.empty() || o.data.empty() || o.winner == 0))
    return command.complain_usage("name a volume, or --journal, --data and --winner");
  constexpr std::chrono::seconds most = std::chrono::hours(24 * 365);
  for (auto [name, text, out] :
       {std::tuple("--window", &o.window, &o.extract.window), {"--slack", &o.slack, &o.extract.slack}}) {
    auto seconds = seconds_of(name, *text, std::chrono::seconds(0), most);
    if (!seconds) return command.complain_usage(seconds.error().message);
    *out = *seconds;
  }
  return std::nullopt;
}

std::optional<int> read_config(Options& o) {
  if (o.volume.empty()) return std::nullopt;
  auto found = files_of(o.config, o.volume, o.journal, o.data);
  if (!found)
    return command.complain(found.error(), found.error().code == Errc::not_found ? exit_usage : exit_config);
  if (o.winner != 0) return std::nullopt;
  if (found->peers.size() != 1)
    return command.complain_usage("--winner: the volume has not one peer but several, or none");
  o.winner = found->peers.front().id;
  return std::nullopt;
}

// ---- the output

void show_progress(const salvage::ExtractProgress& p) {
  constexpr std::uint64_t width = 30;
  std::uint64_t full = p.maildirs_total == 0 ? 0
                                             : std::min(width, width * p.maildirs_done / p.maildirs_total);
  fmt::print(stderr, "\r[{}{}] {} of {} Maildirs, {} messages, {} taken, {} MiB ", std::string(full, '#'),
             std::string(width - full, '.'), p.maildirs_done, p.maildirs_total, p.looked_at, p.taken,
             p.bytes >> 20);
}

struct Outcome {
  std::string file_system;
  std::optional<journal::WrittenBlocks> written;  // nullopt: --all
  salvage::ExtractReport report;
  std::optional<Error> device_failure;
};

std::string text_of(const Options& o, const Outcome& out) {
  const salvage::ExtractReport& r = out.report;
  std::string text;
  if (out.written)
    text = fmt::format("{}: replica {} had everything up to LSN {}; {} blocks were written here behind it\n",
                       out.file_system, o.winner, out.written->parting().since.v, out.written->count());
  else
    text = fmt::format("{}: every message is taken (--all)\n", out.file_system);
  text += fmt::format(
      "{} messages in {} Maildirs: {} from after the parting, {} that may have been on their way, {} older\n",
      r.looked_at, r.maildirs, r.after, r.uncertain, r.before);
  if (r.links > 0) text += fmt::format("{} hard links to these in the same Maildir are left\n", r.links);
  if (r.from_log > 0)
    text += fmt::format("{} of these are from lmtpd's intake log, and not in their Maildirs\n", r.from_log);
  if (r.in_tmp > 0)
    text += fmt::format("{} files in tmp/ are left: they were never acknowledged\n", r.in_tmp);
  text += fmt::format("{}: {} messages, {} bytes\n", o.extract.bundle, r.after + r.uncertain, r.bytes);
  for (const auto& p : r.problems)
    text += p.path.empty() ? p.what + "\n" : fmt::format("not taken: {}: {}\n", printable(p.path), p.what);
  return text;
}

std::string json_of(const Options& o, const Outcome& out) {
  const salvage::ExtractReport& r = out.report;
  json::array problems;
  for (const auto& p : r.problems)
    problems.push_back(json::object{{"path", printable(p.path)}, {"what", p.what}});
  json::object root{{"bundle", o.extract.bundle},
                    {"file_system", out.file_system},
                    {"winner", o.winner},
                    {"parting_lsn", nullptr},
                    {"written_blocks", nullptr},
                    {"maildirs", r.maildirs},
                    {"looked_at", r.looked_at},
                    {"after", r.after},
                    {"from_log", r.from_log},
                    {"uncertain", r.uncertain},
                    {"before", r.before},
                    {"links", r.links},
                    {"in_tmp", r.in_tmp},
                    {"bytes", r.bytes},
                    {"problems", std::move(problems)},
                    {"device_failure", nullptr}};
  if (out.written)
    root["parting_lsn"] = out.written->parting().since.v, root["written_blocks"] = out.written->count();
  if (out.device_failure) root["device_failure"] = out.device_failure->message;
  return json::serialize(root) + "\n";
}

// ---- the work

// The overlay is in the bundle's directory, which needs room in any case.
std::string overlay_directory(const Options& o) {
  if (!o.overlay.empty()) return o.overlay;
  std::filesystem::path bundle(o.extract.bundle);
  if (!bundle.has_filename()) bundle = bundle.parent_path();
  return bundle.has_parent_path() ? bundle.parent_path().string() : ".";
}

Result<std::optional<journal::WrittenBlocks>> written_blocks(const Options& o, ports::BlockFile& journal,
                                                             const journal::History& history) {
  if (o.winner == history.superblock().replica)
    return fail(Errc::invalid, "--winner {}: that is the replica whose files these are: the loser", o.winner);
  if (o.all) return std::nullopt;
  auto written = blocks_written_since(journal, history, o.winner);
  if (!written)
    return fail(
        written.error().code,
        "{}. With --all every message is taken, and mail that was deleted on the winner since comes back",
        written.error().message);
  return std::move(*written);
}

Result<Outcome> extract(Options& o) {
  TL_TRY_ASSIGN(OpenFile journal, open_for_reading(o.journal));
  TL_TRY_ASSIGN(OpenFile data, open_for_reading(o.data));
  for (const OpenFile* f : {&journal, &data})
    if (f->in_use) return being_served(*f);
  io::OsBlockFile journal_file(journal.file), data_file(data.file);
  TL_TRY_ASSIGN(journal::History history, journal::History::open(journal_file, data_file));
  Outcome out;
  TL_TRY_ASSIGN(out.written, written_blocks(o, journal_file, history));
  o.extract.volume = history.superblock().volume;
  o.extract.parting.loser = history.superblock().replica;
  if (out.written) {
    const journal::Parting& p = out.written->parting();
    o.extract.parting = {history.superblock().replica, p.since.v, p.epoch.counter, p.epoch.id};
  }
  TL_TRY_ASSIGN(journal::Image image, history.image(history.last()));
  TL_TRY_ASSIGN(auto mounted, snapshot::MountedImage::mount(image, overlay_directory(o)));
  out.file_system = mounted->type();
  // Writes of the file system's own recovery count too: with data=journal, a message may be in its journal
  // alone.
  auto after_parting = [&](int fd) -> Result<bool> {
    if (!out.written) return true;
    return snapshot::file_wanted(fd, [&](std::uint64_t lba, std::uint64_t blocks) {
      return out.written->any(lba, blocks) || mounted->target().changed(lba, blocks);
    });
  };
  o.extract.log_written = [&](int fd, std::uint64_t offset, std::uint64_t bytes) -> Result<bool> {
    if (!out.written) return true;
    return snapshot::range_wanted(fd, offset, bytes, [&](std::uint64_t lba, std::uint64_t blocks) {
      return out.written->any(lba, blocks) || mounted->target().changed(lba, blocks);
    });
  };
  bool picture = !o.json && ::isatty(STDERR_FILENO) == 1;
  o.extract.device_failure = [&] { return mounted->target().failure(); };
  auto report = salvage::extract(
      mounted->root(), o.extract, after_parting,
      picture ? show_progress : std::function<void(const salvage::ExtractProgress&)>());
  if (picture) fmt::print(stderr, "\n");
  out.device_failure = mounted->target().failure();
  if (!report && out.device_failure)
    return fail(report.error().code, "{}. A request to the image failed: {}", report.error().message,
                out.device_failure->message);
  if (!report) return std::unexpected(report.error());
  out.report = std::move(*report);
  return out;
}

}  // namespace

int salvage_extract(const std::vector<std::string>& arguments) {
  Options options;
  if (auto done = parse_extract(arguments, options)) return *done;
  if (auto done = read_config(options)) return *done;
  auto out = extract(options);
  if (!out) return command.complain(out.error(), exit_code_of(out.error()));
  fmt::print("{}", options.json ? json_of(options, *out) : text_of(options, *out));
  return out->report.problems.empty() ? exit_ok : exit_incomplete;
}

}  // namespace twinloft::repl::ctl
