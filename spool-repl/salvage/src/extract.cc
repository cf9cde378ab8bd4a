#include "twinloft/spool-repl/salvage/extract.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <unordered_set>

#include "beneath.h"
#include "intake_entries.h"
#include "on_its_way.h"
#include "spool_tree.h"

namespace twinloft::repl::salvage {

namespace {

// Mail servers make no holes in messages. With holes, a user could make the bundle fill the disk with zeros.
constexpr std::uint64_t sparse_bytes_min = 1 << 20;
struct FileTimes : Times {
  std::uint64_t inode = 0;
};

FileTime time_of(const statx_timestamp& t) {
  return {t.tv_sec, t.tv_nsec};
}

Result<FileTimes> times_of(int dir, const std::string& name) {
  struct statx about{};
  if (::statx(dir, name.c_str(), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_BTIME,
              &about) != 0)
    return fail_errno(errno, "statx");
  FileTimes out{{time_of(about.stx_mtime), time_of(about.stx_ctime), {}}, about.stx_ino};
  // Without a time of birth, the earlier of the two times is used, since users cannot make it later than the
  // last change.
  out.born = about.stx_mask & STATX_BTIME ? time_of(about.stx_btime) : std::min(out.modified, out.changed);
  return out;
}

class Extraction {
 public:
  Extraction(int root, const ExtractOptions& options, const WrittenAfterParting& written,
             const std::function<void(const ExtractProgress&)>& progress, BundleWriter bundle)
      : root_(root), options_(options), written_(written), progress_(progress), bundle_(std::move(bundle)) {}

  Result<ExtractReport> run(const std::vector<FoundMaildir>& maildirs, Problems problems);

 private:
  using Visit = Status (Extraction::*)(const FoundMaildir&, int box, const MailFile&);
  Status visit_all(const std::vector<FoundMaildir>& maildirs, Visit visit);
  Status judge(const FoundMaildir& maildir, int box, const MailFile& file);
  Status look_again(const FoundMaildir& maildir, int box, const MailFile& file);
  void note_birth(std::int64_t born_s);
  void note_change(std::int64_t changed_s);
  Status check(const PlainFile& file) const;
  Status take_logged(const std::vector<FoundMaildir>& maildirs, const LoggedMessage& message);
  Status take(const FoundMaildir& maildir, const MailFile& file, const PlainFile& open,
              const FileTimes& times, Kind kind);
  void show_progress();

