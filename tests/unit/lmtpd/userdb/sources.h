// Common parts of the tests of user sources and of the layers above them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

// nullopt: no such user. Any other result fails the test.
inline std::optional<User> user_of(const FindResult& found) {
  EXPECT_TRUE(found.has_value()) << found.error().message;
  if (!found || !*found) return std::nullopt;
  const User* user = std::get_if<User>(&**found);
  EXPECT_NE(user, nullptr) << "an alias";
  return user ? std::optional(*user) : std::nullopt;
}

inline User user_named(std::string name) {
  User user;
  user.name = std::move(name);
  user.uid = user.gid = 5000;
  user.home = "/srv/mail";
  return user;
}

// A table of users, with a list of the look-ups.
class TableSource final : public UserSource {
 public:
  FindResult find(const UserKey& key) override {
    asked.push_back(key.address());
    if (during) during();
    if (error) return std::unexpected(*error);
    auto found = rows.find(key.address());
    if (found == rows.end()) return std::nullopt;
    return found->second;
  }

  std::map<std::string, UserEntry> rows;
  std::vector<std::string> asked;
  std::optional<Error> error;
  std::function<void()> during;
};

struct ManualClock final : Clock {
  Instant now() const override { return at; }
  WallTime wall() const override { return of_day; }
  Instant at{1'000'000'000};
  WallTime of_day{};
};

}  // namespace twinloft::lmtpd
