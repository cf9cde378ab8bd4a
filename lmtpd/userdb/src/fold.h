// Converts addresses to one form for comparison: lower case (ASCII only, other bytes unchanged), and domains
// as in proto/path.h.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/proto/path.h"

namespace twinloft::lmtpd {

inline std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// "Ann@Bücher.example." -> "ann@xn--bcher-kva.example". A name without a domain, or with an invalid domain,
// is only converted to lower case.
inline std::string normal_name(std::string_view name) {
  std::size_t at = name.rfind('@');
  auto domain = at == std::string_view::npos ? std::unexpected(Error{}) : normal_domain(name.substr(at + 1));
  return domain ? ascii_lower(name.substr(0, at + 1)) + *domain : ascii_lower(name);
}

inline Status normalise_domains(std::vector<std::string>& domains) {
  for (std::string& domain : domains) {
    auto normal = normal_domain(domain);
    if (!normal) return fail(Errc::invalid, "users.domains: {}", normal.error().message);
    domain = std::move(*normal);
  }
  return {};
}

}  // namespace twinloft::lmtpd
