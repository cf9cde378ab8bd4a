// Golden bytes: later releases must be able to read today's logs. With TWINLOFT_GOLDEN_WRITE=1 in the
// environment, the files are written instead of compared.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "twinloft/base/bytes.h"
#include "twinloft/base/hash.h"

namespace twinloft::intake_log {

// Lines of 32 bytes. Zero bytes at the end are omitted.
inline std::string rendered(ByteSpan bytes) {
  std::size_t used = bytes.size();
  while (used > 0 && bytes[used - 1] == std::byte{0}) --used;
  std::string out = "size " + std::to_string(bytes.size()) + "\n";
  for (std::size_t at = 0; at < used; at += 32)
    out += to_hex(bytes.subspan(at, std::min<std::size_t>(32, used - at))) + "\n";
  return out;
}

inline void expect_golden(const std::string& name, ByteSpan bytes) {
  const std::string path = std::string(TWINLOFT_GOLDEN_DIR) + "/" + name + ".hex";
  if (std::getenv("TWINLOFT_GOLDEN_WRITE")) {
    std::ofstream(path) << rendered(bytes);
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(rendered(bytes), text.str()) << name << ": the format has changed";
}

}  // namespace twinloft::intake_log
