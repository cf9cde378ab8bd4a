// make_copy_target(): writes a message into a Maildir in which the user may have made every name.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "beneath.h"
#include "read_file.h"
#include "twinloft/base/clock.h"
#include "twinloft/mail/maildir_layout.h"
#include "twinloft/mail/maildir_name.h"
#include "twinloft/mail/subscriptions.h"
#include "twinloft/spool-repl/salvage/target.h"

namespace twinloft::repl::salvage {

namespace {

constexpr std::size_t subscriptions_bytes_max = 1 << 20;
constexpr const char* unfinished_folder = "twinloft-salvage.folder";

// Unique, and the same in every attempt, since it is made from the content.
std::string base_of(const Message& m) {
  return fmt::format("{}.M{}S{}.salvage", m.modified.seconds, m.modified.ns / 1000,
                     m.content.hex().substr(0, 32));
}

class Copy {
 public:
  Copy(int root, FileOps& ops, const Message& message) : root_(root), ops_(ops), message_(message) {}
  // Returns the file's path in the Maildir, and a note on a new folder.
  Result<std::string> run(int content) {
    TL_TRY(open_maildir());
    TL_TRY(open_folder());
    return store(content);
  }

 private:
  Status open_maildir();
  Status open_folder();
  Status make_folder();
  Status subscribe();
  Result<Fd> take_lock();
  Status write_subscriptions(int lock);
  void remove_unfinished(int folder);
  Status make_boxes(int folder);
  Status give_away(int fd, const Ownership& owner);
  Status write_file(int dir, const std::string& name, const std::string& text);
  Status fill(int file, int content);
  Result<std::string> store(int content);

