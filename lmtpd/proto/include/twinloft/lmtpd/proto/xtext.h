// The encoding of values in ESMTP parameters (RFC 3461 section 4).
#pragma once

#include <string>
#include <string_view>

namespace twinloft::lmtpd {

std::string encode_xtext(std::string_view text);

}  // namespace twinloft::lmtpd
