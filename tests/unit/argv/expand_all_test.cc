#include "support.h"

namespace twinloft::argv::test {
namespace {

using Code = ExpandError::Code;

const Values kShared = {{"from", "f"}, {"id", "7"}};
const std::vector<Values> kThree = {{{"to", "a"}, {"original_to", "oa"}, {"user", "ua"}},
                                    {{"to", "b"}, {"original_to", ""}, {"user", "ub"}},
                                    {{"to", "c"}, {"original_to", "oc"}, {"user", "uc"}}};

Arguments all(std::string_view text, const std::vector<Values>& recipients = kThree) {
  auto arguments = parse(text).expand_all(kShared, recipients);
  if (!arguments) throw std::runtime_error(arguments.error().message);
  return *std::move(arguments);
}

TEST(ArgvExpandAll, AWordWithARecipientMacroIsRepeated) {
  EXPECT_EQ(all("p -f %from% -- %to%"), (Arguments{"p", "-f", "f", "--", "a", "b", "c"}));
  EXPECT_EQ(all("p --to=%to% %id%"), (Arguments{"p", "--to=a", "--to=b", "--to=c", "7"}));
  EXPECT_EQ(all("p %user%:%to%:%from%"), (Arguments{"p", "ua:a:f", "ub:b:f", "uc:c:f"}));
  EXPECT_EQ(all("p %original_to%"), (Arguments{"p", "oa", "", "oc"})) << "an empty value is an argument too";
}

TEST(ArgvExpandAll, AGroupWithARecipientMacroIsRepeatedAsAWhole) {
  EXPECT_EQ(all("p [ -d %to% ]"), (Arguments{"p", "-d", "a", "-d", "b", "-d", "c"}));
  EXPECT_EQ(all("p [ -a %original_to% ] x"), (Arguments{"p", "-a", "oa", "-a", "oc", "x"}));
  EXPECT_EQ(all("p [ -i %id% ]"), (Arguments{"p", "-i", "7"}));
}

TEST(ArgvExpandAll, OneRecipientIsAsExpand) {
  const std::vector<Values> one = {kThree[0]};
  Values both = kShared;
  both.insert(one[0].begin(), one[0].end());
  for (const char* text : {"p -f %from% %to%", "p [ -a %original_to% ] %user:upper%", "%user% x"})
    EXPECT_EQ(all(text, one), expand(text, both)) << text;
}

TEST(ArgvExpandAll, RecipientValuesComeFirstAndOnlyForTheirMacros) {
  const Values shared = {{"from", "f"}, {"domain", "shared.example"}};
  const std::vector<Values> recipients = {{{"to", "a"}, {"from", "forged"}},
                                          {{"to", "b"}, {"domain", "own.example"}}};
  const auto arguments = parse("p %to%@%domain%/%from%").expand_all(shared, recipients);
  ASSERT_TRUE(arguments);
  EXPECT_EQ(*arguments, (Arguments{"p", "a@shared.example/f", "b@own.example/f"}));
}

TEST(ArgvExpandAll, Refusals) {
  const Template t = parse("p %to%");
  EXPECT_EQ(t.expand_all(kShared, {}).error().code, Code::recipients);
  EXPECT_EQ(parse("/bin/%user% %to%").expand_all(kShared, kThree).error().code, Code::recipients);
  EXPECT_EQ(t.expand_all(kShared, {kThree[0], {}}).error().code, Code::missing_value);
  EXPECT_EQ(t.expand_all(kShared, {kThree[0], {{"to", "-x"}}}).error().code, Code::leading_dash);
  EXPECT_EQ(t.expand_all(kShared, {kThree[0], {{"to", "x\ny"}}}).error().code, Code::forbidden_byte);
  ExpandOptions options;
  options.arguments_max = 3;
  EXPECT_EQ(t.expand_all(kShared, kThree, options).error().code, Code::limit);
}

}  // namespace
}  // namespace twinloft::argv::test
