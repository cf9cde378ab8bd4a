// A path in Dovecot's configuration, with its variables: %u %n %d %h, %{user}, %{user | username | lower}, ~.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/policy/user.h"

namespace twinloft::lmtpd {

class ScriptPath {
 public:
  // lower_names: Dovecot writes names in lower case (auth_username_format). A relative path is in the home.
  // Errors: Errc::invalid: another variable, or a part "..".
  static Result<ScriptPath> parse(std::string_view text, bool lower_names);

  // nullopt: a part of the user's name cannot be a part of a path.
  std::optional<std::string> expand(const User& user) const;
  // The directory that exists if the scripts can be reached: the home, or the part before the first variable.
  std::string base(const User& user) const;
  bool uses_names() const;
  // Written without the home or a leading "/".
  bool is_relative() const { return relative_; }
  bool operator==(const ScriptPath&) const = default;

 private:
  enum class What { literal, home, user, username, domain };
  struct Part {
    What what = What::literal;
    std::string text = {};  // of a literal
    bool lower = false;
    bool operator==(const Part&) const = default;
  };
  static Result<Part> parse_variable(std::string_view& rest);
  static Result<Part> parse_long_variable(std::string_view name);
  std::optional<std::string> value_of(const Part& part, const User& user) const;

  std::vector<Part> parts_;
  bool lower_names_ = true, relative_ = false;
};

}  // namespace twinloft::lmtpd
