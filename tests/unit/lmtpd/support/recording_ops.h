// FileOps that record their calls in order, and fail where a test requests it.
#pragma once

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string>
#include <vector>

#include "twinloft/lmtpd/spool/file_ops.h"

namespace twinloft::lmtpd::test {

class RecordingOps : public FileOps {
 public:
  // The call with this number fails with `fail_with`. Counted from 0, without removals; -1: no call.
  int fail_at = -1;
  int fail_with = EIO;
  int link_error = 0;                                  // the errno of every link
  int unnamed_error = 0;                               // the errno of every create_unnamed()
  int link_unnamed_error = 0;                          // the errno of every link_unnamed()
  std::function<void(const std::string&)> before;      // called before each step
  std::string forbidden;                               // a directory that cannot be opened
  std::function<void(const std::string&)> after_read;  // called with the file's name
  std::function<void(const std::string&)> after_list;  // called with the directory's name

  Result<Fd> open_root(const std::string& path) override {
    TL_TRY(step("open root"));
    return os_.open_root(path);
  }
  Result<Fd> open_directory(int dir, const std::string& path) override {
    TL_TRY(step("open " + path));
    if (!forbidden.empty() && path.ends_with(forbidden)) return fail_errno(EACCES, "open {}", path);
    return os_.open_directory(dir, path);
  }
  Result<Fd> create_file(int dir, const std::string& path) override {
    TL_TRY(step("create " + name_of(dir) + "/FILE"));
    return os_.create_file(dir, path);
  }
  Result<Fd> create_unnamed(int dir) override {
    TL_TRY(step("create unnamed " + name_of(dir)));
    if (unnamed_error != 0) return fail_errno(unnamed_error, "create unnamed");
    return os_.create_unnamed(dir);
  }
  Status write(int fd, ByteSpan data) override {
    TL_TRY(step("write"));
    return os_.write(fd, data);
  }
  Status make_directory(int dir, const std::string& path) override {
    TL_TRY(step("mkdir " + name_of(dir) + "/" + path));
    return os_.make_directory(dir, path);
  }
  Status rename(int from_dir, const std::string& from, int to_dir, const std::string& to) override {
    TL_TRY(step("rename " + name_of(from_dir) + " " + name_of(to_dir)));
    return os_.rename(from_dir, from, to_dir, to);
  }
  Status link(int from_dir, const std::string& from, int to_dir, const std::string& to) override {
    TL_TRY(step("link " + name_of(from_dir) + " " + name_of(to_dir)));
    if (link_error != 0) return fail_errno(link_error, "link {}", to);
    return os_.link(from_dir, from, to_dir, to);
  }
  Status link_unnamed(int file, int to_dir, const std::string& to) override {
    TL_TRY(step("link unnamed " + name_of(to_dir)));
    if (link_unnamed_error != 0) return fail_errno(link_unnamed_error, "link {}", to);
    return os_.link_unnamed(file, to_dir, to);
  }
  Status replace(int dir, const std::string& from, const std::string& to) override {
    TL_TRY(step("replace " + name_of(dir) + "/" + to));
    return os_.replace(dir, from, to);
  }
  Result<std::string> read_file(int dir, const std::string& path, std::size_t limit) override {
    TL_TRY(step("read " + name_of(dir) + "/" + path));
    auto text = os_.read_file(dir, path, limit);
    if (after_read) after_read(path);
    return text;
  }
  Status each_entry(int dir, const std::function<Status(const std::string&)>& see) override {
    TL_TRY(step("list " + name_of(dir)));
    Status found = os_.each_entry(dir, see);
    if (after_list) after_list(name_of(dir));
    return found;
  }
  Result<bool> append(int dir, const std::string& path, ByteSpan data) override {
    TL_TRY(step("append " + name_of(dir) + "/" + path));
    return os_.append(dir, path, data);
  }
  Result<FileAbout> about(int dir, const std::string& name) override {
    TL_TRY(step("stat " + name_of(dir)));
    return os_.about(dir, name);
  }
  Status unlink(int dir, const std::string& path) override {
    record("unlink " + name_of(dir) + "/FILE");
    return os_.unlink(dir, path);
  }
  Status sync_file(int fd) override {
    std::string name = name_of(fd);
    // File names are unique, so only the directory is compared.
    TL_TRY(step("fsync " +
                (name.find(".M") == std::string::npos ? name : name.substr(0, name.rfind('/')) + "/FILE")));
    return os_.sync_file(fd);
  }
  Status write_back(int fd) override {
    std::string name = name_of(fd);
    TL_TRY(step("write back " + name.substr(0, name.rfind('/')) + "/FILE"));
    return os_.write_back(fd);
  }
  Status start_write_back(int fd) override {
    std::string name = name_of(fd);
    TL_TRY(step("start write back " + name.substr(0, name.rfind('/')) + "/FILE"));
    return os_.start_write_back(fd);
  }
  Status sync_file_system(int fd) override {
    TL_TRY(step("syncfs"));
    return os_.sync_file_system(fd);
  }
  Status check_not_failed(int fd) override {
    TL_TRY(step("look"));
    return os_.check_not_failed(fd);
  }

  std::vector<std::string> calls() const {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  void clear() {
    std::lock_guard lock(mutex_);
    calls_.clear();
    counted_ = 0;
  }
  // The index of the first such call. npos if there is none, so that a comparison of orders fails.
  std::size_t at(const std::string& call, std::size_t from = 0) const {
    std::lock_guard lock(mutex_);
    auto found = std::find(calls_.begin() + static_cast<std::ptrdiff_t>(std::min(from, calls_.size())),
                           calls_.end(), call);
    return found == calls_.end() ? std::string::npos : static_cast<std::size_t>(found - calls_.begin());
  }
  std::string prefix;  // removed from names

 private:
  std::string name_of(int fd) const {
    char target[PATH_MAX];
    ssize_t n = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), target, sizeof target);
    std::string name(target, n < 0 ? 0 : static_cast<std::size_t>(n));
    return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  }
  void record(std::string call) {
    std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }
  Status step(std::string call) {
    std::string text = call;
    int number;
    {
      std::lock_guard lock(mutex_);
      calls_.push_back(std::move(call));
      number = counted_++;
    }
    if (before) before(text);
    if (number == fail_at) return fail_errno(fail_with, "injected failure of {}", text);
    return {};
  }

  OsFileOps os_;
  mutable std::mutex mutex_;
  std::vector<std::string> calls_;
  int counted_ = 0;
};

}  // namespace twinloft::lmtpd::test
