#include "review_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string_view>
#include <variant>

#include "twinloft/lmtpd/users/users.h"
#include "users.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t shown_max = 20;  // lines per warning

// Lines of a file for one warning.
class Lines {
 public:
  void add(std::string line) {
    ++count_;
    if (shown_.size() < shown_max) shown_.push_back(std::move(line));
  }
  std::size_t count() const { return count_; }
  std::string text() const {
    std::string out;
    for (const std::string& line : shown_) out += "\n  " + line;
    if (count_ > shown_.size()) out += fmt::format("\n  and {} more", count_ - shown_.size());
    return out;
  }

 private:
  std::size_t count_ = 0;
  std::vector<std::string> shown_;
};

// Removes the section: the error is in the row, not in the configuration.
std::string_view of_row(std::string_view message) {
  constexpr std::string_view section = "users.";
  return message.starts_with(section) ? message.substr(section.size()) : message;
}

}  // namespace

Result<std::vector<std::string>> review_rows(const Config& config, const UserSettings& users,
                                             const Identity& identity, bool by_root, const Clock& clock) {
  std::vector<std::string> warnings;
  if (users.driver != UserDriver::passwd_file) return warnings;
  TL_TRY_ASSIGN(std::unique_ptr<UserSource> source, open_passwd_file(passwd_file_of(users), clock));
  Lines refused, not_known;
  std::set<std::string> names;
  std::size_t rows = 0;
  TL_TRY(source->each_row([&](const SeenRow& row) {
    ++rows;
    if (!row.not_known.empty()) {
      not_known.add(fmt::format("{}: {}", row.where, fmt::join(row.not_known, ", ")));
      names.insert(row.not_known.begin(), row.not_known.end());
    }
    if (!row.found) return refused.add(row.found.error().message);
    const User* user = *row.found ? std::get_if<User>(&**row.found) : nullptr;
    Status deliverable = user ? check_delivery_to(*user, config, identity, by_root) : Status{};
    if (!deliverable) refused.add(fmt::format("{}: {}", row.where, of_row(deliverable.error().message)));
  }));
  if (refused.count() > 0)
    warnings.push_back(fmt::format("users: {} of {} lines are refused, and mail to their users gets 451:{}",
                                   refused.count(), rows, refused.text()));
  if (not_known.count() > 0)
    warnings.push_back(fmt::format("users: {} of {} lines have unknown fields, which lmtpd ignores ({}):{}",
                                   not_known.count(), rows, fmt::join(names, ", "), not_known.text()));
  return warnings;
}

}  // namespace twinloft::lmtpd
