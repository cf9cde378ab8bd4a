// The file operations of salvage as an interface. Production uses OsFileOps, with one system call in each
// function. Tests end the process at each operation, or make it fail. All names are single components below
// an open directory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "twinloft/base/bytes.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::salvage {

struct FileTime {
  std::int64_t seconds = 0;  // since 1970-01-01 00:00 UTC
  std::uint32_t ns = 0;      // 0..999999999
  auto operator<=>(const FileTime&) const = default;
};

struct Ownership {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t mode = 0;  // permission bits
};

class FileOps {
 public:
  virtual ~FileOps() = default;
  virtual Result<Fd> create(int dir, const std::string& name) = 0;  // for writing; O_EXCL, mode 0600
  virtual Status write(int fd, ByteSpan data) = 0;
  virtual Status truncate(int fd, std::uint64_t bytes) = 0;
  virtual Status set_owner(int fd, const Ownership& owner) = 0;  // and mode; of a file or a directory
  virtual Status set_modified(int fd, FileTime time) = 0;
  virtual Status sync(int fd) = 0;  // of a file or a directory
  virtual Status sync_file_system(int fd) = 0;
  virtual Status make_directory(int dir, const std::string& name) = 0;  // mode 0700; EEXIST is an error
  // EEXIST: `to` exists, and is not replaced.
  virtual Status rename(int from_dir, const std::string& from, int to_dir, const std::string& to) = 0;
  virtual Status replace(int dir, const std::string& from, const std::string& to) = 0;
  virtual Status remove(int dir, const std::string& name) = 0;
};

class OsFileOps final : public FileOps {
 public:
  Result<Fd> create(int dir, const std::string& name) override;
  Status write(int fd, ByteSpan data) override;
  Status truncate(int fd, std::uint64_t bytes) override;
  Status set_owner(int fd, const Ownership& owner) override;
  Status set_modified(int fd, FileTime time) override;
  Status sync(int fd) override;
  Status sync_file_system(int fd) override;
  Status make_directory(int dir, const std::string& name) override;
  Status rename(int from_dir, const std::string& from, int to_dir, const std::string& to) override;
  Status replace(int dir, const std::string& from, const std::string& to) override;
  Status remove(int dir, const std::string& name) override;
};

}  // namespace twinloft::repl::salvage
