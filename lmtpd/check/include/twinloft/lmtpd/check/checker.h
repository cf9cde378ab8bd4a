// `check-config`: reads the configuration, compares it with this machine, and reports every problem at once.
#pragma once

#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/process/privileges.h"

namespace twinloft::lmtpd {

// Collects problems and warnings: one line each, with the configuration key.
class Checker {
 public:
  void problem(std::string text) { problems_.push_back(std::move(text)); }
  void warning(std::string text) { warnings_.push_back(std::move(text)); }
  const std::vector<std::string>& problems() const { return problems_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::vector<std::string> problems_, warnings_;
};

// Tells whether all given sections are free of errors. A check runs only if the sections it needs are good.
struct GoodSections {
  const std::set<std::string>& bad;
  bool operator()(std::initializer_list<const char*> sections) const;
};

// Runs `checks` in a process of this user, since root could open files that this user cannot. If this process
// is not root, it runs `checks` itself, and warns if it is another user. user: the setting.
void check_as(const Identity& identity, const std::string& user, const std::function<void(Checker&)>& checks,
              Checker& check, std::ostream& err);

// What a program checks beyond the text of the file.
struct ConfigCheck {
  std::function<void(const ReadConfig&, Checker&, std::ostream& err)> machine;
  // What the program would do, so that the operator notices misunderstandings. Whole lines.
  std::function<std::string(const Config&)> summary;
};
// Writes one problem a line to `err`, or "ok" and the summary to `out`. Exit codes: 0, or 78 (EX_CONFIG).
int check_config_file(const std::string& path, const ConfigCheck& program, std::ostream& out,
                      std::ostream& err);

}  // namespace twinloft::lmtpd
