#include "maildir_quota.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

constexpr const char* file_name = "maildirsize";
constexpr int recounts_max = 3;
constexpr std::int64_t bytes_max = std::numeric_limits<std::int64_t>::max() / 4;  // of a sum

bool is_missing(const Error& error) {
  return error.sys == ENOENT;
}
bool is_forbidden(const Error& error) {
  return error.sys == EACCES || error.sys == EPERM;
}

// The path is not a folder of this Maildir.
bool is_none(const Error& error) {
  return error.sys == ENOENT || error.sys == ENOTDIR || error.sys == EXDEV || error.sys == ELOOP;
}

}  // namespace

// The state of the Maildir before it was counted, to detect changes during the count.
struct MaildirQuota::Looked {
  struct Directory {  // with messages
    std::string path;
    FileAbout about;
  };
  std::vector<std::string> folders;
  std::vector<Directory> directories;
  std::string unreadable;  // a folder, and why; empty: none
};

bool MaildirQuota::counts(const std::string& folder) const {
  return on() && std::ranges::find(config_.ignored, folder) == config_.ignored.end();
}

// ---- held room

MaildirQuota::Hold& MaildirQuota::Hold::operator=(Hold&& other) noexcept {
  if (this == &other) return *this;
  release();
  quota_ = std::exchange(other.quota_, nullptr);
  directory_ = std::move(other.directory_);
  key_ = std::move(other.key_);
  bytes_ = other.bytes_;
  held_ = std::exchange(other.held_, false);
  counted_ = std::exchange(other.counted_, false);
  return *this;
}

void MaildirQuota::Hold::release() {
  if (quota_ && std::exchange(held_, false)) quota_->change_held(key_, -bytes_, -1);
}

QuotaUsage MaildirQuota::held(const std::string& key) {
  std::lock_guard lock(held_mutex_);
  auto found = held_.find(key);
  return found == held_.end() ? QuotaUsage{} : found->second;
}

void MaildirQuota::change_held(const std::string& key, std::int64_t bytes, std::int64_t messages) {
  std::lock_guard lock(held_mutex_);
  auto at = held_.try_emplace(key).first;
  at->second.bytes += bytes;
  at->second.messages += messages;
  if (at->second == QuotaUsage{}) held_.erase(at);
}

// ---- looking and counting

Result<Room> MaildirQuota::room(const Mailbox& mailbox, std::uint64_t bytes) {
  // Another thread may be counting this mailbox. Waiting for a large mailbox could block all these threads.
  // The delivery checks again.
  auto lock = mutexes_.try_lock(mailbox.key);
  if (!lock) return Room::enough;
  return look(mailbox, bytes, {});
}

// Deliveries in flight may still fail, so the room that they hold causes only a temporary refusal. look()
// counts the mail before it reports a full mailbox.
Result<Room> MaildirQuota::look_beside_others(const Mailbox& mailbox, std::uint64_t bytes) {
  QuotaUsage others = held(mailbox.key);
  TL_TRY_ASSIGN(Room room, look(mailbox, bytes, others));
  if (room == Room::enough || others == QuotaUsage{}) return room;
  TL_TRY_ASSIGN(Room alone, look(mailbox, bytes, {}));
  if (alone != Room::enough) return alone;
  return fail(Errc::exhausted, "no room is left: deliveries in flight hold {} messages, {} bytes",
              others.messages, others.bytes);
}

Result<Room> MaildirQuota::look(const Mailbox& mailbox, std::uint64_t bytes, const QuotaUsage& more) {
  auto with = [&](const QuotaUsage& used) {
    return room_for(bytes, {used.bytes + more.bytes, used.messages + more.messages}, mailbox.limit,
                    config_.grace_percent);
  };
  TL_TRY_ASSIGN(Known known, usage(mailbox));
  Room room = with(known.used);
  if (room == Room::full && !known.is_count) {
    TL_TRY_ASSIGN(known, recount(mailbox));
    room = with(known.used);
  }
  if (room == Room::full && !known.is_sure)
    return fail(Errc::exhausted,
                "the mailbox seems to be full, but it changed during the count, or could not be counted "
                "completely");
  return room;
}

