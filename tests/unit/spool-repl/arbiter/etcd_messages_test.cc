#include "etcd_messages.h"

#include <gtest/gtest.h>

#include "twinloft/base/random.h"

namespace twinloft::repl::arbiter {
namespace {

TEST(EtcdMessages, Base64) {
  // RFC 4648, section 10
  const std::pair<const char*, const char*> known[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (auto [plain, coded] : known) {
    EXPECT_EQ(base64(plain), coded);
    EXPECT_EQ(unbase64(coded).value(), plain);
  }
  SeededRandom random(1);
  for (std::size_t n = 0; n < 300; ++n) {
    std::string bytes(n, '\0');
    random.fill({reinterpret_cast<std::byte*>(bytes.data()), n});
    EXPECT_EQ(unbase64(base64(bytes)).value(), bytes);
  }
  for (const char* bad : {"Z", "Zg", "Zg=", "Zg===", "=", "====", "Z===", "Zg==Zg==", "Zh==", "Zm9=", "Zm 9",
                          "Zm9v\n", "Zm-_", "Zm9v=g=="})
    EXPECT_FALSE(unbase64(bad)) << bad;
}

TEST(EtcdMessages, Requests) {
  EXPECT_EQ(range_request("foo"), R"({"key":"Zm9v"})");
  EXPECT_EQ(swap_request("foo", std::nullopt, "f"),
            R"({"compare":[{"key":"Zm9v","result":"EQUAL","target":"CREATE","create_revision":"0"}],)"
            R"("success":[{"requestPut":{"key":"Zm9v","value":"Zg=="}}],)"
            R"("failure":[{"requestRange":{"key":"Zm9v"}}]})");
  EXPECT_EQ(swap_request("foo", "fo", "f"),
            R"({"compare":[{"key":"Zm9v","result":"EQUAL","target":"VALUE","value":"Zm8="}],)"
            R"("success":[{"requestPut":{"key":"Zm9v","value":"Zg=="}}],)"
            R"("failure":[{"requestRange":{"key":"Zm9v"}}]})");
  EXPECT_EQ(login_request("a\"b", "c\\d"), R"({"name":"a\"b","password":"c\\d"})");
}

// The output of etcd 3.4.23 of Debian 12.
constexpr const char* range_found =
    R"({"header":{"cluster_id":"14841639068965178418","member_id":"10276657743932975437",)"
    R"("revision":"2","raft_term":"2"},)"
    R"("kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}],)"
    R"("count":"1"})";
constexpr const char*
    range_nothing = R"({"header":{"cluster_id":"1","member_id":"2","revision":"1","raft_term":"2"}})";
constexpr const char* swap_done =
    R"({"header":{"cluster_id":"1","member_id":"2","revision":"3","raft_term":"2"},"succeeded":true,)"
    R"("responses":[{"response_put":{"header":{"revision":"3"}}}]})";
constexpr const char*
    swap_refused = R"({"header":{"cluster_id":"1","member_id":"2","revision":"2","raft_term":"2"},)"
                   R"("responses":[{"response_range":{"header":{"revision":"2"},)"
                   R"("kvs":[{"key":"Zm9v","value":"YmFy"}],"count":"1"}}]})";

TEST(EtcdMessages, Answers) {
  EXPECT_EQ(read_range(range_found, "foo")->value, "bar");
  EXPECT_EQ(read_range(range_found, "foo")->cluster, "14841639068965178418");
  EXPECT_EQ(read_range(range_nothing, "foo")->value, std::nullopt);
  EXPECT_TRUE(read_swap(swap_done, "foo")->succeeded);
  auto refused = read_swap(swap_refused, "foo");
  ASSERT_TRUE(refused);
  EXPECT_FALSE(refused->succeeded);
  EXPECT_EQ(refused->value, "bar");
  EXPECT_EQ(read_login(R"({"header":{},"token":"abc.12"})").value(), "abc.12");
}

std::string changed(std::string text, const std::string& from, const std::string& to) {
  std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(EtcdMessages, RefusesWhatIsNoAnswer) {
  for (const std::string& body :
       {std::string(), std::string("null"), std::string("{}"), std::string("{\"header\":3}"),
        std::string(1000, '['),
        changed(range_found, "\"cluster_id\":\"14841639068965178418\"", "\"cluster_id\":14"),
        changed(range_found, "\"cluster_id\":\"14841639068965178418\",", ""),
        changed(range_found, "Zm9v", "Zm8="), changed(range_found, "YmFy", "YmF"),
        changed(range_found, "[{", "[3,{"), changed(range_found, "\"kvs\":[", "\"kvs\":[[],"),
        changed(range_found, "}],", "},{}],"), std::string(range_found).substr(0, 100),
        std::string(range_found) + "x"})
    EXPECT_FALSE(read_range(body, "foo")) << body;
  for (const std::string& body :
       {std::string("{}"), std::string(range_found), std::string(range_nothing),
        changed(swap_done, "true", "1"), changed(swap_done, "response_put", "response_range"),
        changed(swap_refused, "response_range", "response_put"), changed(swap_done, "[{", "[{},{"),
        changed(swap_done, "true", "false"), changed(swap_refused, "Zm9v", "Zm8="),
        changed(swap_refused, "\"responses\"", "\"responces\"")})
    EXPECT_FALSE(read_swap(body, "foo")) << body;
  for (const char* body :
       {"{}", R"({"token":""})", R"({"token":7})", R"({"token":"a\r\nX: y"})", R"({"token":"a b"})"})
    EXPECT_FALSE(read_login(body)) << body;
}

TEST(EtcdMessages, ErrorTexts) {
  EXPECT_EQ(error_text(R"({"error":"a","message":"b","code":16})"), "b");
  EXPECT_EQ(error_text(R"({"error":"a"})"), "a");
  EXPECT_EQ(error_text("<html>"), "");
  EXPECT_EQ(error_text(""), "");
  EXPECT_EQ(error_text("404 page not found\nmore"), "404 page not found");
  EXPECT_EQ(error_text(R"({"error":7})"), "");
  EXPECT_EQ(error_text(R"({"error":"a\nlevel=error"})"), "a?level=error");
  EXPECT_EQ(error_text("{\"error\":\"" + std::string(5000, 'x') + "\"}").size(), 200u);
}

}  // namespace
}  // namespace twinloft::repl::arbiter
