// The layout of Maildirs in a spool: from a path to the user, and from the user to the path.
//
// A layout is a path below the spool's root with variables, each within one component of the path:
//   %u, %address%     the address ("ann@example.org"; without a domain, the local-part)
//   %n, %user%        the local part
//   %d, %domain%      the domain
//   %1n, %2d          the first characters of these, for spools with hashed directories
//   %%                a percent sign
// Examples: "%d/%n/Maildir", "%u", "%n", "%d/%1n/%n". The long names are those of lmtpd, the short names
// those of Dovecot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::repl::salvage {

class Layout {
 public:
  // Errors: Errc::invalid with the position. An unknown variable, an absolute path, "..", or no variable for
  // the local-part.
  static Result<Layout> parse(std::string_view text);

  // The address of the user with the Maildir `path` (below the root, without a slash at its ends).
  std::optional<std::string> user_of(std::string_view path) const;
  // Whether `path` could be such a Maildir, or a directory above one.
  bool may_lead_to_maildir(std::string_view path) const;
  // The number of components of a Maildir's path that differ between users, up to the last variable.
  std::size_t user_depth() const;
  // The path of the user's Maildir. Empty: the address lacks a part of the layout, or a part cannot be a path
  // component (such as ".." or a slash).
  std::string path_of(std::string_view address) const;

 private:
  struct Piece {
    char variable = 0;      // 'u', 'n', 'd'; 0: literal
    std::size_t width = 0;  // in characters; 0: all
    std::string literal;
  };
  using Part = std::vector<Piece>;  // a component of the path
  struct Values {
    std::string address, local, domain;
  };
  static Result<Part> parse_part(std::string_view whole, std::string_view part);
  static bool match(const Part& part, std::string_view rest, Values& values);

  std::vector<Part> parts_;
};

}  // namespace twinloft::repl::salvage
