// `spool-repl journal`: shows the journal of a replica that is not served, and makes images from it.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>

#include "command_line.h"
#include "journal_text.h"
#include "offline.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/journal/cut.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::ctl {

namespace {

constexpr const char* usage_text =
    "usage: spool-repl journal VOLUME [options]\n"
    "       spool-repl journal --journal FILE [--data FILE] [options]\n"
    "\n"
    "Lists the records of a replica's journal. Reads files and block devices, and changes nothing of them.\n"
    "\n"
    "  --verify             check the chain, and the data area's label; print what is wrong, not the "
    "records\n"
    "  --cut LSN            with --out: make an image of the volume as it was right after LSN. \"end\": the "
    "last record\n"
    "                       that recovery would keep; \"commit\": the last one known to be committed\n"
    "  --out FILE           the image, a new sparse file\n"
    "  --base FILE          with --base-journal: start from this earlier copy of the data area, for earlier "
    "cuts\n"
    "  --base-journal FILE  copy of the journal from the same moment as --base\n"
    "  --journal FILE       the journal, in place of the one that the configuration names for VOLUME\n"
    "  --data FILE          the data area, likewise\n"
    "  --config FILE        default /etc/twinloft/spool-repl.toml\n"
    "  --json               the same as JSON\n"
    "\n"
    "Exit: 0 good; 1 the journal is damaged, or the cut is not possible; 64 usage; 69 the replica is being "
    "served;\n"
    "78 configuration.\n";

const CommandLine command{"spool-repl journal", usage_text};

struct Options {
  std::string config = "/etc/twinloft/spool-repl.toml", volume, journal, data, cut, out, base, base_journal;
  bool json = false, verify = false;
};

std::optional<int> parse(const std::vector<std::string>& arguments, Options& o) {
  po::options_description all;
  all.add_options()("config", po::value(&o.config))("journal", po::value(&o.journal))(
      "data", po::value(&o.data))("cut", po::value(&o.cut))("out", po::value(&o.out))(
      "base", po::value(&o.base))("base-journal", po::value(&o.base_journal))(
      "json", po::bool_switch(&o.json))("verify", po::bool_switch(&o.verify))("help,h", "")(
      "volume", po::value(&o.volume));
  po::positional_options_description positional;
  positional.add("volume", 1);
  if (auto done = command.parse(arguments, all, positional)) return done;
  if (o.volume.empty() && o.journal.empty()) return command.complain_usage("name a volume, or a --journal");
  if (o.cut.empty() != o.out.empty()) return command.complain_usage("--cut and --out belong together");
  if (o.base.empty() != o.base_journal.empty())
    return command.complain_usage("--base and --base-journal belong together");
  if (!o.base.empty() && o.cut.empty()) return command.complain_usage("--base is for --cut");
  if (o.verify && !o.cut.empty()) return command.complain_usage("--verify and --cut exclude each other");
  return std::nullopt;
}

std::optional<int> read_config(Options& o) {
  if (o.volume.empty() || (!o.journal.empty() && !o.data.empty())) return std::nullopt;
  auto found = files_of(o.config, o.volume, o.journal, o.data);
  if (found) return std::nullopt;
  return command.complain(found.error(), found.error().code == Errc::not_found ? exit_usage : exit_config);
}

int list(const Options& o) {
  auto journal = open_for_reading(o.journal);
  if (!journal) return command.complain(journal.error(), exit_failed);
  io::OsBlockFile file(journal->file);
  auto listing = journal::list_journal(file);
  if (!listing) return command.complain(listing.error(), exit_failed);
  Status data_fits;
  if (!o.data.empty()) {
    auto data = open_for_reading(o.data);
    if (!data) return command.complain(data.error(), exit_failed);
    io::OsBlockFile data_file(data->file);
    data_fits = journal::check_data_area(listing->superblock, data_file);
  }
  JournalReport report{o.journal, *listing, o.data.empty() ? std::nullopt : std::optional(data_fits),
                       journal->in_use};
  fmt::print("{}", o.json ? journal_json(report, !o.verify) : journal_text(report, !o.verify));
  return listing->damage || !data_fits ? exit_failed : exit_ok;
}

Result<Lsn> parse_lsn(const std::string& text, const journal::History& history) {
  if (text == "end") return history.last();
  if (text == "commit") return history.commit();
  Lsn lsn;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), lsn.v);
  if (ec != std::errc{} || end != text.data() + text.size())
    return fail(Errc::invalid, "--cut {}: a number is expected, \"end\" or \"commit\"", text);
  return lsn;
}

// The image is a new file, so that no file is overwritten by mistake. A failed image is removed.
Result<journal::CutReport> write_image(const journal::History& history, Lsn lsn, const std::string& path) {
  io::DirectFile file;
  file.path = path;
  file.size_bytes = history.superblock().volume_blocks * block_size;
  file.fd = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.fd) return fail_errno(errno, "{}: the image cannot be made", path);
  Result<journal::CutReport> done = fail_errno(errno, "{}: the image cannot be made", path);
  if (::ftruncate(file.fd.get(), static_cast<off_t>(file.size_bytes)) == 0) {
    io::OsBlockFile out(file);
    done = history.write_image(lsn, out);
  }
  if (!done) ::unlink(path.c_str());
  return done;
}

Result<std::string> cut(const Options& o) {
  TL_TRY_ASSIGN(OpenFile journal, open_for_reading(o.journal));
  TL_TRY_ASSIGN(OpenFile data, open_for_reading(o.base.empty() ? o.data : o.base));
  std::optional<OpenFile> base_journal;
  if (!o.base_journal.empty()) {
    TL_TRY_ASSIGN(base_journal, open_for_reading(o.base_journal));
    if (base_journal->in_use) return being_served(*base_journal);
  }
  if (journal.in_use) return being_served(journal);
  if (data.in_use) return being_served(data);
  io::OsBlockFile journal_file(journal.file), data_file(data.file);
  std::optional<io::OsBlockFile> base_file;
  if (base_journal) base_file.emplace(base_journal->file);
  TL_TRY_ASSIGN(journal::History history, base_file
                                              ? journal::History::open(journal_file, *base_file, data_file)
                                              : journal::History::open(journal_file, data_file));
  TL_TRY_ASSIGN(Lsn lsn, parse_lsn(o.cut, history));
  TL_TRY(history.check(lsn));
  TL_TRY_ASSIGN(journal::CutReport report, write_image(history, lsn, o.out));
  return o.json ? cut_json(history, lsn, report, o.out) : cut_text(history, lsn, report, o.out);
}

}  // namespace

int journal_command(const std::vector<std::string>& arguments) {
  Options options;
  if (auto done = parse(arguments, options)) return *done;
  if (auto done = read_config(options)) return *done;
  if (options.cut.empty()) return list(options);
  if (options.data.empty() && options.base.empty())
    return command.complain_usage("--cut needs the data area: --data FILE");
  auto done = cut(options);
  if (!done) return command.complain(done.error(), exit_code_of(done.error()));
  fmt::print("{}", *done);
  return exit_ok;
}

}  // namespace twinloft::repl::ctl
