// The input is the first data of a proxy. Every prefix of a header needs more data or is refused permanently.
// No byte after the header is used.
#include <cstdint>
#include <string>

#include "proxy_header.h"
#include "twinloft/base/check.h"

using namespace twinloft;
using namespace twinloft::lmtpd;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  auto whole = decode_proxy_header(as_bytes(input));
  if (whole && *whole) {
    TL_CHECK((*whole)->bytes >= 16 && (*whole)->bytes <= size && (*whole)->bytes <= proxy_header_bytes_max);
    auto exact = decode_proxy_header(as_bytes(input.substr(0, (*whole)->bytes)));
    TL_CHECK(exact && *exact && (*exact)->bytes == (*whole)->bytes);
  }
  bool refused = false;
  for (std::size_t n = 0; n <= size && n < 64; ++n) {
    auto part = decode_proxy_header(as_bytes(input.substr(0, n)));
    TL_CHECK(!refused || !part);  // a refusal is final
    refused = !part;
    if (part && *part) break;
  }
  return 0;
}
