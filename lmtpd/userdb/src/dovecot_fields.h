// Dovecot's own fields of a user, besides Twinloft's columns. Each field is used, ignored because it does not
// change the place of mail, refused with a reason, or reported as unknown. A field that decides where Dovecot
// looks for mail is never ignored.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "row.h"

namespace twinloft::lmtpd {

class DovecotFields {
 public:
  enum class Origin { passwd_file, query };
  explicit DovecotFields(Origin origin) : origin_(origin) {}

  // A word of a passwd-file's extra fields: "userdb_mail=maildir:~/Maildir", "allow_nets=192.0.2.0/24",
  // "proxy".
  Status take_extra(Row& row, std::string_view word);
  // A field of the user database, without "userdb_".
  Status take(Row& row, std::string_view name, std::string_view value);
  static bool is_quota(std::string_view name);  // a column that has another name in Twinloft
  // Writes the Maildir of all fields into the row. key: the looked-up key, for variables.
  Status finish(Row& row, const UserKey& key) const;

 private:
  Status finish_home(Row& row, const UserKey& key) const;
  Result<std::optional<std::string>> new_path(const UserKey& key) const;

  const Origin origin_;
  std::optional<std::string> home_;
  std::optional<std::string> mail_, location_;  // fields of 2.3
  std::optional<std::string> driver_, path_,
      inbox_path_;          // mail_driver, mail_path and mail_inbox_path of 2.4
  bool handed_on_ = false;  // the field "proxy" is set
};

// Whether DovecotFields::take() handles this column in the result of a query: mail, mail_path, userdb_mail
// and similar names. Other columns of a table are not Dovecot's.
bool is_dovecot_column(std::string_view name);

}  // namespace twinloft::lmtpd
