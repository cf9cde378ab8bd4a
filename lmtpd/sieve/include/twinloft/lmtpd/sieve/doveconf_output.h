// The output of doveconf as a tree: lines "name = value", and sections "kind name {" to "}". Of Dovecot 2.3
// and 2.4. No I/O.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

struct DoveconfSection {
  std::string kind;  // "sieve_script" of `sieve_script personal {`
  std::string name;  // "personal"; may be empty
  std::map<std::string, std::string> values = {};
  std::vector<DoveconfSection> sections = {};

  // Empty: not set, or set to nothing.
  std::string value(const std::string& setting) const;
  bool has(const std::string& setting) const { return values.contains(setting); }
  // The first section of this kind and name. null: there is none.
  const DoveconfSection* find(std::string_view wanted_kind, std::string_view wanted_name) const;
  // Whether a list has this word: "mail_plugins = quota sieve", or a section `mail_plugins { sieve = yes }`.
  bool lists(const std::string& list, std::string_view word) const;
};

struct DoveconfOutput {
  int major = 0, minor = 0;  // Dovecot's version
  DoveconfSection root;
  bool is_2_4() const { return major > 2 || (major == 2 && minor >= 4); }
};

// Errors: Errc::invalid: there is no version in the first line, or the sections have no end.
Result<DoveconfOutput> parse_doveconf(std::string_view text);

}  // namespace twinloft::lmtpd
