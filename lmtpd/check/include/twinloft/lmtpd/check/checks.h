// Checks of parts of the configuration against this machine, for every program that uses these parts.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/check/checker.h"
#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

// A PEM file, and the key that names it, for messages.
struct PemFile {
  const char* key;
  std::string path;
};
Result<std::string> read_pem(const PemFile& file);

// The spool's root, marker and state file.
void check_spool(const Config& config, Checker& check);
// The intake log of the spool, whatever the setting of durability, and whether the file system can have one.
// Changes nothing.
void check_intake_log(const Config& config, Checker& check);
// Opens the user database. False: it cannot be opened, which is a problem. users: with secrets and ids.
bool check_user_source(const UserSettings& users, const Clock& clock, Checker& check);
// Asks Dovecot's quota-status about a user that does not exist: any answer shows that it works.
void check_quota_status(const QuotaStatusConfig& config, const Clock& clock, Checker& check);
// The group of a Unix socket exists. key: such as "listen.group".
void check_group(const ListenSettings& listen, const char* key, Checker& check);
// Whether a program could listen there. key: such as "listen.address". program: that of the configuration.
void check_listen(const ListenSettings& listen, std::string_view key, std::string_view program,
                  Checker& check, std::ostream& err);

}  // namespace twinloft::lmtpd
