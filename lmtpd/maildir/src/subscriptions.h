// The file `subscriptions` of a Maildir, as Dovecot 2.2 and later keep it: one folder a line, in modified
// UTF-7. In version 2, whose first line is "V<tab>2", levels are parted by tabs; before it by ".". Who
// changes it holds `subscriptions.lock`, which then becomes the file. A lock that has not changed for
// lock_stale_seconds belongs to nobody any more, and is removed, as Dovecot does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/spool/file_ops.h"

namespace twinloft::lmtpd {

// The file with that folder (".Lists.dev") added; nullopt where it is there. An empty one becomes version 2.
std::optional<std::string> add_subscription(std::string_view file, std::string_view folder);

inline constexpr std::int64_t lock_stale_seconds = 30;  // Dovecot's SUBSCRIPTION_FILE_CHANGE_TIMEOUT

// Durable but for the directory's entry. `now`: the time of day, in seconds. Errc::unavailable: another
// program holds the lock, or has taken it over meanwhile.
Status subscribe(FileOps& ops, int maildir, std::string_view folder, std::int64_t now);

}  // namespace twinloft::lmtpd
