#include "support.h"

namespace twinloft::argv::test {
namespace {

using Code = ExpandError::Code;

TEST(ArgvExpand, TheExampleOfTheManual) {
  EXPECT_EQ(expand("/usr/lib/dovecot/dovecot-lda -e -f %from% -d %to%",
                   {{"from", "a@b.example"}, {"to", "c@d.example"}}),
            (Arguments{"/usr/lib/dovecot/dovecot-lda", "-e", "-f", "a@b.example", "-d", "c@d.example"}));
}

TEST(ArgvExpand, OneWordIsOneArgumentWhateverItHolds) {
  const std::string value = "a b\t'c\" \\ $(id) `id` ;|<>* ? [ ] # ~ %to% %% \xff\x80";
  EXPECT_EQ(expand("p -d %to% \"x %to%\" end", {{"to", value}}),
            (Arguments{"p", "-d", value, "x " + value, "end"}));
}

TEST(ArgvExpand, EmptyValuesStayArguments) {
  EXPECT_EQ(expand("p -f %from% -d %to% \"\"", {{"from", ""}, {"to", "x"}}),
            (Arguments{"p", "-f", "", "-d", "x", ""}));
}

TEST(ArgvExpand, ValuesAreNeverExpandedAgain) {
  EXPECT_EQ(expand("p -d %to% %from%", {{"to", "%from%"}, {"from", "%to%%%${run{x}}"}}),
            (Arguments{"p", "-d", "%from%", "%to%%%${run{x}}"}));
  EXPECT_EQ(expand("p x%to%from%%", {{"to", "%"}}), (Arguments{"p", "x%from%"}));
}

TEST(ArgvExpand, FoldsAsciiOnly) {
  EXPECT_EQ(expand("p %to:lower% %to:upper% %to%", {{"to", "aBz[{@\xC3\x84\xE4"}}),
            (Arguments{"p", "abz[{@\xC3\x84\xE4", "ABZ[{@\xC3\x84\xE4", "aBz[{@\xC3\x84\xE4"}));
}

TEST(ArgvExpand, DefaultsStandInForEmptyValues) {
  EXPECT_EQ(expand("p %detail:-INBOX%", {{"detail", ""}}), (Arguments{"p", "INBOX"}));
  EXPECT_EQ(expand("p %detail:-INBOX%", {{"detail", "Work"}}), (Arguments{"p", "Work"}));
  EXPECT_EQ(expand("p %detail:-%", {{"detail", ""}}), (Arguments{"p", ""}));
  EXPECT_EQ(expand("p %detail:lower:-INBOX%", {{"detail", ""}}), (Arguments{"p", "INBOX"}))
      << "a default is not converted to lower case";
  EXPECT_EQ(expand("p %detail:lower:-INBOX%", {{"detail", "WORK"}}), (Arguments{"p", "work"}));
  EXPECT_EQ(expand(R"(p "%from:-<nobody at \"all\">%")", {{"from", ""}}),
            (Arguments{"p", "<nobody at \"all\">"}));
  EXPECT_EQ(expand(R"(p %from:-a\ b\%c%d)", {{"from", ""}}), (Arguments{"p", "a b%cd"}));
  EXPECT_EQ(expand("p %from:-a%%to:-b%", {{"from", ""}, {"to", ""}}), (Arguments{"p", "ab"}));
  EXPECT_EQ(expand("p %from:-a:-b%", {{"from", ""}}), (Arguments{"p", "a:-b"}));
}

TEST(ArgvExpand, GroupsGoWhereAMacroIsEmpty) {
  const char* text = "p [ -a %original_to% -x %detail:-D% ] -d %to%";
  EXPECT_EQ(expand(text, {{"original_to", "o"}, {"detail", ""}, {"to", "t"}}),
            (Arguments{"p", "-a", "o", "-x", "D", "-d", "t"}));
  EXPECT_EQ(expand(text, {{"original_to", ""}, {"detail", "x"}, {"to", "t"}}), (Arguments{"p", "-d", "t"}));
  EXPECT_EQ(expand("p [ a%to%b ] [ %from% ]", {{"to", ""}, {"from", "f"}}), (Arguments{"p", "f"}));
  EXPECT_EQ(expand("p [ %to%%from% ]", {{"to", "x"}, {"from", ""}}), (Arguments{"p"}))
      << "if any macro is empty, not only if the word is empty";
}

TEST(ArgvExpand, MissingValuesAreAnError) {
  const ExpandError e = expand_error("p a %to% %from%", {{"to", ""}});
  EXPECT_EQ(e.code, Code::missing_value);
  EXPECT_EQ(e.macro, "from");
  EXPECT_EQ(e.word, 4U);
  EXPECT_EQ(expand_error("p [ %to% %from% ]", {{"to", ""}}).code, Code::missing_value)
      << "also in an omitted group";
  EXPECT_EQ(expand_error("p %to:-x%", {}).code, Code::missing_value) << "also with a default";
}

TEST(ArgvExpand, LineEndsAndNulAreRefused) {
  for (const char bad : {'\0', '\r', '\n'}) {
    for (const std::string& value :
         {std::string(1, bad), "a" + std::string(1, bad), std::string(1, bad) + "a"}) {
      const ExpandError e = expand_error("p x%to%", {{"to", value}});
      EXPECT_EQ(e.code, Code::forbidden_byte);
      EXPECT_EQ(e.macro, "to");
      EXPECT_EQ(e.word, 2U);
      EXPECT_EQ(e.message.find(bad), std::string::npos) << "the message is one valid log line";
    }
  }
  EXPECT_EQ(expand("p %to%", {{"to", "t"}, {"from", "a\nb"}}), (Arguments{"p", "t"}))
      << "only used values count";
}

TEST(ArgvDashGuard, RefusesWhatWouldBecomeAnOption) {
  for (const char* text :
       {"p %to%", "p \"%to%\"", "p ''%to%", "p -d %to%", "p %to%x", "p %to:lower%", "p [ %to% ]"}) {
    const ExpandError e = expand_error(text, {{"to", "-oX@example.org"}});
    EXPECT_EQ(e.code, Code::leading_dash) << text;
    EXPECT_EQ(e.macro, "to");
    EXPECT_EQ(e.message.find("-oX"), std::string::npos);
  }
  EXPECT_EQ(expand_error("p %to%", {{"to", "-"}}).code, Code::leading_dash);
  EXPECT_EQ(expand_error("p %to%", {{"to", "--"}}).code, Code::leading_dash);
}

TEST(ArgvDashGuard, LooksAtTheFinishedArgument) {
  EXPECT_EQ(expand_error("p %user%%detail%", {{"user", ""}, {"detail", "-x"}}).code, Code::leading_dash);
  EXPECT_EQ(expand_error("p %detail%-x", {{"detail", ""}}).code, Code::leading_dash);
  EXPECT_EQ(expand_error("p %user%%detail:--x%", {{"user", ""}, {"detail", ""}}).code, Code::leading_dash);
  EXPECT_EQ(expand("p %user%%detail%", {{"user", "u"}, {"detail", "-x"}}), (Arguments{"p", "u-x"}));
}

TEST(ArgvDashGuard, LetsThroughWhatTheTemplateMadeSafe) {
  EXPECT_EQ(expand("p -f%from% --to=%to%", {{"from", "-a"}, {"to", "--b"}}),
            (Arguments{"p", "-f-a", "--to=--b"}));
  EXPECT_EQ(expand("p -x -- %to%", {{"to", "-b"}}), (Arguments{"p", "-x", "--", "-b"}));
  EXPECT_EQ(expand("p '--' %to%", {{"to", "-b"}}), (Arguments{"p", "--", "-b"}));
  EXPECT_EQ(expand("p -- %detail:--x%", {{"detail", ""}}), (Arguments{"p", "--", "-x"}));
  EXPECT_EQ(expand("p %to%", {{"to", "\xE2\x80\x93x"}}), (Arguments{"p", "\xE2\x80\x93x"}))
      << "an en dash does not count as a dash";
}

TEST(ArgvDashGuard, OnlyALiteralTwoDashesThatIsThereCounts) {
  EXPECT_EQ(expand_error("p %to% --", {{"to", "-b"}}).code, Code::leading_dash);
  EXPECT_EQ(expand_error("p %from:lower% %to%", {{"from", "a"}, {"to", "-b"}}).code, Code::leading_dash);
  EXPECT_EQ(expand_error("p -%from% %to%", {{"from", "-"}, {"to", "-b"}}).code, Code::leading_dash);
  EXPECT_EQ(expand_error("p [ %from% -- ] %to%", {{"from", ""}, {"to", "-b"}}).code, Code::leading_dash)
      << "the group with the -- was omitted";
  EXPECT_EQ(expand("p [ %from% -- ] %to%", {{"from", "f"}, {"to", "-b"}}), (Arguments{"p", "f", "--", "-b"}));
  EXPECT_EQ(expand("p [ -- %to% ]", {{"to", "-b"}}), (Arguments{"p", "--", "-b"}));
  EXPECT_EQ(expand_error("-- %to%", {{"to", "-b"}}).code, Code::leading_dash)
      << "a program named -- does not end the options";
}

TEST(ArgvDashGuard, AnArgumentOfAKnownOptionMayStartWithADash) {
  for (const char* program : {"/usr/lib/dovecot/dovecot-lda", "/usr/lib/dovecot/deliver"}) {
    const std::string p(program);
    for (const char* option : {"-f", "-a", "-d", "-r", "-m", "-ef", "-kO -d", "-p /x -d"}) {
      const auto arguments = expand(p + " " + option + " %to%", {{"to", "-x@example.org"}});
      ASSERT_FALSE(arguments.empty());
      EXPECT_EQ(arguments.back(), "-x@example.org") << option;
    }
    EXPECT_EQ(expand(p + " [ -a %original_to% ] -d %user%%detail%",
                     {{"original_to", "-o"}, {"user", ""}, {"detail", "-d"}}),
              (Arguments{p, "-a", "-o", "-d", "-d"}));
  }
}

TEST(ArgvDashGuard, OnlyWhereTheOptionTakesItForSure) {
  const Values values = {{"to", "-x"}, {"from", ""}, {"user", "u"}};
  for (const char* words : {"-e %to%", "-n %to%", "-z %to%", "-dx %to%", "'-d x' %to%", "-d %user% %to%",
                            "[ -d ] %to%", "-d [ %to% ]", "-f -d %to%", "-f%from% -d %to%",
                            "-e%from% -d %to%", "-f%from:-x% -d %to%", "%user% %to%"}) {
    const std::string text = std::string("/usr/lib/dovecot/dovecot-lda ") + words;
    EXPECT_EQ(expand_error(text, values).code, Code::leading_dash) << text;
  }
  for (const char* program : {"/usr/bin/procmail", "/opt/dovecot-lda2", "/dovecot-lda/agent"})
    EXPECT_EQ(expand_error(std::string(program) + " -d %to%", values).code, Code::leading_dash) << program;
  const Template all = parse("/usr/lib/dovecot/dovecot-lda -d %to%");
  EXPECT_EQ(all.expand_all({}, {{{"to", "a"}}, {{"to", "-x"}}}).error().code, Code::leading_dash)
      << "only the first follows -d";
  EXPECT_TRUE(all.expand_all({}, {{{"to", "-x"}}, {{"to", "a"}}}));
}

TEST(ArgvDashGuard, NamesTheMacroThatComesFirst) {
  EXPECT_EQ(expand_error("p %user%%detail%", {{"user", ""}, {"detail", "-x"}}).macro, "detail");
  EXPECT_EQ(expand_error("p %detail%-x", {{"detail", ""}}).macro, "detail");
}

TEST(ArgvLimits, ArgumentBytes) {
  ExpandOptions options;
  options.argument_bytes_max = 10;
  EXPECT_EQ(parse("p x%to%").expand({{"to", std::string(9, 'a')}}, options)->at(1).size(), 10U);
  EXPECT_EQ(expand_error("p x%to%", {{"to", std::string(10, 'a')}}, options).code, Code::limit);
  EXPECT_EQ(expand_error("p 12345678901", {}, options).code, Code::limit);
}

TEST(ArgvLimits, TotalBytesAndArguments) {
  ExpandOptions options;
  options.total_bytes_max = 2 + 4 + 4;
  EXPECT_TRUE(parse("p %to% %to%").expand({{"to", "abc"}}, options));
  EXPECT_EQ(expand_error("p %to% %to%", {{"to", "abcd"}}, options).code, Code::limit);
  EXPECT_EQ(expand_error("p %to% %to% ''", {{"to", "abc"}}, options).code, Code::limit);
  EXPECT_EQ(expand_error("p %to% %to% %from%", {{"to", "abc"}, {"from", ""}}, options).code, Code::limit);
  options = {};
  options.arguments_max = 2;
  EXPECT_TRUE(parse("p a").expand({}, options));
  EXPECT_EQ(expand_error("p a b", {}, options).word, 3U);
}

TEST(ArgvLimits, DefaultsAreWhatTheKernelTakes) {
  EXPECT_TRUE(parse("p %to%").expand({{"to", std::string(131071, 'a')}}));
  EXPECT_EQ(expand_error("p %to%", {{"to", std::string(131072, 'a')}}).code, Code::limit);
}

}  // namespace
}  // namespace twinloft::argv::test
