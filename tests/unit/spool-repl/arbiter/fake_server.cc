#include "fake_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "etcd_messages.h"
#include "twinloft/base/json.h"

namespace twinloft::repl::arbiter {

namespace {

std::string header_of(const std::string& head, const std::string& name) {
  std::size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  at += name.size() + 4;
  return head.substr(at, head.find("\r\n", at) - at);
}

}  // namespace

std::string http_answer(unsigned status, const std::string& body, const std::string& more) {
  return fmt::format("HTTP/1.1 {} Said\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}",
                     status, more, body.size(), body);
}

FakeServer::FakeServer(Handler handler)
    : handler_(std::move(handler)),
      server_(loopback::Server::Clients::one_at_a_time, [this](int fd) { serve(fd); }) {}

std::string FakeServer::url(const char* scheme) const {
  return fmt::format("{}://{}", scheme, server_.address());
}

std::vector<SeenRequest> FakeServer::seen() const {
  std::lock_guard lock(mutex_);
  return seen_;
}

void FakeServer::wait_for_requests(std::size_t count) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return seen_.size() >= count; });
}

std::optional<SeenRequest> FakeServer::read_request(int fd, std::string& buffered) {
  SeenRequest r;
  for (;;) {
    std::size_t end = buffered.find("\r\n\r\n");
    if (end != std::string::npos) {
      r.head = buffered.substr(0, end + 2);
      std::string length = header_of(r.head, "Content-Length");
      std::size_t bytes = length.empty() ? 0 : std::stoul(length);
      if (buffered.size() >= end + 4 + bytes) {
        r.body = buffered.substr(end + 4, bytes);
        buffered.erase(0, end + 4 + bytes);
        break;
      }
    }
    char chunk[4096];
    ssize_t n = ::recv(fd, chunk, sizeof chunk, 0);
    if (n <= 0) return std::nullopt;
    buffered.append(chunk, static_cast<std::size_t>(n));
  }
  std::size_t blank = r.head.find(' ');
  r.target = r.head.substr(blank + 1, r.head.find(' ', blank + 1) - blank - 1);
  r.token = header_of(r.head, "Authorization");
  return r;
}

void FakeServer::serve(int fd) {
  std::string buffered;
  while (auto request = read_request(fd, buffered)) {
    FakeReply reply = handler_(*request);
    {
      std::lock_guard lock(mutex_);
      seen_.push_back(*request);
    }
    changed_.notify_all();
    if (reply.silent_before) loopback::wait_until_client_has_gone(fd);
    bool sent;
    do sent = loopback::send_all(fd, reply.bytes, reply.trickle ? 1 : 0);
    while (sent && reply.endless);
    if (!sent || !reply.keep_alive) return;
  }
}

// ---- etcd ---------------------------------------------------------------------------------------------

std::string FakeEtcd::answer(const SeenRequest& r) {
  json::object o = parse_object(r.body).value();
  std::string header = fmt::format(
      R"("header":{{"cluster_id":"{}","member_id":"7","revision":"9","raft_term":"2"}})", cluster);
  auto text = [](const json::object& in, const char* name) {
    return std::string(std::string_view(in.at(name).as_string()));
  };
  auto kvs = [&](const std::string& of) {
    if (!value) return std::string();
    return fmt::format(
        R"(,"kvs":[{{"key":"{}","create_revision":"4","mod_revision":"9","version":"2","value":"{}"}}],)"
        R"("count":"1")",
        of, base64(*value));
  };
  if (r.target == "/v3/kv/range") {
    key = unbase64(text(o, "key")).value();
    EXPECT_FALSE(o.contains("serializable")) << "reads must be linearizable";
    return "{" + header + kvs(text(o, "key")) + "}";
  }
  EXPECT_EQ(r.target, "/v3/kv/txn");
  const json::object& compare = o.at("compare").as_array().at(0).as_object();
  key = unbase64(text(compare, "key")).value();
  EXPECT_EQ(text(compare, "result"), "EQUAL");
  bool equal = text(compare, "target") == "VALUE" ? value && base64(*value) == text(compare, "value")
                                                  : text(compare, "create_revision") == "0" && !value;
  if (!equal) {
    const json::object& range = o.at("failure").as_array().at(0).as_object().at("requestRange").as_object();
    return "{" + header + R"(,"responses":[{"response_range":{)" + header + kvs(text(range, "key")) + "}}]}";
  }
  const json::object& put = o.at("success").as_array().at(0).as_object().at("requestPut").as_object();
  EXPECT_EQ(text(put, "key"), text(compare, "key"));
  value = unbase64(text(put, "value")).value();
  return "{" + header + R"(,"succeeded":true,"responses":[{"response_put":{)" + header + "}}]}";
}

FakeReply FakeEtcd::operator()(const SeenRequest& r) {
  if (r.target == "/v3/auth/authenticate") {
    json::object o = parse_object(r.body).value();
    if (user.empty() || o.at("name").as_string() != user || o.at("password").as_string() != password)
      return {
          http_answer(
              400, R"({"error":"etcdserver: authentication failed, invalid user ID or password","code":3})"),
          true};
    ++logins;
    return {
        http_answer(200, fmt::format(R"({{"header":{{"cluster_id":"{}"}},"token":"{}"}})", cluster, token())),
        true};
  }
  if (!user.empty() && r.token != token())
    return {http_answer(401, R"({"error":"etcdserver: invalid auth token",)"
                             R"("message":"etcdserver: invalid auth token","code":16})"),
            true};
  return {http_answer(200, answer(r)), true};
}

}  // namespace twinloft::repl::arbiter