  int root_;
  const ExtractOptions& options_;
  const WrittenAfterParting& written_;
  const std::function<void(const ExtractProgress&)>& progress_;
  BundleWriter bundle_;
  Problems problems_;
  Manifest manifest_;
  ExtractReport report_;
  ExtractProgress shown_;
  uid_t owner_ = 0;  // of the present Maildir
  bool first_pass_ = true;
  // The inodes that the first pass has taken or reported. A message that may have been in flight is checked
  // by each of its names, since it can be linked into several users' Maildirs.
  std::unordered_set<std::uint64_t> settled_;
  std::unordered_set<std::uint64_t> taken_here_;  // inodes, in the present Maildir
  std::vector<Witness> witnesses_;
  std::vector<std::int64_t> births_s_;           // of messages with content from before the split
  std::optional<std::int64_t> newest_before_s_;  // of the newest of them
};

Status Extraction::check(const PlainFile& file) const {
  auto bytes = static_cast<std::uint64_t>(file.about.st_size),
       stored = static_cast<std::uint64_t>(file.about.st_blocks) * 512;
  if (!options_.foreign_owners && file.about.st_uid != owner_)
    return fail(Errc::denied, "belongs to user {}, its Maildir to {}: not taken", file.about.st_uid, owner_);
  if (bytes > options_.message_bytes_max)
    return fail(Errc::exhausted, "{} bytes, more than the {} that a message may have: not taken", bytes,
                options_.message_bytes_max);
  if (bytes > sparse_bytes_min && stored < bytes / 2)
    return fail(Errc::invalid, "{} bytes, of which only {} are stored: not a message, not taken", bytes,
                stored);
  return {};
}

Status Extraction::take(const FoundMaildir& maildir, const MailFile& file, const PlainFile& open,
                        const FileTimes& times, Kind kind) {
  // Another name in the same Maildir is the same message. A mail user can make any number of names.
  if (taken_here_.contains(times.inode)) {
    ++report_.links;
    return {};
  }
  std::string path = path_of(maildir.path, file);
  if (auto fits = check(open); !fits) {
    problems_.add(path, std::move(fits).error().message);
    return {};
  }
  std::uint64_t number = manifest_.messages.size() + 1;
  TL_TRY_ASSIGN(BundleWriter::Added added,
                bundle_.add(open.fd.get(), number, static_cast<std::uint64_t>(open.about.st_size)));
  if (added.unreadable) {
    problems_.add(path, "cannot be read, not taken: " + added.unreadable->message);
    return {};
  }
  taken_here_.insert(times.inode);
  (kind == Kind::after ? report_.after : report_.uncertain) += 1;
  report_.bytes += added.bytes;
  manifest_.messages.push_back({number, kind, maildir.user, maildir.path, file.folder, file.box == Box::fresh,
                                file.name, added.bytes, added.file, added.content, times.modified,
                                times.changed, times.born});
  return {};
}

// The time of the message is that of the extraction, since the log has none.
Status Extraction::take_logged(const std::vector<FoundMaildir>& maildirs, const LoggedMessage& message) {
  const std::string path = path_of(message.maildir, {message.folder, Box::fresh, message.name});
  auto of_user = std::ranges::find(maildirs, message.maildir, &FoundMaildir::path);
  if (of_user == maildirs.end()) {
    problems_.add(path, "in the intake log, and not taken: no Maildir there matches the layout");
    return {};
  }
  Fd file(::memfd_create("logged", MFD_CLOEXEC));
  if (!file) return fail_errno(errno, "memfd_create");
  TL_TRY(write_all(file.get(), as_bytes(message.content)));
  struct stat about{};
  if (::fstat(file.get(), &about) != 0) return fail_errno(errno, "fstat");
  const FileTime now{about.st_mtim.tv_sec, static_cast<std::uint32_t>(about.st_mtim.tv_nsec)};
  const std::uint64_t number = manifest_.messages.size() + 1;
  TL_TRY_ASSIGN(BundleWriter::Added added, bundle_.add(file.get(), number, message.content.size()));
  ++report_.after;
  ++report_.from_log;
  report_.bytes += added.bytes;
  manifest_.messages.push_back({number, Kind::after, of_user->user, message.maildir, message.folder, true,
                                message.name, added.bytes, added.file, added.content, now, now, now});
  return {};
}

void Extraction::note_birth(std::int64_t born_s) {
  births_s_.push_back(born_s);
  std::optional<std::int64_t>& newest = witnesses_.back().newest_birth_s;
  newest = std::max(newest.value_or(born_s), born_s);
}

void Extraction::note_change(std::int64_t changed_s) {
  std::optional<std::int64_t>& first = witnesses_.back().first_change_s;
  first = std::min(first.value_or(changed_s), changed_s);
}

Status Extraction::judge(const FoundMaildir& maildir, int box, const MailFile& file) {
  if (file.box == Box::tmp) {
    ++report_.in_tmp;
    return {};
  }
  ++report_.looked_at;
  show_progress();
  auto open = open_plain_file(box, file.name);
  auto times = times_of(box, file.name);
  Result<bool> written = open && times ? written_(open->fd.get()) : false;
  if (!open || !times || !written) {
    const Error& error = !open ? open.error() : !times ? times.error() : written.error();
    problems_.add(path_of(maildir.path, file), "not taken: " + error.message);
    if (times) settled_.insert(times->inode);
    return {};
  }
  if (!*written) {
    // Without a stored block, the time of its writing is unknown: an empty file, or a file within its inode.
    if (open->about.st_blocks > 0) note_birth(times->born.seconds);
    return {};
  }
  settled_.insert(times->inode);
  note_change(times->changed.seconds);
  WallTime changed{times->changed.seconds, static_cast<std::int32_t>(times->changed.ns / 1000)};
  if (!report_.first_after || std::pair(changed.seconds, changed.microseconds) <
                                  std::pair(report_.first_after->seconds, report_.first_after->microseconds))
    report_.first_after = changed;
  return take(maildir, file, *open, *times, Kind::after);
}

Status Extraction::look_again(const FoundMaildir& maildir, int box, const MailFile& file) {
  if (file.box == Box::tmp) return {};
  auto times = times_of(box, file.name);
  if (!times || settled_.contains(times->inode)) return {};
  if (!newest_before_s_ ||
      !may_have_been_on_its_way(*times, *newest_before_s_, options_.window, options_.slack)) {
    ++report_.before;
    return {};
  }
  show_progress();
  auto open = open_plain_file(box, file.name);
  if (open) return take(maildir, file, *open, *times, Kind::uncertain);
  problems_.add(path_of(maildir.path, file), "not taken: " + open.error().message);
  return {};
}

Status Extraction::visit_all(const std::vector<FoundMaildir>& maildirs, Visit visit) {
  for (const FoundMaildir& maildir : maildirs) {
    // The first pass has reported unreadable directories already.
    Problems known;
    Problems& problems = first_pass_ ? problems_ : known;
    auto dir = open_directory(root_, maildir.path);
    auto about = dir ? stat_of(dir->get()) : std::unexpected(dir.error());
    auto folders = list_folders(root_, maildir.path, problems);
    if (!about || !folders) {
      problems.add_unreadable(maildir.path, !about ? about.error() : folders.error());
      continue;
    }
    owner_ = about->st_uid;
    taken_here_.clear();
    if (first_pass_) witnesses_.emplace_back();
    for (const std::string& folder : *folders)
      TL_TRY(walk_folder(
          root_, maildir.path, folder,
          [&](int box, const MailFile& file) { return (this->*visit)(maildir, box, file); }, problems));
    if (first_pass_) ++shown_.maildirs_done;
    show_progress();
  }
  first_pass_ = false;
  return {};
}

void Extraction::show_progress() {
  shown_.looked_at = report_.looked_at;
  shown_.taken = report_.after + report_.uncertain;
  shown_.bytes = report_.bytes;
  if (progress_) progress_(shown_);
}

Result<ExtractReport> Extraction::run(const std::vector<FoundMaildir>& maildirs, Problems problems) {
  problems_ = std::move(problems);
  report_.maildirs = shown_.maildirs_total = maildirs.size();
  TL_TRY(visit_all(maildirs, &Extraction::judge));
  newest_before_s_ = newest_birth(births_s_, first_credible_change(witnesses_));
  TL_TRY(visit_all(maildirs, &Extraction::look_again));
  if (options_.log_written)
    TL_TRY(each_logged_message(
        root_, options_.log_written,
        [&](const LoggedMessage& message) { return take_logged(maildirs, message); }, problems_));
  if (auto failure = options_.device_failure ? options_.device_failure() : std::nullopt)
    problems_.add("", "a request to the image failed, mail may be missing: " + failure->message);
  report_.problems = problems_.take();
  manifest_.volume = options_.volume;
  manifest_.parting = options_.parting;
  manifest_.window_s = static_cast<std::uint64_t>(options_.window.count());
  manifest_.layouts = options_.layouts;
  manifest_.problems = report_.problems;
  TL_TRY(bundle_.finish(manifest_));
  return report_;
}

}  // namespace

Result<ExtractReport> extract(int root, const ExtractOptions& options,
                              const WrittenAfterParting& written_after_parting,
                              const std::function<void(const ExtractProgress&)>& progress, FileOps* ops) {
  OsFileOps os;
  std::vector<Layout> layouts;
  for (const std::string& text : options.layouts) {
    TL_TRY_ASSIGN(Layout layout, Layout::parse(text));
    layouts.push_back(std::move(layout));
  }
  if (layouts.empty())
    return fail(Errc::invalid, "the layout of the Maildirs is missing, such as \"%d/%n/Maildir\"");
  if (options.window.count() < 0)
    return fail(Errc::invalid, "a window of {} s: it cannot be negative", options.window.count());
  if (options.slack.count() < 0)
    return fail(Errc::invalid, "a slack of {} s: it cannot be negative", options.slack.count());
  auto shallower = [](const Layout& a, const Layout& b) { return a.user_depth() < b.user_depth(); };
  Problems problems(std::min_element(layouts.begin(), layouts.end(), shallower)->user_depth());
  std::vector<FoundMaildir> maildirs = find_maildirs(root, layouts, problems);
  if (maildirs.empty()) {
    std::vector<ExtractProblem> found = problems.take();
    return fail(Errc::not_found, "no Maildir matches the layout {}{}", options.layouts.front(),
                found.empty() ? std::string()
                              : fmt::format("; {}: {}", printable(found.front().path), found.front().what));
  }
  TL_TRY_ASSIGN(BundleWriter bundle, BundleWriter::create(options.bundle, ops ? *ops : os));
  return Extraction(root, options, written_after_parting, progress, std::move(bundle))
      .run(maildirs, std::move(problems));
}

}  // namespace twinloft::repl::salvage
