#include "support.h"

namespace twinloft::argv::test {
namespace {

TEST(ArgvParse, SplitsAtBlanks) {
  EXPECT_EQ(expand("/bin/a -x \t b"), (Arguments{"/bin/a", "-x", "b"}));
  EXPECT_EQ(expand("  /bin/a  "), (Arguments{"/bin/a"}));
  EXPECT_EQ(expand("/bin/a\n  -x\r\n  b\n"), (Arguments{"/bin/a", "-x", "b"}));
}

TEST(ArgvParse, SingleQuotesKeepEverything) {
  EXPECT_EQ(expand(R"(p 'a b' '' 'x\y' '%to%' '%%' '"' '[')"),
            (Arguments{"p", "a b", "", R"(x\y)", "%to%", "%%", "\"", "["}));
}

TEST(ArgvParse, DoubleQuotesEscapeOnlyWhatAShellWould) {
  EXPECT_EQ(expand(R"(p "a b" "" "\$\`\"\\" "\a\n\'" "'")"),
            (Arguments{"p", "a b", "", R"($`"\)", R"(\a\n\')", "'"}));
  EXPECT_EQ(expand("p \"a\\\nb\""), (Arguments{"p", "ab"}));
  EXPECT_EQ(expand("p \"a\\\r\nb\""), (Arguments{"p", "ab"}));
  EXPECT_EQ(expand("p \"a\nb\""), (Arguments{"p", "a\nb"}));
}

TEST(ArgvParse, BackslashQuotesOneByte) {
  EXPECT_EQ(expand(R"(p a\ b \" \' \\ \% \[ \$)"), (Arguments{"p", "a b", "\"", "'", "\\", "%", "[", "$"}));
  EXPECT_EQ(expand("p a\\\nb \\\n c \\\r\nd"), (Arguments{"p", "ab", "c", "d"}));
}

TEST(ArgvParse, QuotesJoinIntoOneWord) {
  EXPECT_EQ(expand(R"(p a'b c'"d e"\ f)"), (Arguments{"p", "ab cd e f"}));
  EXPECT_EQ(expand(R"(p -f''x)"), (Arguments{"p", "-fx"}));
}

TEST(ArgvParse, PercentSigns) {
  EXPECT_EQ(expand(R"(p 100%% "%%" %%to%% %%%%)"), (Arguments{"p", "100%", "%", "%to%", "%%"}));
  EXPECT_EQ(expand("p %%%to%%%", {{"to", "x"}}), (Arguments{"p", "%x%"}));
}

TEST(ArgvParse, MacrosAreKnownByWord) {
  const Template t = parse("p -f %from% x%to%y%to% \"%detail:lower:-IN BOX%\"");
  ASSERT_EQ(t.words().size(), 5U);
  EXPECT_EQ(t.macros(), (std::vector<std::string>{"from", "to", "detail"}));
  EXPECT_TRUE(t.uses("to"));
  EXPECT_FALSE(t.uses("uid"));
  ASSERT_EQ(t.words()[3].parts.size(), 4U);
  EXPECT_TRUE(t.words()[3].per_recipient());
  EXPECT_FALSE(t.words()[2].per_recipient());
  const Part& detail = t.words()[4].parts.at(0);
  EXPECT_EQ(detail.fold, Fold::lower);
  EXPECT_TRUE(detail.has_default);
  EXPECT_EQ(detail.text, "IN BOX");
}

TEST(ArgvParse, EveryMailMacroIsKnown) {
  for (const MacroName& m : mail_macros()) EXPECT_TRUE(parse("p %" + m.name + "%").uses(m.name)) << m.name;
  EXPECT_EQ(mail_macros().size(), 17U);
}

TEST(ArgvParse, TheCallerMayNameOtherMacros) {
  ParseOptions options;
  options.macros = {{"file", false}, {"Page_2", true}};
  const auto t = Template::parse("p %file% %Page_2%", options);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->macros(), (std::vector<std::string>{"file", "Page_2"}));
  EXPECT_EQ(parse_error("p %to%", options).column, 3U);
  EXPECT_NE(parse_error("p %to%", options).message.find("known are file Page_2"), std::string::npos);
}

struct BadTemplate {
  const char* text;
  std::size_t column;
  const char* says;
};

class ArgvParseError : public testing::TestWithParam<BadTemplate> {};

TEST_P(ArgvParseError, HasColumnAndCause) {
  const Diagnostic d = parse_error(GetParam().text);
  EXPECT_EQ(d.column, GetParam().column) << d.rendered();
  EXPECT_EQ(d.line, 1U);
  EXPECT_NE(d.message.find(GetParam().says), std::string::npos) << d.message;
}

INSTANTIATE_TEST_SUITE_P(
    Each, ArgvParseError,
    testing::Values(
        BadTemplate{"", 1, "is empty"}, BadTemplate{"   ", 1, "is empty"},
        BadTemplate{"'' a", 1, "program's name is empty"},
        BadTemplate{"p 'abc", 3, "single quote is not closed"},
        BadTemplate{"p a'b' 'c", 8, "single quote is not closed"},
        BadTemplate{"p \"abc", 3, "double quote is not closed"},
        BadTemplate{"p x\"ab\\", 4, "double quote is not closed"},
        BadTemplate{"p \"ab\\\"", 3, "double quote is not closed"},
        BadTemplate{"p abc\\", 6, "nothing follows"}, BadTemplate{"p %", 3, "a lone '%'"},
        BadTemplate{"p 100% x", 6, "a lone '%'"}, BadTemplate{"p %1%", 3, "a lone '%'"},
        BadTemplate{"p -d %u", 6, "Dovecot's %u is %user% here"},
        BadTemplate{"p %d/%n", 3, "Dovecot's %d is %domain% here"},
        BadTemplate{"p a %to", 5, "not closed: write %to%"},
        BadTemplate{"p %to to%", 3, "not closed: write %to%"},
        BadTemplate{"p \"%to\" to%", 4, "not closed: write %to%"},
        BadTemplate{"p -d %rcpt%", 6, "unknown macro %rcpt%"}, BadTemplate{"p %TO%", 3, "unknown macro %TO%"},
        BadTemplate{"p %to:uppr%", 7, "unknown modifier"}, BadTemplate{"p %to:%", 7, "unknown modifier"},
        BadTemplate{"p %to:lower", 3, "missing after the modifier"},
        BadTemplate{"p %to:lower:upper%", 13, "only a default"},
        BadTemplate{"p %to:-abc", 3, "missing after the default"},
        BadTemplate{"p %to:-a b%", 9, "a blank or a quote"},
        BadTemplate{"p %to:-'a'%", 8, "a blank or a quote"},
        BadTemplate{"p \"%to:-a\" b%", 4, "missing after the default"},
        BadTemplate{"p %to:-a\\", 9, "nothing follows"}, BadTemplate{"p [ -a %to%", 3, "not closed"},
        BadTemplate{"p -a %to% ]", 11, "']' without '['"}, BadTemplate{"p [ a [ b ] ]", 7, "do not nest"},
        BadTemplate{"p [ ]", 3, "is empty"}, BadTemplate{"[ p ] a", 1, "program cannot be optional"},
        BadTemplate{"p %detail:--x%", 3, "starts with '-'"},
        BadTemplate{"p \"%detail:lower:--x%\"", 4, "starts with '-'"}));

TEST(ArgvParse, ColumnsAreCharactersAndTheCaretPointsAtThem) {
  const Diagnostic d = parse_error("p \"\xC3\xBC\xE2\x82\xAC\" %x%");
  EXPECT_EQ(d.offset, 10U);
  EXPECT_EQ(d.column, 8U);
  EXPECT_EQ(d.rendered(), "column 8: " + d.message + "\n  p \"\xC3\xBC\xE2\x82\xAC\" %x%\n         ^\n");
  EXPECT_EQ(parse_error("p \xFF\xFE %x%").column, 6U) << "a stray byte counts as one character";
  EXPECT_EQ(parse_error("p \xFF\xFE %x%").excerpt, "p ?? %x%");
}

TEST(ArgvParse, PlacesInLaterLinesSaySo) {
  const Diagnostic d = parse_error("p \\\n  -d %to%\r\n\t-x %nope% y\r\nlast");
  EXPECT_EQ(d.line, 3U);
  EXPECT_EQ(d.column, 5U);
  EXPECT_EQ(d.summary(), "line 3, column 5: " + d.message);
  EXPECT_EQ(d.excerpt, " -x %nope% y");
  EXPECT_EQ(d.caret, 4U);
}

TEST(ArgvParse, LongLinesAreCutAroundThePlace) {
  const std::string text = "p " + std::string(500, 'a') + " %x% " + std::string(500, 'b');
  const Diagnostic d = parse_error(text);
  EXPECT_EQ(d.column, 504U);
  EXPECT_LT(d.excerpt.size(), 120U);
  EXPECT_EQ(d.excerpt.substr(d.caret, 3), "%x%");
  EXPECT_TRUE(d.excerpt.starts_with("..."));
  EXPECT_TRUE(d.excerpt.ends_with("..."));
}

TEST(ArgvParse, ControlBytesNeverReachTheTerminal) {
  const Diagnostic d = parse_error("p \x1b[2J\x7f\xc2\x9b %x%");
  EXPECT_EQ(d.excerpt, "p ?[2J?? %x%");
}

TEST(ArgvParse, NulIsRefused) {
  const Diagnostic d = parse_error(std::string_view("p a\0b", 5));
  EXPECT_EQ(d.column, 4U);
  EXPECT_NE(d.message.find("NUL"), std::string::npos);
}

TEST(ArgvParse, Limits) {
  ParseOptions options;
  options.template_bytes_max = 10;
  EXPECT_TRUE(Template::parse("p 34567890", options));
  EXPECT_NE(parse_error("p 345678901", options).message.find("longer than 10 bytes"), std::string::npos);
  options = {};
  options.template_words_max = 3;
  EXPECT_TRUE(Template::parse("p a b", options));
  EXPECT_EQ(parse_error("p a b cc", options).column, 7U);
}

TEST(ArgvParse, BracketsAreGroupsOnlyAsUnquotedWords) {
  EXPECT_EQ(expand(R"(p "[" x ']' \[ ""] [a-z] a] [])"),
            (Arguments{"p", "[", "x", "]", "[", "]", "[a-z]", "a]", "[]"}));
  EXPECT_EQ(expand("p [ -d %to% ] b", {{"to", "x"}}), (Arguments{"p", "-d", "x", "b"}));
  EXPECT_EQ(expand("p [\\\n -d %to% ]", {{"to", "x"}}), (Arguments{"p", "-d", "x"}));
}

std::vector<std::size_t> warning_columns(std::string_view text) {
  std::vector<std::size_t> out;
  const Template t = parse(text);
  for (const Diagnostic& d : t.warnings()) out.push_back(d.column);
  return out;
}

std::size_t warnings(std::string_view text) {
  return warning_columns(text).size();
}

TEST(ArgvWarnings, ShellSyntaxIsLiteralAndWarnedOf) {
  for (const char c : std::string_view("|><;&$*?`()")) {
    const std::string text = std::string("p a") + c + "b";
    EXPECT_EQ(expand(text), (Arguments{"p", std::string("a") + c + "b"}));
    EXPECT_EQ(warning_columns(text), (std::vector<std::size_t>{4})) << c;
    EXPECT_EQ(warnings(std::string("p 'a") + c + "b'"), 0U) << c;
    EXPECT_EQ(warnings(std::string("p a\\") + c + "b"), 0U) << c;
  }
  EXPECT_EQ(expand("p a | b >> c && d"), (Arguments{"p", "a", "|", "b", ">>", "c", "&&", "d"}));
  EXPECT_EQ(warning_columns("p a | b >> c && d"), (std::vector<std::size_t>{5, 9, 14}));
  EXPECT_EQ(warning_columns("p \"$USER `id` |\""), (std::vector<std::size_t>{4, 10, 13}));
  EXPECT_EQ(warnings(R"(p "\$USER \`id\`")"), 0U);
}

TEST(ArgvWarnings, OtherTraces) {
  EXPECT_EQ(warning_columns("p ~/bin a~b"), (std::vector<std::size_t>{3}));
  EXPECT_EQ(warning_columns("p a # b#c"), (std::vector<std::size_t>{5}));
  EXPECT_EQ(warning_columns("PATH=/bin p"), (std::vector<std::size_t>{1}));
  EXPECT_EQ(warnings("/opt/a=b/p"), 0U);
  EXPECT_EQ(warning_columns("%home%/bin/p a"), (std::vector<std::size_t>{1}));
  EXPECT_EQ(warning_columns("p 'a %to% b'"), (std::vector<std::size_t>{6}));
  EXPECT_EQ(warning_columns("p '%to:lower%'"), (std::vector<std::size_t>{4}));
  EXPECT_EQ(warnings("p '100% %other% %to'"), 0U);
  EXPECT_EQ(warning_columns("p \"\\%to%\""), (std::vector<std::size_t>{4}));
  EXPECT_EQ(warning_columns("p [-a %to%]"), (std::vector<std::size_t>{3, 7}));
  EXPECT_EQ(warnings("p [a-z] '[-a'"), 0U);
  EXPECT_EQ(warning_columns("p [ -f x ]"), (std::vector<std::size_t>{3}));
  EXPECT_EQ(warning_columns("p [ -f %to:-x% ]"), (std::vector<std::size_t>{3}));
  EXPECT_EQ(warnings("p [ -f %to:-x% %from% ]"), 0U);
}

TEST(ArgvWarnings, AreBounded) {
  std::string text = "p";
  for (int i = 0; i < 500; ++i) text += " |";
  EXPECT_EQ(warnings(text), 32U);
}

TEST(ArgvWarnings, TheUsualTemplateHasNone) {
  EXPECT_EQ(warnings("/usr/lib/dovecot/dovecot-lda -e -f %from% [ -a %original_to% ] -d %user%"), 0U);
}

}  // namespace
}  // namespace twinloft::argv::test