Result<Room> MaildirQuota::take(const Mailbox& mailbox, std::uint64_t bytes, Hold& hold) {
  Hold taken;
  taken.directory_.reset(::dup(mailbox.directory));
  if (!taken.directory_) return fail_errno(errno, "dup");
  taken.key_ = mailbox.key;
  taken.bytes_ = static_cast<std::int64_t>(bytes);
  taken.quota_ = this;
  if (!mailbox.limit.unlimited()) {
    KeyedMutex::Lock lock = mutexes_.lock(mailbox.key);
    TL_TRY_ASSIGN(Room room, look_beside_others(mailbox, bytes));
    if (room != Room::enough) return room;
    change_held(mailbox.key, taken.bytes_, 1);
    taken.held_ = true;
  }
  hold = std::move(taken);
  return Room::enough;
}

Status MaildirQuota::place(Hold& hold, const std::function<Status()>& appear) {
  if (!hold.quota_) return appear();
  KeyedMutex::Lock lock = mutexes_.lock(hold.key_);
  TL_TRY(appear());
  append(hold.directory_.get(), hold.key_, {hold.bytes_, 1});
  hold.counted_ = true;
  hold.release();
  return {};
}

Status MaildirQuota::take_back(Hold& hold, const std::function<Status()>& disappear) {
  if (!hold.quota_ || !std::exchange(hold.counted_, false)) return disappear();
  KeyedMutex::Lock lock = mutexes_.lock(hold.key_);
  TL_TRY(disappear());
  append(hold.directory_.get(), hold.key_, {-hold.bytes_, -1});
  return {};
}

// A missing file is not created here: the next look at the quota counts and creates it.
void MaildirQuota::append(int directory, const std::string& key, const QuotaUsage& change) {
  auto same = ops_.append(directory, file_name, as_bytes(format_change(change)));
  if (!same && is_missing(same.error())) return;
  if (!same) return forget_file(directory, key, same.error().message);
  if (!*same)
    forget_file(directory, key, {});  // replaced by another count, which may or may not include this message
}

void MaildirQuota::forget_file(int directory, const std::string& key, std::string_view why) {
  Status removed = ops_.unlink(directory, file_name);
  if (!removed && !is_missing(removed.error()))
    log_error("{}/{}: {}{}{}: the quota may be wrong", key, file_name, why, why.empty() ? "" : "; ",
              removed.error().message);
}

Result<MaildirQuota::Known> MaildirQuota::usage(const Mailbox& mailbox) {
  auto before = ops_.about(mailbox.directory, file_name);
  auto text = before ? ops_.read_file(mailbox.directory, file_name, maildirsize_bytes_max - 1)
                     : std::unexpected(before.error());
  auto after = text ? ops_.about(mailbox.directory, file_name) : std::unexpected(text.error());
  if (!after || *after != *before) return recount(mailbox);  // missing, or changed while it was read
  auto file = parse_maildirsize(*text);
  std::int64_t age = clock_.wall().seconds - after->changed_seconds;
  if (!file || age < 0 || is_outdated(*file, mailbox.limit, age)) return recount(mailbox);
  return Known{file->used, file->lines == 1 && age <= maildirsize_over_seconds};
}

// Counts until the mailbox does not change during the count, at most recounts_max times. A mailbox that keeps
// changing, or has an unreadable part, gets no file and is counted for each message.
Result<MaildirQuota::Known> MaildirQuota::recount(const Mailbox& mailbox) {
  QuotaUsage used;
  for (int i = 0; i < recounts_max; ++i) {
    Looked looked;
    TL_TRY_ASSIGN(used, count(mailbox.directory, looked));
    if (!looked.unreadable.empty()) {
      tell(fmt::format("{}/{}: its mail does not count: give lmtpd's user read access", mailbox.key,
                       looked.unreadable));
      forget_file(mailbox.directory, mailbox.key, "it cannot be counted");
      return Known{used, true, false};
    }
    Status replaced = replace_file(mailbox, used);
    if (!replaced)
      tell(fmt::format("{}/{}: {}: the mailbox is counted for each message", mailbox.key, file_name,
                       replaced.error().message));
    TL_TRY_ASSIGN(bool changed, changed_since(mailbox.directory, looked));
    if (replaced && !changed) return Known{used, true};
    forget_file(mailbox.directory, mailbox.key,
                changed ? "mail arrived during the count" : replaced.error().message);
    if (!replaced) return Known{used, true, !changed};
  }
  return Known{used, true, false};
}

// Logs at most one line in 10 s, because every message may cause one.
void MaildirQuota::tell(const std::string& what) {
  constexpr Duration pause = std::chrono::seconds(10);
  {
    std::lock_guard lock(held_mutex_);
    Instant now = clock_.now();
    if (now < next_line_) return;
    next_line_ = now + pause;
  }
  log_error("the quota of {}", what);
}

