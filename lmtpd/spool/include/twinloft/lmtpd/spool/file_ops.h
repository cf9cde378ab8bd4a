// The file operations of a delivery as an interface.
//
// Production uses OsFileOps, with one system call in each function. Tests use a recorder, which shows the
// order of the operations, or failing operations, which show the effect of a full or broken disk. Every call
// may block. Errors have errno in Error::sys, and contain the path.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

struct FileAbout {
  std::uint64_t size = 0;            // bytes
  std::int64_t changed_seconds = 0;  // mtime, since 1970-01-01 00:00 UTC
  std::int64_t changed_ns = 0;
  bool is_link = false;  // a symbolic link
  bool is_directory = false;
  std::uint64_t inode = 0;
  bool operator==(const FileAbout&) const = default;
};

class FileOps {
 public:
  virtual ~FileOps() = default;

  // Opens an existing directory. path: absolute.
  virtual Result<Fd> open_root(const std::string& path) = 0;
  // Opens a directory below `dir`, on the same file system (openat2(2) with RESOLVE_BENEATH, RESOLVE_NO_XDEV,
  // RESOLVE_NO_MAGICLINKS). path: relative. EXDEV: the path leads out of `dir`.
  virtual Result<Fd> open_directory(int dir, const std::string& path) = 0;
  // Creates a file for writing (O_EXCL, mode 0600).
  virtual Result<Fd> create_file(int dir, const std::string& path) = 0;
  // Creates a file without a name for writing, near the directory's entries (O_TMPFILE, mode 0600).
  // EOPNOTSUPP, EISDIR: the file system has none.
  virtual Result<Fd> create_unnamed(int dir) = 0;
  virtual Status write(int fd, ByteSpan data) = 0;
  virtual Status make_directory(int dir, const std::string& path) = 0;  // mode 0700; EEXIST is success
  // Renames. EEXIST: `to` exists, and is not replaced.
  virtual Status rename(int from_dir, const std::string& from, int to_dir, const std::string& to) = 0;
  // Makes another name of the file. EEXIST: `to` exists, and is not replaced.
  virtual Status link(int from_dir, const std::string& from, int to_dir, const std::string& to) = 0;
  // Gives a file of create_unnamed() its name. EEXIST: `to` exists, and is not replaced. EOPNOTSUPP: /proc is
  // not mounted.
  virtual Status link_unnamed(int file, int to_dir, const std::string& to) = 0;
  // Renames, and replaces an existing `to`.
  virtual Status replace(int dir, const std::string& from, const std::string& to) = 0;
  virtual Status unlink(int dir, const std::string& path) = 0;
  // Appends to an existing regular file below `dir`, in one write. False: the name was removed or passed to
  // another file meanwhile.
  virtual Result<bool> append(int dir, const std::string& path, ByteSpan data) = 0;
  // The attributes of `name` in the directory, without following a link; with "", of the directory itself.
  virtual Result<FileAbout> about(int dir, const std::string& name) = 0;
  // Reads a file below `dir`, as open_directory(). Errors: also Errc::exhausted if it is larger than `limit`
  // bytes.
  virtual Result<std::string> read_file(int dir, const std::string& path, std::size_t limit) = 0;
  // Calls `see` for each entry except "." and "..". An error of `see` ends the visit, and is returned.
  virtual Status each_entry(int dir, const std::function<Status(const std::string&)>& see) = 0;
  Result<std::vector<std::string>> entries(int dir);
  // As the functions of base/durable.h: success means that the file system has not failed.
  virtual Status sync_file(int fd) = 0;  // fsync of a file or of a directory
  // Writes the file's data, and waits until the disk has taken it, perhaps into a volatile cache
  // (sync_file_range(2) with all three flags).
  virtual Status write_back(int fd) = 0;
  // Begins that, and does not wait.
  virtual Status start_write_back(int fd) = 0;
  virtual Status sync_file_system(int fd) = 0;  // syncfs
  virtual Status check_not_failed(int fd) = 0;  // fd: of a file or directory that this process may write to
};

class OsFileOps final : public FileOps {
 public:
  Result<Fd> open_root(const std::string& path) override;
  Result<Fd> open_directory(int dir, const std::string& path) override;
  Result<Fd> create_file(int dir, const std::string& path) override;
  Result<Fd> create_unnamed(int dir) override;
  Status write(int fd, ByteSpan data) override;
  Status make_directory(int dir, const std::string& path) override;
  Status rename(int from_dir, const std::string& from, int to_dir, const std::string& to) override;
  Status link(int from_dir, const std::string& from, int to_dir, const std::string& to) override;
  Status link_unnamed(int file, int to_dir, const std::string& to) override;
  Status replace(int dir, const std::string& from, const std::string& to) override;
  Status unlink(int dir, const std::string& path) override;
  Result<bool> append(int dir, const std::string& path, ByteSpan data) override;
  Result<FileAbout> about(int dir, const std::string& name) override;
  Result<std::string> read_file(int dir, const std::string& path, std::size_t limit) override;
  Status each_entry(int dir, const std::function<Status(const std::string&)>& see) override;
  Status sync_file(int fd) override;
  Status write_back(int fd) override;
  Status start_write_back(int fd) override;
  Status sync_file_system(int fd) override;
  Status check_not_failed(int fd) override;
};

}  // namespace twinloft::lmtpd
