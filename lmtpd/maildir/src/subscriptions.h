// Adds a folder to the file `subscriptions` of a Maildir (mail/subscriptions.h), as Dovecot does.
#pragma once

#include <cstdint>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/spool/file_ops.h"

namespace twinloft::lmtpd {

// Makes the content durable, but not the directory entry. `now`: the time of day, in seconds.
// Errc::unavailable: another program holds the lock, or has taken it over.
Status subscribe(FileOps& ops, int maildir, std::string_view folder, std::int64_t now);

}  // namespace twinloft::lmtpd
