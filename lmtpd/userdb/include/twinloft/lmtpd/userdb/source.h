// Where users are kept: one key, one answer. What an address means (detail, aliases, catch-all) is decided
// above, in directory.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// Lower case (ASCII). Everything that an answer may depend on: two requests with one key get one answer.
struct UserKey {
  std::string local_part;  // empty: the catch-all of the domain
  std::string domain;      // empty: an address without one
  std::string address() const { return domain.empty() ? local_part : local_part + "@" + domain; }
  auto operator<=>(const UserKey&) const = default;
};

struct Alias {
  std::string address;       // whose mail it is; one
  bool is_old = false;       // as in User
  bool from_memory = false;  // what was said before, if not long ago
};
using UserEntry = std::variant<User, Alias>;
// nullopt: there is no such key. An error: nobody can say; Errc::invalid: the source answers, and what it
// says of this key is wrong; Errc::conflict: it answers, and cannot be sure of this key now.
using FindResult = Result<std::optional<UserEntry>>;

// A row as it stands in a source that can be read from end to end.
struct SeenRow {
  std::string where;  // "FILE:LINE"
  FindResult found = std::nullopt;
  std::vector<std::string> not_known;  // names of fields that nothing is known of, and that are not heeded
};

// Thread-safe.
class UserSource {
 public:
  virtual ~UserSource() = default;
  virtual FindResult find(const UserKey& key) = 0;                                     // may block
  virtual std::optional<FindResult> find_now(const UserKey&) { return std::nullopt; }  // where it need not
  // All rows, where a source can be read so; else none. For check-config.
  virtual Status each_row(const std::function<void(const SeenRow&)>&) { return {}; }
  virtual FindResult find_anew(const UserKey& key) {
    return find(key);
  }  // not from memory, where there is an answer
};

// What a user has where the source does not say. In `name`, `home` and `maildir`, %user% is the local part
// without detail, %domain% the domain, %name% (not in `name`) the user's name, %home% (in `maildir`) the
// user's home, %% a percent sign.
struct UserDefaults {
  std::string name = "%user%@%domain%";
  std::string home;       // "/srv/mail/%domain%/%user%"; empty: none
  std::string maildir;    // "%home%/Maildir"; empty where the agent is external
  std::uint32_t uid = 0;  // 0: none
  std::uint32_t gid = 0;
  std::string agent;
  std::string next_hop{};
  QuotaLimit quota{};
};
// Errors: unknown macros, and what every user would stumble over.
Status check_defaults(const UserDefaults& defaults);

}  // namespace twinloft::lmtpd
