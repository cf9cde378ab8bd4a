// Any program may have written the arbiter's value. The decoder refuses it, or the encoder returns the same
// bytes.
#include <cstdint>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/arbiter/value.h"

using namespace twinloft;
using namespace twinloft::repl;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Uuid volume = Uuid::parse("0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff").value();
  std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto value = arbiter::decode_value(volume, text)) {
    TL_CHECK(arbiter::encode_value(volume, *value) == text);
    TL_CHECK(value->in_sync & set_of(value->writer));
  }
  return 0;
}
