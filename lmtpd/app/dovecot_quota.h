// For check-config: checks whether Dovecot counts the same mailboxes in the same way, by the output of
// doveconf.
#pragma once

#include <string>
#include <vector>

#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

// The quota settings of Dovecot, in the terms of 2.3.
struct DovecotQuota {
  std::string quota;               // "maildir:User quota", "count"; empty: none
  std::vector<std::string> rules;  // "*:storage=1G", "Trash:ignore"
  std::string grace = "10%";       // empty: 2.4, which has it in bytes and not as a percentage
  // Prefix of the inbox's namespace. Folder names in rules begin with it. Empty for 2.4, whose names do not.
  std::string inbox_prefix;
  // Location of this namespace: "maildir:~/Maildir:LAYOUT=fs". For 2.4 only ":CONTROL=", if set.
  std::string location;
  std::size_t roots = 1;  // number of quotas of one mailbox
  bool vsizes = false;
  std::vector<std::string> without_plugin;  // served protocols that do not load the quota plugin
  bool status_service = false;              // the service quota-status exists
  bool status_plugin = false;               // mail_plugins outside of protocols has the quota plugin
  bool trash_plugin = false;                // and the plugin trash
  std::string recipient_delimiter = "+";
  std::string status_success, status_overquota, status_toolarge;  // configured answers; empty: the default
};

// Runs doveconf, of 2.3 or 2.4. Errors: doveconf is missing, fails, or does not end in time.
Result<DovecotQuota> read_dovecot_quota(const std::string& config_path);

// Returns one problem for each difference, with the key, and usually with the correct setting.
std::vector<std::string> compare_quota(const Config& config, const DovecotQuota& dovecot);

}  // namespace twinloft::lmtpd
