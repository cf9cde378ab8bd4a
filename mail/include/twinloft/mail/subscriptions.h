// The file `subscriptions` of a Maildir, in the format of Dovecot 2.2 and later: a folder on each line, in
// modified UTF-7. In version 2, whose first line is "V<tab>2", tabs separate levels; in version 1, ".". A
// program that changes the file holds `subscriptions.lock`, which then becomes the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace twinloft::mail {

inline constexpr const char* subscriptions_name = "subscriptions";
inline constexpr const char* subscriptions_lock_name = "subscriptions.lock";

// The file with the folder (".Lists.dev") added; nullopt: it has the folder. An empty file becomes version 2.
std::optional<std::string> add_subscription(std::string_view file, std::string_view folder);

// Whether a lock is stale, and may be removed: it has not changed for 30 s, as for Dovecot
// (SUBSCRIPTION_FILE_CHANGE_TIMEOUT), or its time is as far in the future, since the clock was set back.
// Times are in seconds since 1970.
bool is_stale_lock(std::int64_t changed, std::int64_t now);

}  // namespace twinloft::mail
