#include "mailbox.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "beneath.h"
#include "read_file.h"
#include "spool_tree.h"
#include "twinloft/mail/maildir_name.h"

namespace twinloft::repl::salvage {

namespace {

constexpr int tries_max = 10;
constexpr std::size_t uidlist_bytes_max = 256u << 20;

class LookUp {
 public:
  LookUp(int root, const std::string& maildir, const std::vector<ContentDigest>& wanted)
      : root_(root), maildir_(maildir), wanted_(wanted) {}

  // Errors: Errc::conflict (a message was moved or removed after the directory was listed).
  Status run() {
    Problems problems;
    TL_TRY_ASSIGN(std::vector<std::string> folders, list_folders(root_, maildir_, problems));
    for (const std::string& folder : folders)
      TL_TRY(walk_folder(
          root_, maildir_, folder, [&](int box, const MailFile& file) { return look_at(box, file); },
          problems));
    // Symbolic links are ignored. An unreadable folder is an error, since it may contain the message.
    if (problems.first_unreadable()) return std::unexpected(*problems.first_unreadable());
    if (moved_)
      return fail(Errc::conflict, "messages in {} were moved during each search", printable(maildir_));
    return {};
  }

  std::set<Sha256> found;

 private:
  Status look_at(int box, const MailFile& file) {
    if (file.box == Box::tmp) return {};
    auto open = open_plain_file(box, file.name);
    if (!open && open.error().code == Errc::invalid) return {};
    if (!open && open.error().sys == ENOENT) {
      moved_ = true;
      return {};
    }
    auto known = open ? read(*open) : std::unexpected(open.error());
    if (!known)
      return fail(known.error().code, "{}: {}", printable(path_of(maildir_, file)), known.error().message);
    return {};
  }

  Status read(const PlainFile& file) {
    auto bytes = static_cast<std::uint64_t>(file.about.st_size);
    auto may_be = [&](const ContentDigest& w) {
      return bytes >= w.file_bytes_min() && bytes <= w.file_bytes_max() && !found.contains(w.content);
    };
    if (std::none_of(wanted_.begin(), wanted_.end(), may_be)) return {};
    ContentHasher hasher;
    bool other = false;
    TL_TRY(read_pieces(file.fd.get(), [&](ByteSpan piece) -> Result<bool> {
      hasher.update(piece);
      other = hasher.head_known() &&
              std::none_of(wanted_.begin(), wanted_.end(),
                           [&](const ContentDigest& w) { return w.head == hasher.head(); });
      return !other;
    }));
    if (other) return {};
    Sha256 content = hasher.finish().content;
    if (std::any_of(wanted_.begin(), wanted_.end(),
                    [&](const ContentDigest& w) { return w.content == content; }))
      found.insert(content);
    return {};
  }

  int root_;
  const std::string& maildir_;
  const std::vector<ContentDigest>& wanted_;
  bool moved_ = false;
};

bool names(std::string_view uidlist, const std::string& base) {
  std::string entry = ":" + base;
  for (std::size_t at = 0; (at = uidlist.find(entry, at)) != uidlist.npos; at += entry.size())
    if (at + entry.size() == uidlist.size() || uidlist[at + entry.size()] == '\n') return true;
  return false;
}

}  // namespace

Result<std::set<Sha256>> find_contents(int root, const std::string& maildir,
                                       const std::vector<ContentDigest>& wanted) {
  auto dir = open_directory(root, maildir);
  if (!dir && dir.error().sys == ENOENT) return std::set<Sha256>{};
  if (!dir) return std::unexpected(std::move(dir).error());
  for (int left = tries_max;; --left) {
    LookUp look(root, maildir, wanted);
    auto done = look.run();
    if (done) return std::move(look.found);
    if (done.error().code != Errc::conflict || left == 0) return std::unexpected(std::move(done).error());
  }
}

std::string find_file(int root, const std::string& maildir, const std::string& folder,
                      const std::string& base, const Sha256& content) {
  std::string out;
  Problems ignored;
  (void)walk_folder(
      root, maildir, folder,
      [&](int box, const MailFile& file) -> Status {
        if (file.box == Box::tmp || mail::base_name(file.name) != base) return {};
        auto open = open_plain_file(box, file.name);
        if (!open) return {};
        ContentHasher hasher;
        Status read = read_pieces(open->fd.get(), [&](ByteSpan piece) -> Result<bool> {
          hasher.update(piece);
          return true;
        });
        if (read && hasher.finish().content == content) out = path_of(maildir, file);
        return {};
      },
      ignored);
  return out;
}

Result<bool> was_seen(int root, const std::string& maildir, const std::string& base) {
  Problems ignored;
  auto folders = list_folders(root, maildir, ignored);
  if (!folders && folders.error().sys == ENOENT) return false;
  if (!folders) return std::unexpected(std::move(folders).error());
  for (const std::string& folder : *folders) {
    auto file = open_plain_file(
        root, fmt::format("{}/{}dovecot-uidlist", maildir, folder.empty() ? "" : folder + "/"));
    if (!file && file.error().sys == ENOENT) continue;
    if (!file) return std::unexpected(std::move(file).error());
    std::string text;
    TL_TRY(read_pieces(file->fd.get(), [&](ByteSpan piece) -> Result<bool> {
      text += as_text(piece);
      return text.size() <= uidlist_bytes_max;
    }));
    if (names(text, base)) return true;
  }
  return false;
}

}  // namespace twinloft::repl::salvage
