#include "twinloft/spool-repl/core/read_policy.h"

#include <gtest/gtest.h>

namespace twinloft::repl::core {

TEST(ReadPolicyTest, EachPolicyHasItsName) {
  for (const char* text : {"prefer-local", "prefer-remote", "round-robin", "least-pending",
                           "when-congested-remote", "striped:32KiB", "striped:1024KiB"}) {
    auto policy = parse_read_policy(text);
    ASSERT_TRUE(policy) << text;
    EXPECT_EQ(text_of(*policy), text);
  }
  EXPECT_EQ(text_of(parse_read_policy("striped").value()), "striped:64KiB");
  EXPECT_EQ(parse_read_policy("striped:1MiB").value().stripe_blocks, 256u);
  EXPECT_EQ(text_of({}), "prefer-local");
}

TEST(ReadPolicyTest, AnErrorSaysWhatIsExpected) {
  auto refusal = [](std::string_view text) { return parse_read_policy(text).error().message; };
  EXPECT_EQ(refusal("remote"),
            "\"remote\" is unknown: expected prefer-local, prefer-remote, round-robin, least-pending, "
            "when-congested-remote, striped, or \"striped:32KiB\" to \"striped:1MiB\"");
  for (std::string_view wrong : {"striped:16KiB", "striped:2MiB", "striped:96KiB", "striped:", "striped:big"})
    EXPECT_NE(refusal(wrong).find("expected a stripe of 32, 64, 128, 256 or 512 KiB, or of 1 MiB"),
              std::string::npos)
        << wrong;
}

}  // namespace twinloft::repl::core
