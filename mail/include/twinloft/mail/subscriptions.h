// The file `subscriptions` of a Maildir, as Dovecot 2.2 and later keep it: one folder a line, in modified
// UTF-7. In version 2, whose first line is "V<tab>2", levels are parted by tabs; before it by ".". Who
// changes it holds `subscriptions.lock`, which then becomes the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace twinloft::mail {

inline constexpr const char* subscriptions_name = "subscriptions";
inline constexpr const char* subscriptions_lock_name = "subscriptions.lock";

// The file with that folder (".Lists.dev") added; nullopt where it is there. An empty one becomes version 2.
std::optional<std::string> add_subscription(std::string_view file, std::string_view folder);

// A lock that has not changed for so long belongs to nobody any more, and is removed, as Dovecot does
// (SUBSCRIPTION_FILE_CHANGE_TIMEOUT).
inline constexpr std::int64_t lock_stale_seconds = 30;

}  // namespace twinloft::mail
