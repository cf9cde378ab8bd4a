// The interface of user databases: the row of a key. Details, aliases and the catch-all are handled by
// directory.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/policy/user.h"

namespace twinloft::lmtpd {

// In lower case (ASCII). The result of a look-up depends on the key alone, so that it can be cached.
struct UserKey {
  std::string local_part;  // empty: the catch-all of the domain
  std::string domain;      // empty: an address without a domain
  std::string address() const { return domain.empty() ? local_part : local_part + "@" + domain; }
  auto operator<=>(const UserKey&) const = default;
};

struct Alias {
  std::string address;       // one address, which gets the mail
  bool is_old = false;       // as in User
  bool from_memory = false;  // served from the cache
};
using UserEntry = std::variant<User, Alias>;
// nullopt: no row has this key. Errors: Errc::invalid (the row is wrong), Errc::conflict (the source is being
// changed, and the result is uncertain), any other code (the source failed).
using FindResult = Result<std::optional<UserEntry>>;

// A row of a source that can be read completely.
struct SeenRow {
  std::string where;  // "FILE:LINE"
  FindResult found = std::nullopt;
  std::vector<std::string> not_known;  // the names of unknown fields, which are ignored
};

// Thread-safe.
class UserSource {
 public:
  virtual ~UserSource() = default;
  // May block.
  virtual FindResult find(const UserKey& key) = 0;
  // The result if it is known without blocking. nullopt: call find().
  virtual std::optional<FindResult> find_now(const UserKey&) { return std::nullopt; }
  // Visits all rows, for check-config. A source that cannot be read completely visits none.
  virtual Status each_row(const std::function<void(const SeenRow&)>&) { return {}; }
  // As find(), but asks the source even if the cache has the key. The cache still serves stale users.
  virtual FindResult find_anew(const UserKey& key) { return find(key); }
};

// The values of columns that a row lacks. In `name`, `home` and `maildir`, %user% is the local-part without
// detail, %domain% the domain, %name% (not in `name`) the user's name, %home% (in `maildir`) the user's home,
// and %% a percent sign.
struct UserDefaults {
  std::string name = "%user%@%domain%";
  std::string home;       // "/srv/mail/%domain%/%user%"; empty: none
  std::string maildir;    // "%home%/Maildir"; may be empty for an external agent
  std::uint32_t uid = 0;  // 0: none
  std::uint32_t gid = 0;
  std::string agent;
  std::string next_hop{};
  QuotaLimit quota{};
};
// Errors: unknown macros, and values with which the row of every user would be wrong.
Status check_defaults(const UserDefaults& defaults);

}  // namespace twinloft::lmtpd