  int root_;
  FileOps& ops_;
  const Message& message_;
  Ownership owner_;  // of directories; files have no x
  Fd maildir_, folder_;
  std::uint64_t bytes_ = 0, bare_lf_ = 0;
  std::string also_;
};

Ownership of_file(Ownership directory) {
  directory.mode &= 0666;
  return directory;
}

Status Copy::open_maildir() {
  auto opened = open_directory(root_, message_.maildir);
  if (!opened && opened.error().sys == ENOENT)
    return fail(Errc::not_found, "{}: the Maildir does not exist; create the user, or deliver by LMTP",
                printable(message_.maildir));
  if (!opened && opened.error().sys == ELOOP)
    return fail(Errc::denied, "{}: the path has a symbolic link, which is not followed",
                printable(message_.maildir));
  if (!opened) return std::unexpected(std::move(opened).error());
  maildir_ = std::move(*opened);
  TL_TRY_ASSIGN(struct stat about, stat_of(maildir_.get()));
  owner_ = {about.st_uid, about.st_gid, about.st_mode & 02777};
  return {};
}

Status Copy::open_folder() {
  auto opened = open_directory(maildir_.get(), message_.folder.empty() ? "." : message_.folder);
  if (!opened && opened.error().sys == ENOENT) {
    TL_TRY(make_folder());
    opened = open_directory(maildir_.get(), message_.folder);
  }
  if (!opened) return std::unexpected(std::move(opened).error());
  folder_ = std::move(*opened);
  return make_boxes(folder_.get());
}

// Changes the owner of files that this process or an interrupted earlier run has made, to the Maildir's
// owner. A file with another name was not made here, and may be a link of the user to another file.
Status Copy::give_away(int fd, const Ownership& owner) {
  TL_TRY_ASSIGN(struct stat about, stat_of(fd));
  if (about.st_uid == ::geteuid() && (S_ISDIR(about.st_mode) || about.st_nlink == 1))
    TL_TRY(ops_.set_owner(fd, owner));
  return ops_.sync(fd);
}

Status Copy::make_boxes(int folder) {
  for (const char* name : mail::maildir_boxes) {
    auto box = open_directory(folder, name);
    bool made = !box && box.error().sys == ENOENT;
    if (made) {
      TL_TRY(ops_.make_directory(folder, name));
      box = open_directory(folder, name);
    }
    if (!box) return std::unexpected(std::move(box).error());
    TL_TRY_ASSIGN(struct stat about, stat_of(box->get()));
    if (about.st_uid != owner_.uid) TL_TRY(give_away(box->get(), owner_));
    if (made) TL_TRY(ops_.sync(folder));
  }
  return {};
}

Status Copy::write_file(int dir, const std::string& name, const std::string& text) {
  TL_TRY_ASSIGN(Fd file, ops_.create(dir, name));
  Status done = ops_.write(file.get(), as_bytes(text));
  if (done) done = give_away(file.get(), of_file(owner_));
  if (!done) (void)ops_.remove(dir, name);
  return done;
}

// Removes the folder of this process, if another process has made the folder meanwhile.
void Copy::remove_unfinished(int folder) {
  (void)ops_.remove(folder, mail::folder_mark);
  for (const char* name : mail::maildir_boxes) (void)::unlinkat(folder, name, AT_REMOVEDIR);
  (void)::unlinkat(maildir_.get(), unfinished_folder, AT_REMOVEDIR);
  also_.clear();
}

// Made under another name until it is complete, so that no program uses an incomplete folder.
Status Copy::make_folder() {
  auto folder = open_directory(maildir_.get(), unfinished_folder);
  if (!folder && folder.error().sys == ENOENT) {
    TL_TRY(ops_.make_directory(maildir_.get(), unfinished_folder));
    folder = open_directory(maildir_.get(), unfinished_folder);
  }
  if (!folder) return std::unexpected(std::move(folder).error());
  TL_TRY(make_boxes(folder->get()));
  if (auto mark = open_plain_file(folder->get(), mail::folder_mark); mark)
    TL_TRY(give_away(mark->fd.get(), of_file(owner_)));
  else
    TL_TRY(write_file(folder->get(), mail::folder_mark, ""));
  TL_TRY(give_away(folder->get(), owner_));
  also_ = "; the folder was made";
  // Without a subscription, the user finds the folder in the list of all folders.
  if (auto subscribed = subscribe(); !subscribed)
    also_ += ", and is not subscribed to: " + subscribed.error().message;
  auto renamed = ops_.rename(maildir_.get(), unfinished_folder, maildir_.get(), message_.folder);
  if (!renamed && renamed.error().sys != EEXIST) return renamed;
  if (!renamed) remove_unfinished(folder->get());
  return ops_.sync(maildir_.get());
}

// Dovecot's lock file becomes the next version of the file.
Status Copy::subscribe() {
  TL_TRY_ASSIGN(Fd lock, take_lock());
  Status done = write_subscriptions(lock.get());
  if (!done) (void)ops_.remove(maildir_.get(), mail::subscriptions_lock_name);
  return done;
}

// Creates the lock. A stale lock is removed, since its process has ended.
Result<Fd> Copy::take_lock() {
  auto lock = ops_.create(maildir_.get(), mail::subscriptions_lock_name);
  if (lock || lock.error().sys != EEXIST) return lock;
  struct stat about{};
  if (::fstatat(maildir_.get(), mail::subscriptions_lock_name, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
      !mail::is_stale_lock(about.st_mtim.tv_sec, OsClock().wall().seconds))
    return fail(Errc::unavailable, "another program holds {}", mail::subscriptions_lock_name);
  TL_TRY(ops_.remove(maildir_.get(), mail::subscriptions_lock_name));
  return ops_.create(maildir_.get(), mail::subscriptions_lock_name);
}

// After an error, the lock still exists.
Status Copy::write_subscriptions(int lock) {
  std::string text;
  auto old = open_plain_file(maildir_.get(), mail::subscriptions_name);
  if (!old && old.error().sys != ENOENT) return std::unexpected(std::move(old).error());
  if (old && old->about.st_uid != owner_.uid)
    return fail(Errc::denied, "subscriptions belongs to another user");
  if (old)
    TL_TRY(read_pieces(old->fd.get(), [&](ByteSpan piece) -> Result<bool> {
      text += as_text(piece);
      if (text.size() > subscriptions_bytes_max) return fail(Errc::exhausted, "subscriptions is too large");
      return true;
    }));
  if (message_.folder.find('\n') != std::string::npos)
    return fail(Errc::invalid, "the folder's name has a line end");
  auto changed = mail::add_subscription(text, message_.folder);
  if (!changed) return ops_.remove(maildir_.get(), mail::subscriptions_lock_name);
  TL_TRY(ops_.write(lock, as_bytes(*changed)));
  TL_TRY(give_away(lock, of_file(owner_)));
  return ops_.replace(maildir_.get(), mail::subscriptions_lock_name, mail::subscriptions_name);
}

Status Copy::fill(int file, int content) {
  char last = 0;
  return read_pieces(content, [&](ByteSpan piece) -> Result<bool> {
    for (char c : as_text(piece)) {
      bare_lf_ += c == '\n' && last != '\r';
      last = c;
    }
    bytes_ += piece.size();
    TL_TRY(ops_.write(file, piece));
    return true;
  });
}

Result<std::string> Copy::store(int content) {
  std::string base = base_of(message_), box_name = message_.in_new ? "new" : "cur";
  TL_TRY_ASSIGN(Fd tmp, open_directory(folder_.get(), "tmp"));
  TL_TRY_ASSIGN(Fd box, open_directory(folder_.get(), box_name));
  auto file = ops_.create(tmp.get(), base);
  if (!file && file.error().sys == EEXIST) {  // an earlier run has left the file
    TL_TRY(ops_.remove(tmp.get(), base));
    file = ops_.create(tmp.get(), base);
  }
  if (!file) return std::unexpected(std::move(file).error());
  auto write = [&]() -> Status {
    TL_TRY(fill(file->get(), content));
    TL_TRY(ops_.set_owner(file->get(), of_file(owner_)));
    TL_TRY(ops_.set_modified(file->get(), message_.modified));
    return ops_.sync(file->get());
  };
  std::string name;
  Status done = write();
  if (done) {
    name = mail::with_sizes(base, bytes_, bytes_ + bare_lf_);
    if (!message_.in_new) name = mail::with_flags(name, mail::standard_flags(message_.name));
    done = ops_.rename(tmp.get(), base, box.get(), name);
  }
  if (!done) {
    (void)ops_.remove(tmp.get(), base);
    return std::unexpected(std::move(done).error());
  }
  TL_TRY(ops_.sync(box.get()));
  return fmt::format("{}{}{}/{}{}", message_.folder, message_.folder.empty() ? "" : "/", box_name, name,
                     also_);
}

class CopyTarget final : public Target {
 public:
  CopyTarget(int root, FileOps& ops) : root_(root), ops_(ops) {}
  Sent deliver(const Message& message, const std::string&, int content) override {
    auto stored = Copy(root_, ops_, message).run(content);
    if (stored) return {Sent::End::delivered, *stored};
    // These errors concern all messages.
    bool everybody = stored.error().sys == ENOSPC || stored.error().sys == EROFS;
    return {everybody ? Sent::End::away : Sent::End::failed, stored.error().message};
  }

 private:
  int root_;
  FileOps& ops_;
};

}  // namespace

std::unique_ptr<Target> make_copy_target(int root, FileOps& ops) {
  return std::make_unique<CopyTarget>(root, ops);
}

}  // namespace twinloft::repl::salvage
