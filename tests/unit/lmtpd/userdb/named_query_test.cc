// Named parameters of a query, and text that only looks like one.
#include "named_query.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

// Returns "SELECT ? | user".
std::string parsed(std::string_view text) {
  auto query = parse_named_query(text);
  if (!query) return "error: " + query.error().message;
  std::string out = query->text + " |";
  for (QueryParameter p : query->parameters) out += " " + value_of(p, {"ann", "d"});
  return out;
}

TEST(NamedQuery, ParametersBecomeMarks) {
  EXPECT_EQ(parsed("SELECT 1 WHERE a = :user"), "SELECT 1 WHERE a = ? | ann");
  EXPECT_EQ(parsed(":address:domain,:user"), "??,? | ann@d d ann");
  EXPECT_EQ(parsed("f(:user)=:user"), "f(?)=? | ann ann");
}

TEST(NamedQuery, WhatOnlyLooksLikeOneStays) {
  EXPECT_EQ(parsed("':user' \":user ?\" `:x?` = :user"), "':user' \":user ?\" `:x?` = ? | ann");
  EXPECT_EQ(parsed("'it''s :x' '\\' :x' \"a\"\"?\" :user"), "'it''s :x' '\\' :x' \"a\"\"?\" ? | ann");
  EXPECT_EQ(parsed("-- a :x ?\n# :y ?\n/* :z\n? */ :user -- :x"),
            "-- a :x ?\n# :y ?\n/* :z\n? */ ? -- :x | ann");
  EXPECT_EQ(parsed("@a := 1, b::text, 3--:user"), "@a := 1, b::text, 3--? | ann");
  EXPECT_EQ(parsed("':' = :user :"), "':' = ? : | ann");
  EXPECT_EQ(parsed("SELECT a * 2, (b) * 2, COUNT(*), '*', 1 /* * */ * 2, selects * 1, 10.*b WHERE EXISTS "
                   "(SELECT * FROM t) = :user"),
            "SELECT a * 2, (b) * 2, COUNT(*), '*', 1 /* * */ * 2, selects * 1, 10.*b WHERE EXISTS (SELECT * "
            "FROM t) = ? | ann");
}

TEST(NamedQuery, InMessagesItIsOneLine) {
  EXPECT_EQ(one_line("\n  SELECT a,\r\n\t b\n FROM  t\n"), "SELECT a, b FROM t");
  EXPECT_EQ(one_line(""), "");
}

TEST(NamedQuery, Errors) {
  for (auto [text, says] :
       {std::pair{"SELECT ?, :user", "byte 8: a \"?\""},
        {":name", "unknown parameter :name"},
        {":users", "unknown parameter :users"},
        {"SELECT 1", "none of :user"},
        {"", "none of :user"},
        {"':user'", "none of :user"},
        {":user 'x", "has no end"},
        {":user /* x", "has no end"},
        {":user 'x\\'", "has no end"},
        {"SELECT * FROM users WHERE user = :user", "byte 8: name the columns"},
        {"select distinct\n * FROM t WHERE a = :user", "name the columns"},
        {"SELECT a, * FROM t WHERE a = :user", "byte 11: name the columns"},
        {"SELECT t.* FROM t WHERE a = :user", "name the columns"},
        {"(SELECT * FROM t WHERE a = :user) UNION ALL (SELECT b FROM u)", "byte 9: name the columns"},
        {"(SELECT a FROM t WHERE a = :user) UNION ALL ((SELECT * FROM u))", "name the columns"},
        {"SELECT SQL_NO_CACHE * FROM t WHERE a = :user", "name the columns"},
        {"SELECT /* all */ * FROM t WHERE a = :user", "name the columns"},
        {"SELECT -- a\n * FROM t WHERE a = :user", "name the columns"},
        {"SELECT `t`.* FROM t WHERE a = :user", "name the columns"},
        {"SELECT a FROM t WHERE :user = a UNION ALL SELECT * FROM u", "name the columns"}})
    EXPECT_NE(parsed(text).find(says), std::string::npos) << text << ": " << parsed(text);
}

}  // namespace
}  // namespace twinloft::lmtpd
