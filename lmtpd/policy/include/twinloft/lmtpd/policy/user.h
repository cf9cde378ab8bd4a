// Who a recipient is, according to the user database.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

enum class UserState {
  active,
  disabled,  // accepts no mail: 550 5.2.1
  deferred,  // accepts no mail at present, for example while the mailbox is moved: 450 4.2.1
};

// The effect of the detail of an address (ann+lists@): none, or it names a folder (RFC 5233) if the folder
// exists, or the folder is created.
enum class FoldersByDetail { none, existing, create };
Result<FoldersByDetail> parse_folders_by_detail(std::string_view text);  // "none", "existing", "create"

// The limits of a mailbox. 0: no limit.
struct QuotaLimit {
  std::uint64_t bytes = 0;
  std::uint64_t messages = 0;
  bool unlimited() const { return bytes == 0 && messages == 0; }
  bool operator==(const QuotaLimit&) const = default;
};

// A checked row of the user database (userdb/check.h): uid and gid are not 0, home is absolute and without
// "..". For a user with a next hop, only name, state and next_hop are used.
struct User {
  std::string name;  // the user's name, which is %user%
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::string home;      // absolute
  std::string maildir;   // absolute; of the built-in agent and Dovecot
  std::string agent;     // "maildir", or the name of an [agent.<name>] section; empty: the configured default
  std::string next_hop;  // the name of the [next_hop.<name>] section that gets the mail; empty: deliver here
  UserState state = UserState::active;
  QuotaLimit quota{};
  std::optional<FoldersByDetail> detail_folders{};  // nullopt: as configured
  bool sieve_in_row = false;  // the row has Dovecot's fields about Sieve: a script of another place may run
  bool is_old = false;        // a stale row, while the database does not answer. It causes no 5xx
};

struct LookupRequest {
  std::string local_part;  // unquoted, without detail
  std::string detail;      // empty where there is none
  std::string domain;      // lower case, empty where there is none
};

struct Resolved {
  User user;
  std::optional<std::string> detail = {};  // if an alias has changed the detail
};

// nullopt: no such user (550 5.1.1). Errors: the database failed (451 4.3.0). Errc::invalid and Errc::denied:
// the row is wrong (451 4.3.5).
using LookupResult = Result<std::optional<Resolved>>;

class UserDb {
 public:
  virtual ~UserDb() = default;
  virtual LookupResult lookup(const LookupRequest& request) = 0;
  // The result if it is known without blocking; called on the thread of the connections. nullopt: call
  // lookup().
  virtual std::optional<LookupResult> lookup_now(const LookupRequest&) { return std::nullopt; }
};

}  // namespace twinloft::lmtpd
