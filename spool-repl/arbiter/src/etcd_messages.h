// etcd's v3 API as JSON, which its gateway translates to gRPC (etcd 3.4 and later under /v3): bodies of
// requests, and what the answers say. Pure.
//
// Keys and values are base64 in JSON, 64-bit numbers are texts, and a field that has its default value is
// left out.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::repl::arbiter {

std::string base64(std::string_view bytes);
// Errc::corrupt for everything that base64() does not write.
Result<std::string> unbase64(std::string_view text);

std::string range_request(const std::string& key);  // POST /v3/kv/range; linearizable, as is the default
// POST /v3/kv/txn: if the key's value is `expected`, or there is no such key, put `desired`; else read the
// key.
std::string swap_request(const std::string& key, const std::optional<std::string>& expected,
                         const std::string& desired);
std::string login_request(const std::string& user, const std::string& password);  // POST
                                                                                  // /v3/auth/authenticate

struct EtcdAnswer {
  std::string cluster;               // the cluster's id
  bool succeeded = false;            // of a swap
  std::optional<std::string> value;  // what was read; nullopt: there is no such key
};
// Errc::corrupt where the answer is not one to such a request about `key`.
Result<EtcdAnswer> read_range(std::string_view body, const std::string& key);
Result<EtcdAnswer> read_swap(std::string_view body, const std::string& key);
Result<std::string> read_login(std::string_view body);  // the token
// What an answer with an error status says, fit for a log line; empty where it says nothing that can be read.
// JSON, or the first line of a plain text.
std::string error_text(std::string_view body);

}  // namespace twinloft::repl::arbiter
