#include "twinloft/lmtpd/proto/header_meter.h"

#include <gtest/gtest.h>

#include <string_view>

namespace twinloft::lmtpd {
namespace {

struct Measured {
  std::uint64_t bytes;
  bool ended;
  bool operator==(const Measured&) const = default;
};

Measured measure(std::string_view text, std::size_t piece) {
  HeaderMeter meter;
  for (std::size_t at = 0; at < text.size(); at += piece) meter.feed(as_bytes(text.substr(at, piece)));
  return {meter.bytes(), meter.ended()};
}

TEST(HeaderMeter, UpToTheFirstEmptyLineInAnySplit) {
  struct Case {
    std::string_view text;
    Measured expected;
  };
  for (const Case& c : {Case{"", {0, false}}, Case{"\r\n", {0, true}}, Case{"\n", {0, true}},
                        Case{"A: b\r\n\r\nbody\r\n\r\n", {6, true}}, Case{"A: b\n\nbody", {5, true}},
                        Case{"A: b\r\n \r\n\r\n", {9, true}}, Case{"A: b", {4, false}},
                        Case{"A: b\r\n\rx\r\n\r\n", {10, true}}, Case{"\r\r\n\r\n", {3, true}},
                        Case{"A: b\r\n\r", {6, false}}})
    for (std::size_t piece : {1u, 2u, 3u, 100u})
      EXPECT_EQ(measure(c.text, piece), c.expected) << c.text << " in pieces of " << piece;
}

}  // namespace
}  // namespace twinloft::lmtpd