// Removes temporary files of replace_file() that a killed process has left.
void MaildirQuota::remove_leftovers(int directory, const std::vector<std::string>& names) {
  constexpr std::string_view begin = "maildirsize.";
  constexpr std::int64_t old_seconds = 3600;
  for (const std::string& name : names) {
    if (!name.starts_with(begin) || name.find_first_not_of("0123456789.", begin.size()) != std::string::npos)
      continue;
    auto about = ops_.about(directory, name);
    if (about && clock_.wall().seconds - about->changed_seconds > old_seconds)
      (void)ops_.unlink(directory, name);
  }
}

// The folders that count, ordered by name. Links are second names of folders (Dovecot's mailbox_alias).
// "..DOVECOT-TRASHED" is a folder that Dovecot is about to remove.
Result<std::vector<std::string>> MaildirQuota::folders(int directory) {
  TL_TRY_ASSIGN(std::vector<std::string> names, ops_.entries(directory));
  remove_leftovers(directory, names);
  std::erase_if(names, [&](const std::string& name) {
    if (!name.starts_with('.') || name.starts_with("..") || !counts(name)) return true;
    auto about = ops_.about(directory, name);
    return about && about->is_link;
  });
  std::ranges::sort(names);
  return names;
}

Result<QuotaUsage> MaildirQuota::count(int directory, Looked& looked) {
  TL_TRY_ASSIGN(looked.folders, folders(directory));
  QuotaUsage sum;
  for (const char* part : {"new", "cur"}) TL_TRY(count_messages(directory, part, sum, looked));
  for (const std::string& name : looked.folders)
    for (const char* part : {"/new", "/cur"}) TL_TRY(count_messages(directory, name + part, sum, looked));
  return sum;
}

// An unreadable folder makes the sum too small. The count continues, so that no mail is refused for it.
Status MaildirQuota::count_messages(int directory, const std::string& path, QuotaUsage& sum, Looked& looked) {
  auto part = ops_.open_directory(directory, path);
  if (!part && is_none(part.error())) return {};
  Status counted = part ? count_files(part->get(), path, sum, looked) : std::unexpected(part.error());
  if (counted || !is_forbidden(counted.error())) return counted;
  looked.unreadable = path + ": " + counted.error().message;
  return {};
}

Status MaildirQuota::count_files(int part, const std::string& path, QuotaUsage& sum, Looked& looked) {
  TL_TRY_ASSIGN(FileAbout about, ops_.about(part, ""));
  TL_TRY(ops_.each_entry(part, [&](const std::string& name) -> Status {
    if (name.starts_with("..")) return {};  // as in Dovecot
    auto size = size_in_name(name);
    if (!size) {
      auto file = ops_.about(part, name);
      if (!file && is_missing(file.error())) return {};
      if (!file) return std::unexpected(file.error());
      size = file->size;
    }
    // The size in a name may be any number.
    sum.bytes = std::min(sum.bytes + static_cast<std::int64_t>(std::min<std::uint64_t>(*size, bytes_max)),
                         bytes_max);
    sum.messages += 1;
    return {};
  }));
  looked.directories.push_back({path, about});
  return {};
}

Result<bool> MaildirQuota::changed_since(int directory, const Looked& looked) {
  TL_TRY_ASSIGN(std::vector<std::string> now, folders(directory));
  if (now != looked.folders) return true;
  for (const Looked::Directory& one : looked.directories) {
    auto part = ops_.open_directory(directory, one.path);
    if (!part && is_none(part.error())) return true;
    if (!part) return std::unexpected(part.error());
    TL_TRY_ASSIGN(FileAbout about, ops_.about(part->get(), ""));
    if (about.changed_seconds != one.about.changed_seconds || about.changed_ns != one.about.changed_ns)
      return true;
  }
  return false;
}

Status MaildirQuota::replace_file(const Mailbox& mailbox, const QuotaUsage& used) {
  std::string name;
  Result<Fd> file = fail(Errc::internal, "no name");
  // An existing file is left over from a process that had the same PID.
  for (int i = 0; i < 100 && !file && (i == 0 || file.error().sys == EEXIST); ++i) {
    name = fmt::format("{}.{}.{}", file_name, ::getpid(), sequence_++);
    file = ops_.create_file(mailbox.directory, name);
  }
  if (!file) return std::unexpected(std::move(file).error());
  Status done = ops_.write(file->get(), as_bytes(format_maildirsize(mailbox.limit, used)));
  if (done) done = ops_.replace(mailbox.directory, name, file_name);
  if (!done) (void)ops_.unlink(mailbox.directory, name);
  return done;
}

}  // namespace twinloft::lmtpd
