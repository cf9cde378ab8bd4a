// The file `subscriptions` of a Maildir, as Dovecot 2.2 and later keep it: one folder a line, in modified UTF-7. In version 2, whose first line is "V<tab>2",
// levels are parted by tabs; before it by ".". Who changes it holds `subscriptions.lock`, which then becomes the file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/delivery/file_ops.h"

namespace twinloft::lmtpd {

// The file with that folder (".Lists.dev") added; nullopt where it is there. An empty one becomes version 2.
std::optional<std::string> add_subscription(std::string_view file, std::string_view folder);

// Durable but for the directory's entry. Errc::unavailable: somebody else holds the lock.
Status subscribe(FileOps& ops, int maildir, std::string_view folder);

}  // namespace twinloft::lmtpd
