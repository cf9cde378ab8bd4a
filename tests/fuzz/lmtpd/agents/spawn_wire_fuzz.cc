// The input is a request of the network process to the spawner, which is root. An accepted request is within
// its limits, and is encoded to the same bytes.
#include <cstdint>
#include <string>

#include "spawn_wire.h"
#include "twinloft/base/check.h"

using namespace twinloft;
using namespace twinloft::lmtpd;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  auto clean = [](const std::string& text, std::size_t limit) {
    return text.size() <= limit && text.find('\0') == std::string::npos;
  };
  if (auto request = decode_request(as_bytes(input))) {
    TL_CHECK(clean(request->id, 1024) && clean(request->user, 1024) && clean(request->home, 4096) &&
             request->home.starts_with('/'));
    TL_CHECK((request->home + "/").find("/../") == std::string::npos);
    TL_CHECK(request->values.size() <= 64);
    for (const auto& [name, value] : request->values) TL_CHECK(clean(name, 64) && clean(value, 16384));
    auto again = encode_request(*request);
    TL_CHECK(again && as_text(*again) == input);
  }
  if (auto result = decode_result(as_bytes(input))) TL_CHECK(result->end <= RunResult::End::lost);
  return 0;
}
