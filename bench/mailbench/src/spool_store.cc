// A spool of Maildirs, read by several threads.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "store.h"
#include "twinloft/base/fd.h"
#include "twinloft/mailbench/spool.h"

namespace twinloft::mailbench {

namespace {

constexpr std::size_t kFilesAtOnce = 64;

// Reads a file. Returns 0 or errno. The buffer only grows.
int read_whole(const std::string& path, std::string& buffer, std::size_t& size, WallTime& written) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat st{};
  if (!fd || ::fstat(fd.get(), &st) != 0) return errno;
  written = {st.st_mtim.tv_sec, static_cast<std::int32_t>(st.st_mtim.tv_nsec / 1000)};
  // One byte more than the size, so that the read of the last byte also detects the end.
  buffer.resize(std::max(buffer.size(), static_cast<std::size_t>(st.st_size) + 1));
  size = 0;
  for (;;) {
    if (size == buffer.size()) buffer.resize(buffer.size() * 2);
    ssize_t n = ::read(fd.get(), buffer.data() + size, buffer.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return 0;
    size += static_cast<std::size_t>(n);
  }
}

class SpoolStore final : public Store {
 public:
  SpoolStore(const VerifyOptions& options, const Expectations& expected)
      : options_(options), expected_(expected) {}

  Status map_directories() {
    for (std::uint32_t i = 0; i < expected_.recipients.size(); ++i)
      for (const std::string& format : options_.maildir_formats)
        TL_TRY(directories_.add(format, expected_.recipients[i], i));
    return {};
  }

  Status read(const Take& take) override {
    TL_TRY_ASSIGN(files_, walk_spool(options_.spool));
    owners_.clear();
    for (const std::string& directory : files_.directories) owners_.push_back(directories_.find(directory));
    next_ = 0;
    std::vector<std::thread> more;
    for (std::size_t i = 1; i < threads(); ++i) more.emplace_back([&, i] { read_files(i, take); });
    read_files(0, take);
    for (std::thread& thread : more) thread.join();
    return {};
  }

  std::size_t threads() const override {
    if (options_.threads != 0) return options_.threads;
    return std::max(1u, std::thread::hardware_concurrency()) * std::size_t{4};
  }
  std::string place(std::uint32_t id) const override {
    const SpoolFiles::File& f = files_.files[id];
    return files_.directories[f.directory] + "/" + f.name;
  }
  std::uint64_t count() const override { return files_.files.size(); }
  std::uint64_t left_in_tmp() const override { return files_.left_in_tmp; }

 private:
  void read_files(std::size_t thread, const Take& take) {
    std::string buffer(1 << 16, '\0');
    for (;;) {
      std::size_t first = next_.fetch_add(kFilesAtOnce, std::memory_order_relaxed);
      if (first >= files_.files.size()) return;
      std::size_t end = std::min(first + kFilesAtOnce, files_.files.size());
      for (std::size_t i = first; i < end; ++i) read_one(thread, static_cast<std::uint32_t>(i), buffer, take);
    }
  }

  void read_one(std::size_t thread, std::uint32_t id, std::string& buffer, const Take& take) const {
    std::uint32_t directory = files_.files[id].directory;
    StoredText out;
    out.id = id;
    out.owner_known = !options_.maildir_formats.empty();
    out.owner = owners_[directory];
    out.owner_name = files_.directories[directory];
    std::size_t size = 0;
    WallTime written;
    int error = read_whole(options_.spool + "/" + place(id), buffer, size, written);
    if (error != 0) {
      out.error = std::string("it cannot be read: ") + std::strerror(error);
    } else {
      out.text = std::string_view(buffer).substr(0, size);
      out.stored = written;
    }
    take(thread, out);
  }

  const VerifyOptions& options_;
  const Expectations& expected_;
  DirectoryMap directories_;
  SpoolFiles files_;
  std::vector<std::uint32_t> owners_;  // by directory of the spool
  std::atomic<std::size_t> next_{0};
};

}  // namespace

Result<std::unique_ptr<Store>> make_spool_store(const VerifyOptions& options, const Expectations& expected) {
  auto store = std::make_unique<SpoolStore>(options, expected);
  TL_TRY(store->map_directories());
  return store;
}

}  // namespace twinloft::mailbench
