#include "twinloft/mailbench/calibrate.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "twinloft/mailbench/null_sink.h"
#include "twinloft/mailbench/report.h"

namespace twinloft::mailbench {

namespace {

// A directory of its own for the socket, removed at the end.
class SocketDirectory {
 public:
  static Result<SocketDirectory> make() {
    SocketDirectory out;
    std::error_code error;
    std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    std::string pattern = (error ? "/tmp" : parent.string()) + "/mailbench.XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) return fail_errno(errno, "{}", pattern);
    out.path_ = pattern;
    return out;
  }
  SocketDirectory(SocketDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  SocketDirectory& operator=(SocketDirectory&&) = delete;
  ~SocketDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  SocketDirectory() = default;
  std::string path_;
};

}  // namespace

Result<LoadResult> run_calibrate(LoadOptions& options, bool tcp) {
  TL_TRY_ASSIGN(SocketDirectory directory, SocketDirectory::make());
  TL_TRY_ASSIGN(auto sink, NullSink::start(tcp ? "" : directory.path(), options.threads));
  options.server = sink->address();
  return run_load(options);
}

std::string calibrate_text(const LoadOptions& options, const LoadResult& result) {
  double limit = messages_per_minute(result.stats);
  std::string report = report_text(options, result);
  if (options.schedule.rate) return report;  // it has the lateness of this rate
  return report +
         fmt::format(
             "{:<15}{:.0f} messages per minute with these options, beside a server that does nothing.\n"
             "{:<15}A result above half of it says as much about the generator as about the server.\n",
             "generator limit", limit, "");
}

}  // namespace twinloft::mailbench
