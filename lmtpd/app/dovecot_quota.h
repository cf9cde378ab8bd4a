// Whether Dovecot counts the same mailboxes in the same way: for check-config, by what doveconf says of
// Dovecot's configuration.
#pragma once

#include <string>
#include <vector>

#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

// What Dovecot's configuration says of its quota, in the words of 2.3.
struct DovecotQuota {
  std::string quota;               // "maildir:User quota", "count"; empty: none
  std::vector<std::string> rules;  // "*:storage=1G", "Trash:ignore"
  std::string grace = "10%";       // empty: as 2.4 has it, in bytes, which no percentage is
  std::string inbox_prefix;        // of the namespace with the inbox, which names in rules begin with; empty
                                   // for 2.4, where they do not
  std::string location;   // of that namespace: "maildir:~/Maildir:LAYOUT=fs"; of 2.4 only ":CONTROL=", where
                          // that is set
  std::size_t roots = 1;  // quotas of one mailbox, where there is one
  bool vsizes = false;
  std::vector<std::string> without_plugin;  // protocols that are served and do not load it
  bool status_service = false;              // there is one named quota-status ...
  bool status_plugin = false;               // ... which loads the plugin
  std::string status_success, status_overquota, status_toolarge;  // what it answers; empty: its own words
};

// Runs doveconf, of 2.3 or 2.4. The error says why nothing is known.
Result<DovecotQuota> read_dovecot_quota(const std::string& config_path);

// Problems: one for each difference, with the key and what to write.
std::vector<std::string> compare_quota(const Config& config, const DovecotQuota& dovecot);

}  // namespace twinloft::lmtpd
