#include "twinloft/spool-repl/salvage/bundle.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "beneath.h"
#include "fields.h"
#include "read_file.h"

namespace twinloft::repl::salvage {

namespace {

constexpr const char* manifest_new = "manifest.new";
constexpr std::string_view label_text = "twinloft salvage bundle 1\n";
constexpr std::size_t manifest_bytes_max = std::size_t{4} << 30;

bool is_number(const std::string& name) {
  return parse_number<std::uint64_t>(name).has_value();
}

Error at(const std::string& path, Error error) {
  error.message = path + ": " + error.message;
  return error;
}

Result<Fd> open_directory_at(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "{}", path);
  return fd;
}

// A bundle has the mail of all users, and is delivered with the rights of the deliverer. Another user with
// write permission could add mail to it.
Status check_own(int dir, std::string_view what) {
  TL_TRY_ASSIGN(struct stat about, stat_of(dir));
  if (about.st_uid == ::geteuid() && (about.st_mode & 022) == 0) return {};
  return fail(Errc::denied,
              "{} belongs to user {}, mode {:o}; it must belong to the user of this command ({}), and no "
              "other user may have write permission",
              what, about.st_uid, about.st_mode & 0777, ::geteuid());
}

std::string parent_of(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::size_t slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Result<BundleWriter> BundleWriter::create(const std::string& path, FileOps& ops) {
  if (path.empty()) return fail(Errc::invalid, "the bundle needs a directory");
  BundleWriter out(path, ops);
  if (auto prepared = out.prepare(); !prepared) return std::unexpected(at(path, std::move(prepared).error()));
  return out;
}

Status BundleWriter::prepare() {
  TL_TRY_ASSIGN(parent_, open_directory_at(parent_of(path_)));
  if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_errno(errno, "the directory cannot be made");
  TL_TRY_ASSIGN(dir_, open_directory_at(path_));
  TL_TRY(check_own(dir_.get(), "it"));
  TL_TRY_ASSIGN(bool empty, look());
  if (empty) TL_TRY(make_new());
  TL_TRY_ASSIGN(label_, open_beneath(dir_.get(), bundle_label_name, O_RDWR));
  if (::flock(label_.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(Errc::unavailable, "another extraction is writing this bundle");
  // Another extraction may have completed it before this one had the lock.
  TL_TRY(look());
  TL_TRY(clear());
  TL_TRY(ops_->make_directory(dir_.get(), bundle_messages_name));
  TL_TRY_ASSIGN(messages_, salvage::open_directory(dir_.get(), bundle_messages_name));
  return {};
}

// Whether the directory is empty. Errors: it has content that must not be overwritten.
Result<bool> BundleWriter::look() const {
  TL_TRY_ASSIGN(std::vector<Entry> found, list_directory(dir_.get()));
  auto has = [&](std::string_view name) {
    return std::any_of(found.begin(), found.end(), [&](const Entry& e) { return e.name == name; });
  };
  if (has(bundle_manifest_name))
    return fail(Errc::conflict, "holds a finished bundle; name another directory, or remove this one");
  for (const Entry& e : found)
    if (e.name != bundle_label_name && e.name != bundle_messages_name && e.name != manifest_new)
      return fail(Errc::conflict, "holds \"{}\", which is not part of a bundle; name a new directory",
                  printable(e.name));
  if (!found.empty() && !has(bundle_label_name))
    return fail(Errc::conflict, "is not empty; name a new directory");
  return found.empty();
}

Status BundleWriter::make_new() {
  TL_TRY_ASSIGN(Fd label, ops_->create(dir_.get(), bundle_label_name));
  return ops_->write(label.get(), as_bytes(label_text));
}

// Removes the files of an extraction that was killed.
Status BundleWriter::clear() {
  if (auto old = salvage::open_directory(dir_.get(), bundle_messages_name)) {
    TL_TRY_ASSIGN(std::vector<Entry> found, list_directory(old->get()));
    for (const Entry& e : found) {
      if (!is_number(e.name))
        return fail(Errc::conflict, "holds messages/{}, which is not part of a bundle", printable(e.name));
      TL_TRY(ops_->remove(old->get(), e.name));
    }
    if (::unlinkat(dir_.get(), bundle_messages_name, AT_REMOVEDIR) != 0)
      return fail_errno(errno, "removing the old messages");
  }
  if (::unlinkat(dir_.get(), manifest_new, 0) != 0 && errno != ENOENT)
    return fail_errno(errno, "removing {}", manifest_new);
  return {};
}

Result<BundleWriter::Added> BundleWriter::add(int source, std::uint64_t number, std::uint64_t bytes) {
  std::string name = std::to_string(number);
  TL_TRY_ASSIGN(Fd copy, ops_->create(messages_.get(), name));
  Added out;
  Sha256Hasher file;
  ContentHasher content;
  Status written;
  Status read = read_pieces(source, [&](ByteSpan piece) -> Result<bool> {
    out.bytes += piece.size();
    if (out.bytes > bytes) return fail(Errc::conflict, "the file grows while it is read");
    file.update(piece);
    content.update(piece);
    written = ops_->write(copy.get(), piece);
    return written.has_value();
  });
  if (!written)
    return std::unexpected(at(fmt::format("{}/messages/{}", path_, name), std::move(written).error()));
  if (!read) {
    out.unreadable = std::move(read).error();
    TL_TRY(ops_->remove(messages_.get(), name));
    return out;
  }
  out.file = file.digest();
  out.content = content.finish().content;
  return out;
}

Status BundleWriter::finish(const Manifest& manifest) {
  std::string text = encode_manifest(manifest);
  auto write = [&]() -> Status {
    // One sync for all messages, which are on the same file system.
    TL_TRY(ops_->sync_file_system(dir_.get()));
    TL_TRY_ASSIGN(Fd file, ops_->create(dir_.get(), manifest_new));
    TL_TRY(ops_->write(file.get(), as_bytes(text)));
    TL_TRY(ops_->sync(file.get()));
    TL_TRY(ops_->rename(dir_.get(), manifest_new, dir_.get(), bundle_manifest_name));
    TL_TRY(ops_->sync(dir_.get()));
    return ops_->sync(parent_.get());
  };
  if (auto written = write(); !written) return std::unexpected(at(path_, std::move(written).error()));
  return {};
}

Result<Bundle> Bundle::open(const std::string& path) {
  Bundle out;
  out.path_ = path;
  TL_TRY_ASSIGN(Fd dir, open_directory_at(path));
  if (!open_plain_file(dir.get(), bundle_label_name))
    return fail(Errc::not_found, "{}: not a bundle of spool-repl salvage extract: there is no {} in it", path,
                bundle_label_name);
  if (auto own = check_own(dir.get(), "it"); !own) return std::unexpected(at(path, std::move(own).error()));
  auto manifest = open_plain_file(dir.get(), bundle_manifest_name);
  if (!manifest && manifest.error().sys == ENOENT)
    return fail(Errc::unavailable,
                "{}: its extraction has not ended: run spool-repl salvage extract again, into this directory",
                path);
  if (!manifest) return std::unexpected(at(path, std::move(manifest).error()));
  std::string text;
  Status read = read_pieces(manifest->fd.get(), [&](ByteSpan piece) -> Result<bool> {
    text += as_text(piece);
    if (text.size() > manifest_bytes_max)
      return fail(Errc::exhausted, "the manifest is larger than {} bytes", manifest_bytes_max);
    return true;
  });
  if (!read) return std::unexpected(at(path, std::move(read).error()));
  auto decoded = decode_manifest(text);
  if (!decoded) return std::unexpected(at(path, std::move(decoded).error()));
  out.manifest_ = std::move(*decoded);
  TL_TRY_ASSIGN(out.messages_, salvage::open_directory(dir.get(), bundle_messages_name));
  if (auto own = check_own(out.messages_.get(), "its messages/"); !own)
    return std::unexpected(at(path, std::move(own).error()));
  return out;
}

Result<Fd> Bundle::open_message(const Message& message) const {
  std::string name = std::to_string(message.number);
  auto file = open_plain_file(messages_.get(), name);
  if (!file) return std::unexpected(at(path_ + "/messages", std::move(file).error()));
  if (static_cast<std::uint64_t>(file->about.st_size) != message.bytes)
    return fail(Errc::corrupt, "{}/messages/{}: {} bytes, but {} in the manifest: copy the bundle again",
                path_, name, file->about.st_size, message.bytes);
  return std::move(file->fd);
}

Result<ContentDigest> Bundle::verify(const Message& message) const {
  TL_TRY_ASSIGN(Fd file, open_message(message));
  Sha256Hasher raw;
  ContentHasher content;
  TL_TRY(read_pieces(file.get(), [&](ByteSpan piece) -> Result<bool> {
    raw.update(piece);
    content.update(piece);
    return true;
  }));
  ContentDigest digest = content.finish();
  if (raw.digest() != message.file || digest.content != message.content)
    return fail(Errc::corrupt, "{}/messages/{}: its content differs from the manifest: copy the bundle again",
                path_, message.number);
  return digest;
}

}  // namespace twinloft::repl::salvage
