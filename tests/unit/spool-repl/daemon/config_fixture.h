// Configurations in a file, and the form of their errors.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::daemon {

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() {
    const char* tmp = std::getenv("TMPDIR");
    path_ = std::string(tmp ? tmp : "/tmp") + "/tl-config-XXXXXX";
    Fd fd(mkstemp(path_.data()));
    EXPECT_TRUE(fd) << path_;
  }
  ~ConfigTest() override { ::unlink(path_.c_str()); }

  Result<NodeSettings> load(const std::string& text) {
    std::ofstream(path_) << text;
    return load_config(path_);
  }
  // The message must have the form "<file>:<line>: <key>: <words>".
  testing::AssertionResult refused(const std::string& text, int line, const std::string& key,
                                   std::string_view words) {
    auto out = load(text);
    if (!out) {
      std::string start = fmt::format("{}:{}: {}", path_, line, key.empty() ? "" : key + ": ");
      if (out.error().code == Errc::invalid && out.error().message.starts_with(start) &&
          out.error().message.find(words) != std::string::npos)
        return testing::AssertionSuccess();
      return testing::AssertionFailure()
             << "\"" << out.error().message << "\" instead of \"" << start << "..." << words << "\"";
    }
    return testing::AssertionFailure() << "accepted";
  }
  std::string path_;
};

inline const std::string minimal = R"([volume.mail]
replica = 1
role = "primary"
data = "/srv/data"
journal = "/srv/journal"
)";
inline constexpr int minimal_lines = 5;

}  // namespace twinloft::repl::daemon
