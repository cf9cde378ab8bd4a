#include "intake_entries.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "beneath.h"
#include "twinloft/intake_log/decide.h"
#include "twinloft/intake_log/entries.h"
#include "twinloft/intake_log/mark.h"
#include "twinloft/intake_log/scan.h"
#include "twinloft/mail/maildir_name.h"

namespace twinloft::repl::salvage {

namespace {

constexpr const char* directory_of_log = ".twinloft-intake";
constexpr std::size_t identity_bytes_max = 8192;

// The log's files, read-only. Their identity is not checked: an image of the loser is the whole file system.
class LogFiles final : public intake_log::SegmentReader {
 public:
  static Result<LogFiles> open(int root) {
    LogFiles out;
    TL_TRY_ASSIGN(out.directory_, open_directory(root, directory_of_log));
    TL_TRY_ASSIGN(out.incarnation_, read_incarnation(out.directory_.get()));
    for (std::uint32_t i = 0; i < intake_log::segments_max; ++i) {
      auto segment = open_plain_file(out.directory_.get(), fmt::format("segment-{:02}", i));
      if (!segment && segment.error().sys == ENOENT) break;
      TL_TRY_ASSIGN(PlainFile file, std::move(segment));
      out.shape_.segment_bytes = static_cast<std::uint64_t>(file.about.st_size);
      out.segments_.push_back(std::move(file.fd));
    }
    out.shape_.segments = static_cast<std::uint32_t>(out.segments_.size());
    return out;
  }

  Status read(std::uint32_t segment, std::uint64_t offset, MutableByteSpan out) const override {
    for (std::size_t done = 0; done < out.size();) {
      ssize_t n = ::pread(segments_.at(segment).get(), out.data() + done, out.size() - done,
                          static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail_errno(errno, "read segment-{:02}", segment);
      if (n == 0) return fail(Errc::corrupt, "segment-{:02} ends at byte {}", segment, offset + done);
      done += static_cast<std::size_t>(n);
    }
    return {};
  }

  Result<intake_log::Mark> mark() const {
    std::vector<std::byte> bytes(intake_log::mark_bytes_max);
    ssize_t n = ::fgetxattr(directory_.get(), intake_log::mark_attribute, bytes.data(), bytes.size());
    if (n < 0) return fail_errno(errno, "read {}", intake_log::mark_attribute);
    return intake_log::Mark::decode(ByteSpan(bytes).first(static_cast<std::size_t>(n)), incarnation_);
  }
  const Uuid& incarnation() const { return incarnation_; }
  const intake_log::LogShape& shape() const { return shape_; }
  int segment(std::uint32_t number) const { return segments_.at(number).get(); }

 private:
  // lmtpd writes "incarnation UUID" on the second line of `lock`.
  static Result<Uuid> read_incarnation(int directory) {
    constexpr std::string_view word = "\nincarnation ";
    TL_TRY_ASSIGN(PlainFile lock, open_plain_file(directory, "lock"));
    std::string text(identity_bytes_max, '\0');
    ssize_t n = ::pread(lock.fd.get(), text.data(), text.size(), 0);
    if (n < 0) return fail_errno(errno, "read lock");
    text.resize(static_cast<std::size_t>(n));
    std::size_t at = text.find(word);
    if (at == text.npos) return fail(Errc::corrupt, "the file \"lock\" names no incarnation");
    at += word.size();
    return Uuid::parse(std::string_view(text).substr(at, text.find('\n', at) - at));
  }

  Fd directory_;
  std::vector<Fd> segments_;
  intake_log::LogShape shape_;
  Uuid incarnation_;
};

// Which names are in new/ and cur/ of the folders that the log names.
class Names {
 public:
  explicit Names(int root) : root_(root) {}
  Result<bool> has(const intake_log::EntryName& name) {
    const std::pair key{std::string(name.maildir), std::string(name.folder)};
    auto found = known_.find(key);
    if (found == known_.end()) {
      TL_TRY_ASSIGN(std::set<std::string> names, list(key.first, key.second));
      found = known_.emplace(key, std::move(names)).first;
    }
    return found->second.contains(std::string(name.name));
  }

 private:
  Result<std::set<std::string>> list(const std::string& maildir, const std::string& folder) const {
    std::set<std::string> out;
    Problems problems;
    TL_TRY(walk_folder(
        root_, maildir, folder,
        [&](int, const MailFile& file) -> Status {
          if (file.box != Box::tmp) out.insert(mail::base_name(file.name));
          return {};
        },
        problems));
    if (problems.first_unreadable()) return std::unexpected(*problems.first_unreadable());
    return out;
  }

  int root_;
  std::map<std::pair<std::string, std::string>, std::set<std::string>> known_;
};

Status take_all(int root, const LogFiles& files, const RangeWrittenAfterParting& written,
                const std::function<Status(const LoggedMessage&)>& take, Status& of_take) {
  TL_TRY_ASSIGN(intake_log::Mark mark, files.mark());
  TL_TRY_ASSIGN(intake_log::Scan scan, intake_log::scan(files.shape(), files.incarnation(), files));
  TL_TRY(intake_log::check_mark(mark, scan));
  TL_TRY_ASSIGN(intake_log::LogEntries log, intake_log::LogEntries::read(scan, files));
  Names names(root);
  for (const intake_log::LogEntry& entry : log.entries()) {
    const intake_log::GroupHeader& group = scan.groups[entry.group];
    TL_TRY_ASSIGN(bool after, written(files.segment(group.at.segment), group.at.offset, group.bytes));
    if (!after) continue;
    TL_TRY_ASSIGN(bool there, names.has(entry.name));
    const intake_log::EntryFacts facts{
        .cancelled = entry.cancelled,
        .settled = mark.is_settled(entry.number),
        .presence = there ? intake_log::Presence::same : intake_log::Presence::absent};
    if (intake_log::decide(facts).verdict != intake_log::Verdict::deliver) continue;
    of_take = take({std::string(entry.name.maildir), std::string(entry.name.folder),
                    std::string(entry.name.name), entry.content});
    if (!of_take) return {};
  }
  if (scan.damage.empty()) return {};
  return fail(Errc::corrupt, "a part of it is damaged: {}", scan.damage.front().why);
}

}  // namespace

Status each_logged_message(int root, const RangeWrittenAfterParting& written,
                           const std::function<Status(const LoggedMessage&)>& take, Problems& problems) {
  auto files = LogFiles::open(root);
  if (!files && files.error().sys == ENOENT) return {};
  Status of_take;
  Status read = files ? take_all(root, *files, written, take, of_take)
                      : Status(std::unexpected(files.error()));
  if (!read)
    problems.add(directory_of_log,
                 "the intake log cannot be used, mail may be missing: " + read.error().message);
  return of_take;
}

}  // namespace twinloft::repl::salvage
