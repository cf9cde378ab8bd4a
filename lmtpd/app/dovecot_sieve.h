// Dovecot's settings about Sieve, by doveconf: for serve, for whom a script runs; for check-config, whether
// Dovecot and lmtpd treat these users' mail alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/sieve/script_rule.h"

namespace twinloft::lmtpd {

// Asks doveconf, with the access of this process: call it before privileges are dropped. Where doveconf gives
// no answer, or shows no script, or `users = "all"`, all users: Dovecot then decides, and no script is left
// out.
ScriptRule find_scripts(const Config& config);
// NoUser becomes AllUsers: doveconf may have left out an include that this process may not read.
ScriptRule in_doubt_all(ScriptRule rule, const Config& config);
// Dovecot's recipient_delimiter in protocol lmtp, which ends a user's name there. Where doveconf gives no
// answer: Dovecot's default, and lmtpd's own delimiter. Likewise before privileges are dropped.
std::string find_delimiters(const Config& config);
// As find_scripts(), without a log line. Errors: as of Doveconf.
Result<ScriptRule> ask_for_scripts(const Config& config);

// The settings that both programs need, of the protocol of the delivery (lmtp or lda).
struct DovecotDelivery {
  ScriptRule scripts = NoUser{};
  std::vector<std::string> hidden_rows;  // SieveSettings::hidden_rows
  std::string mail_fsync, recipient_delimiter, save_to_detail_mailbox, autocreate, autosubscribe;
  std::uint64_t lmtp_processes = 0;  // at once
};
// Errors: as of Doveconf.
Result<DovecotDelivery> read_dovecot_delivery(const Config& config);

struct SieveFindings {
  std::vector<std::string> problems, warnings;  // a line each, with the key
};
SieveFindings compare_sieve(const Config& config, const DovecotDelivery& dovecot);

}  // namespace twinloft::lmtpd
