#include "twinloft/lmtpd/proto/path.h"

#include <gtest/gtest.h>

#include <string>

namespace twinloft::lmtpd {
namespace {

struct Good {
  std::string_view in, text, local_part, domain;
};

class Paths : public testing::TestWithParam<Good> {};

TEST_P(Paths, AreParsed) {
  std::string in = std::string(GetParam().in) + " SIZE=1";
  std::string_view rest = in;
  auto path = take_path(rest, PathOf::recipient);
  ASSERT_TRUE(path) << path.error().message;
  EXPECT_EQ(path->text, GetParam().text);
  EXPECT_EQ(path->local_part, GetParam().local_part);
  EXPECT_EQ(path->domain, GetParam().domain);
  EXPECT_EQ(rest, " SIZE=1") << "the rest is left";
}

INSTANTIATE_TEST_SUITE_P(
    All, Paths,
    testing::Values(
        Good{"<ann@example.org>", "ann@example.org", "ann", "example.org"},
        Good{"<Ann@EXAMPLE.Org>", "Ann@EXAMPLE.Org", "Ann", "example.org"},
        Good{"<ann+lists@example.org>", "ann+lists@example.org", "ann+lists", "example.org"},
        Good{"<a.b.c@a-b.example.org>", "a.b.c@a-b.example.org", "a.b.c", "a-b.example.org"},
        Good{"<!#$%&'*+-/=?^_`{|}~@d>", "!#$%&'*+-/=?^_`{|}~@d", "!#$%&'*+-/=?^_`{|}~", "d"},
        Good{"<-oX@d>", "-oX@d", "-oX", "d"}, Good{"<postmaster>", "postmaster", "postmaster", ""},
        Good{"<>", "", "", ""}, Good{"<\"a b\"@d>", "\"a b\"@d", "a b", "d"},
        Good{"<\"a\\\"b\\\\\"@d>", "\"a\\\"b\\\\\"@d", "a\"b\\", "d"},
        Good{"<\"a@b>c\"@d>", "\"a@b>c\"@d", "a@b>c", "d"}, Good{"<\";id;\"@d>", "\";id;\"@d", ";id;", "d"},
        Good{"<${run{x}}@d>", "${run{x}}@d", "${run{x}}", "d"},
        Good{"<@a.example,@b.example:ann@d>", "ann@d", "ann", "d"},
        Good{"<ann@[192.0.2.1]>", "ann@[192.0.2.1]", "ann", "[192.0.2.1]"},
        Good{"<ann@[IPv6:2001:db8::1]>", "ann@[IPv6:2001:db8::1]", "ann", "[ipv6:2001:db8::1]"},
        Good{"<ann@[ipv6:2001:DB8:0:0::1]>", "ann@[ipv6:2001:DB8:0:0::1]", "ann", "[ipv6:2001:db8::1]"},
        Good{"<ann@[Tag:Anything]>", "ann@[Tag:Anything]", "ann", "[tag:anything]"},
        // The final dot of a fully qualified domain is not part of the domain.
        Good{"<ann@Example.ORG.>", "ann@Example.ORG", "ann", "example.org"},
        Good{"<ann@b\xc3\xbc"
             "cher.example.>",
             "ann@b\xc3\xbc"
             "cher.example",
             "ann", "xn--bcher-kva.example"},
        Good{"<a..b.@d>", "a..b.@d", "a..b.", "d"}, Good{"<\xc3\xa4@d>", "\xc3\xa4@d", "\xc3\xa4", "d"},
        Good{"<\"\xc3\xa4 \xe2\x82\xac\"@d>", "\"\xc3\xa4 \xe2\x82\xac\"@d", "\xc3\xa4 \xe2\x82\xac", "d"},
        Good{"<a@B\xc3\x9c"
             "CHER.example>",
             "a@B\xc3\x9c"
             "CHER.example",
             "a", "xn--bcher-kva.example"},
        Good{"<a@b\xc3\xbc"
             "cher.example>",
             "a@b\xc3\xbc"
             "cher.example",
             "a", "xn--bcher-kva.example"},
        Good{"<a@xn--bcher-kva.EXAMPLE>", "a@xn--bcher-kva.EXAMPLE", "a", "xn--bcher-kva.example"},
        // A decomposed character and the ideographic full stop give the same domain as the usual characters.
        Good{"<a@bu\xcc\x88"
             "cher\xe3\x80\x82"
             "example>",
             "a@bu\xcc\x88"
             "cher\xe3\x80\x82"
             "example",
             "a", "xn--bcher-kva.example"},
        // A domain that IDNA does not allow is looked up unchanged.
        Good{"<a@\xf0\x9f\x93\xa7.Example>", "a@\xf0\x9f\x93\xa7.Example", "a", "\xf0\x9f\x93\xa7.example"},
        Good{"<a@\xe2\x80\x8b.example>", "a@\xe2\x80\x8b.example", "a", "\xe2\x80\x8b.example"},
        Good{"<a@b\xef\xbc\xa0"
             "c>",
             "a@b\xef\xbc\xa0"
             "c",
             "a",
             "b\xef\xbc\xa0"
             "c"},
        Good{"<a@\xef\xbc\x8f.example>", "a@\xef\xbc\x8f.example", "a", "\xef\xbc\x8f.example"}));

// A sender is kept as it was sent.
TEST(SenderPath, IsKeptAsItWasSent) {
  for (std::string text : {"j\xc3\xb6rg@b\xc3\xbc"
                           "cher.example",
                           "j\xf6rg@example.net", "\"j\xf6rg x\"@example.net",
                           "a@b\xfc"
                           "cher.example",
                           "\xff", "a@\xe2\x80\x8b.example", "a@.d", "a@d.", "a@a..b", "a@\x80", "\xc2\x9b@d",
                           // Postfix accepts a control byte and an empty local part, and passes both on in
                           // quotes.
                           "\"a\tb\"@d", "\"a\x01> b\x7f\"@d", "\"\"@example.net", "\"\"",
                           // These come through the sendmail command, or from other MTAs.
                           "a@", "\"\"@", "a@[1.2.3]", "a@[300.1.2.3]", "a@[IPv6:x]", "a@[", "a@exa!mple",
                           "a,b@d", "a:b@d", "a;b@d", "a(b)@d", "a\\b@d", "a.\"b\"@d", "#@[]",
                           "a@-d-.example", "a@under_score.example", "a@xn--\xff"}) {
    std::string bracketed = "<" + text + "> x";
    std::string_view rest = bracketed;
    auto path = take_path(rest, PathOf::sender);
    ASSERT_TRUE(path) << text;
    EXPECT_EQ(path->text, text);
    EXPECT_EQ(rest, " x");
  }
  std::string_view rest = "<a@d>";
  EXPECT_TRUE(take_path(rest, PathOf::sender)->is_ascii);
  std::string longer = "<" + std::string(1500, 'a') + "@d>";
  rest = longer;
  EXPECT_TRUE(take_path(rest, PathOf::sender)) << "VERP and SRS make long local parts";
}

TEST(SenderPath, ARouteIsDroppedHoweverItIsWritten) {
  std::string_view rest =
      "<@a.example,@b\xfc\xc3\xbc"
      "cher.example,@[x]:ann@d> SIZE=1";
  EXPECT_EQ(take_path(rest, PathOf::sender).value().text, "ann@d");
  EXPECT_EQ(rest, " SIZE=1");
}

TEST(SenderPath, WhatIsNoPathIsRefused) {
  for (std::string_view text : {"", "a@d", "<a@d", "<a b@d>", "<a@d >", "<@d>", "<a@b@c>", "<\"a@d>",
                                "<a\x07@d>", "<<a@d>>", "<a@d\t>"}) {
    std::string_view rest = text;
    EXPECT_FALSE(take_path(rest, PathOf::sender)) << text;
  }
}

class BadPaths : public testing::TestWithParam<std::string_view> {};

TEST_P(BadPaths, AreRefusedAndNothingIsTaken) {
  std::string_view rest = GetParam();
  EXPECT_FALSE(take_path(rest, PathOf::recipient)) << GetParam();
  EXPECT_EQ(rest, GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, BadPaths,
    testing::Values("", "ann@d", "<", "<ann", "<ann@", "<ann@d", "<@d>", "<ann@>", "<ann@@d>", "<ann@d@e>",
                    "<ann@d >", "< ann@d>", "<ann @d>", "<an(n)@d>", "<;id;@d>", "<a,b@d>", "<a\\b@d>",
                    "<\"ann@d>", "<\"ann\\", "<\"\"@d>", "<\"\"+x@d>", "<\"a\"b@d>", "<ann@.d>", "<ann@d..>",
                    "<ann@.>", "<ann@d.x.x..>", "<ann@[192.0.2.1].>", "<ann@a..b>", "<ann@d;e>",
                    "<@a.example ann@d>", "<@a.example:>", "<@(x):ann@d>", "<ann@[192.0.2.1>", "<ann@[1 2]>",
                    "<ann@[]>", "<ann@[192.0.2]>", "<ann@[IPv6:]>", "<ann@[IPv6:x]>", "<ann@[ipv6:1.2.3.4]>",
                    "<ann@[:x]>", "<ann@[x]>", "<ann@[a b:c]>", "<ann@[a:b[c]>", "<ann@[a:\r\nb]>",
                    std::string_view("<a\0b@d>", 7), std::string_view("<\"a\0b\"@d>", 9), "<a\tb@d>",
                    "<\"a\tb\"@d>", "<\xc3@d>", "<\xc3\xa4\xa4@d>", "<\xc0\xaf@d>", "<\xed\xa0\x80@d>",
                    "<\xc2\x85@d>", "<\"\xc3\"@d>", "<\"\\\xc3\"@d>", "<\"\xc2\x9b\"@d>", "<a@\xc3>",
                    "<a@\xc2\x80.example>", "<<ann@d>>", "<ann@d"));

TEST(Path, TheNullPathIsKnown) {
  std::string_view rest = "<>";
  EXPECT_TRUE(take_path(rest, PathOf::recipient)->is_null());
  rest = "<ann@d>";
  EXPECT_FALSE(take_path(rest, PathOf::recipient)->is_null());
}

TEST(Path, Limits) {
  auto fits = [](const std::string& in) {
    std::string_view rest = in;
    return take_path(rest, PathOf::recipient).has_value();
  };
  std::string label(50, 'd');
  std::string domain = label + "." + label + "." + label + "." + label + "." + std::string(51, 'd');
  ASSERT_EQ(domain.size(), domain_bytes_max);
  EXPECT_TRUE(fits("<a@" + domain + ">"));
  EXPECT_FALSE(fits("<a@" + domain + "d>"));
  EXPECT_TRUE(fits("<" + std::string(path_bytes_max - 2, 'a') + "@d>"));
  EXPECT_FALSE(fits("<" + std::string(path_bytes_max - 1, 'a') + "@d>"));
}

TEST(ParseAddress, IsTheWholeText) {
  EXPECT_EQ(parse_address("\"a b\"@EX\xc3\xa4mple.org")->domain, "xn--exmple-cua.org");
  EXPECT_EQ(parse_address("\"a b\"@d")->local_part, "a b");
  EXPECT_EQ(parse_address("root")->domain, "");
  for (const char* bad : {"", "a@d b@d", "a@d, b@d", " a@d", "a@d ", "<a@d>", "a@d>", "a@d> <b@d", "@a:b@d",
                          "a@b@c", "a@", "@d", "A <a@d>"}) {
    auto path = parse_address(bad);
    ASSERT_FALSE(path) << bad;
    EXPECT_EQ(path.error().message.find("\"" + std::string(bad) + "\" is no"), 0u) << path.error().message;
  }
}

TEST(NormalDomain, IsOneForm) {
  for (auto [text, normal] : {std::pair{"Example.ORG.", "example.org"},
                              {"b\u00fccher.example", "xn--bcher-kva.example"},
                              {"B\u00dcCHER.Example.", "xn--bcher-kva.example"},
                              {"XN--BCHER-KVA.example", "xn--bcher-kva.example"},
                              {"localhost", "localhost"},
                              {"[192.0.2.1]", "[192.0.2.1]"},
                              {"[IPv6:2001:DB8::0:1]", "[ipv6:2001:db8::1]"}})
    EXPECT_EQ(normal_domain(text).value_or("error"), normal) << text;
  for (const char* bad : {"", ".", "a..b", ".a", "a b", "a@b", "example.org..", "\xff", "a/b"})
    EXPECT_FALSE(normal_domain(bad)) << bad;
  EXPECT_EQ(unicode_domain("xn--bcher-kva.example"), "b\u00fccher.example");
  EXPECT_EQ(unicode_domain("example.org"), "example.org");
  EXPECT_EQ(unicode_domain("xn--\xff"), "xn--\xff");
}

TEST(WithAsciiHost, NameServersHaveALabels) {
  for (auto [text, ascii] : {std::pair{"b\u00fccher.example:2400", "xn--bcher-kva.example:2400"},
                             {"B\u00fccher.Example.", "xn--bcher-kva.example"},
                             {"Db1.example.org:1", "Db1.example.org:1"},
                             {"[::1]:24", "[::1]:24"},
                             {"unix:/run/b\u00fccher", "unix:/run/b\u00fccher"},
                             {"", ""},
                             {"\xff:1", "\xff:1"}})
    EXPECT_EQ(with_ascii_host(text), ascii) << text;
}

TEST(WithAsciiDomain, OnlyTheDomainHasSuchAForm) {
  EXPECT_EQ(with_ascii_domain("Ann@b\u00fccher.example", "xn--bcher-kva.example"),
            "Ann@xn--bcher-kva.example");
  EXPECT_EQ(with_ascii_domain("\"a@b\"@b\u00fccher.example", "xn--bcher-kva.example"),
            "\"a@b\"@xn--bcher-kva.example");
  EXPECT_EQ(with_ascii_domain("\u00e4@b\u00fccher.example", "xn--bcher-kva.example"),
            "\u00e4@xn--bcher-kva.example");
  for (auto [address, domain] : {std::pair{"Ann@Example.org", "example.org"},
                                 {"\u00e4", ""},
                                 {"a@\U0001f4e7.example", "\U0001f4e7.example"}})
    EXPECT_EQ(with_ascii_domain(address, domain), address);
}

TEST(ParseAddress, TheDomainMayEndInADot) {
  EXPECT_EQ(parse_address("ann@Example.org.").value().domain, "example.org");
  EXPECT_FALSE(parse_address("ann@example.org.."));
  EXPECT_FALSE(parse_address("ann@."));
}

TEST(SplitDetail, AtTheFirstDelimiterThatIsNotTheFirstByte) {
  auto split = [](std::string_view local, std::string_view delimiter) {
    auto [user, detail] = split_detail(local, delimiter);
    return std::pair(std::string(user), std::string(detail));
  };
  using P = std::pair<std::string, std::string>;
  EXPECT_EQ(split("ann", "+"), P("ann", ""));
  EXPECT_EQ(split("ann+lists", "+"), P("ann", "lists"));
  EXPECT_EQ(split("ann+a+b", "+"), P("ann", "a+b"));
  EXPECT_EQ(split("ann+", "+"), P("ann", ""));
  EXPECT_EQ(split("+ann", "+"), P("+ann", ""));
  EXPECT_EQ(split("+ann+x", "+"), P("+ann", "x"));
  EXPECT_EQ(split("ann+lists", ""), P("ann+lists", ""));
  EXPECT_EQ(split("ann-lists", "-"), P("ann", "lists"));
  EXPECT_EQ(split("+", "+"), P("+", ""));
}

}  // namespace
}  // namespace twinloft::lmtpd
