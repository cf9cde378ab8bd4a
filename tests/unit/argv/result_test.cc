#include "twinloft/argv/result.h"

#include "support.h"

namespace twinloft::argv::test {
namespace {

TEST(ArgvResult, ErrorsNameTheSettingAndKeepTheCaret) {
  const auto bad = parse_template("agent.x.command", "p %rcpt%");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Errc::invalid);
  EXPECT_TRUE(bad.error().message.starts_with("agent.x.command: column 3: unknown macro"))
      << bad.error().message;
  EXPECT_NE(bad.error().message.find("\n  p %rcpt%\n    ^"), std::string::npos) << bad.error().message;
  EXPECT_TRUE(parse_template("x", "p"));
}

TEST(ArgvResult, CodesTellWhoseFaultItIs) {
  const Template t = parse("p %to%");
  EXPECT_EQ(to_result(t.expand({})).error().code, Errc::internal);
  EXPECT_EQ(to_result(t.expand({{"to", "-x"}})).error().code, Errc::invalid);
  EXPECT_EQ(to_result(t.expand({{"to", "a\n"}})).error().code, Errc::invalid);
  EXPECT_EQ(to_result(t.expand({{"to", std::string(200000, 'a')}})).error().code, Errc::exhausted);
  EXPECT_EQ(*to_result(t.expand({{"to", "x"}})), (Arguments{"p", "x"}));
}

}  // namespace
}  // namespace twinloft::argv::test
