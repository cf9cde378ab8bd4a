// Where a user's Maildir lies in the spool, read in both directions.
//
// A layout is a path below the spool's root with variables, each within one part of the path:
//   %u, %address%     the address ("ann@example.org"; without a domain the local part alone)
//   %n, %user%        the local part
//   %d, %domain%      the domain
//   %1n, %2d          the first characters of it, for spools that are spread over directories
//   %%                a percent sign
// "%d/%n/Maildir", "%u", "%n" and "%d/%1n/%n" are examples. The long names are as lmtpd has them, the others
// as Dovecot.
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
  // Errors: Errc::invalid, with the place: an unknown variable, an absolute path, "..", no variable for the
  // local part.
  static Result<Layout> parse(std::string_view text);

  // The address of the user whose Maildir is `path` (below the root, without a slash at either end).
  std::optional<std::string> user_of(std::string_view path) const;
  // Whether `path` could be such a Maildir, or a directory above one.
  bool may_lead_to_maildir(std::string_view path) const;
  // How many parts of a Maildir's path tell one user from another: behind the last variable all are the same.
  std::size_t user_depth() const;
  // "" where the address has not what the layout needs, or would lead elsewhere ("..", a slash, control
  // bytes).
  std::string path_of(std::string_view address) const;

 private:
  struct Piece {
    char variable = 0;      // 'u', 'n', 'd'; 0: literal
    std::size_t width = 0;  // 0: all of it
    std::string literal;
  };
  using Part = std::vector<Piece>;  // one part of the path
  struct Values {
    std::string address, local, domain;
  };
  static Result<Part> parse_part(std::string_view whole, std::string_view part);
  static bool match(const Part& part, std::string_view rest, Values& values);

  std::vector<Part> parts_;
};

}  // namespace twinloft::repl::salvage
