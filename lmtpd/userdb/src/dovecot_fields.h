// What Dovecot's user database may say of a user beside Twinloft's own columns: each field is heeded, known to have nothing to do with where mail lies, refused in
// words, or noted as not known. None of those that decide where Dovecot shows mail is passed over.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "row.h"

namespace twinloft::lmtpd {

class DovecotFields {
 public:
  // A word of a passwd-file's extra fields: "userdb_mail=maildir:~/Maildir", "allow_nets=192.0.2.0/24", "proxy".
  Status take_extra(Row& row, std::string_view word);
  // A field of the user database, without "userdb_".
  Status take(Row& row, std::string_view name, std::string_view value);
  // The Maildir that the fields name together goes into the row. `key`: who was asked for, for variables.
  Status finish(Row& row, const UserKey& key) const;

 private:
  std::optional<std::string> mail_, driver_, path_, inbox_path_;  // `mail` of 2.3; mail_driver, mail_path and mail_inbox_path of 2.4
  std::optional<std::string> home_;                               // of a passwd-file's extra fields, with variables
  bool handed_on_ = false;                                        // a field that says so: proxy
};

// Whether that is a column that DovecotFields::take() has an opinion on where a query yields it: mail, mail_path, userdb_mail and their kin. Any table may have others.
bool is_dovecot_column(std::string_view name);

// The path of Dovecot 2.3's mail_location ("maildir:~/Maildir:INDEX=MEMORY"), as the column `maildir` has it: "~" is the home. Errors: another driver, and
// options that put mail elsewhere or under other names than this program does.
Result<std::string> maildir_of_location(std::string_view location, const UserKey& key);

}  // namespace twinloft::lmtpd
