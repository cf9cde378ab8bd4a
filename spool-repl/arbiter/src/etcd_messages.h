// etcd's v3 API as JSON, which its gateway translates to gRPC (etcd 3.4 and later, below /v3): the bodies of
// requests, and the content of answers. Pure functions.
//
// Keys and values are base64 in JSON, 64-bit numbers are texts, and a field with its default value is
// omitted.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::repl::arbiter {

std::string base64(std::string_view bytes);
// Errors: Errc::corrupt for a text that base64() does not write.
Result<std::string> unbase64(std::string_view text);

std::string range_request(const std::string& key);  // POST /v3/kv/range; linearizable, as is the default
// POST /v3/kv/txn: if the key's value is `expected` (nullopt: the key does not exist), puts `desired`.
// Otherwise reads the key.
std::string swap_request(const std::string& key, const std::optional<std::string>& expected,
                         const std::string& desired);
std::string login_request(const std::string& user, const std::string& password);  // POST
                                                                                  // /v3/auth/authenticate

struct EtcdAnswer {
  std::string cluster;               // the cluster's id
  bool succeeded = false;            // of a swap
  std::optional<std::string> value;  // that was read; nullopt: no such key
};
// Errors: Errc::corrupt if the answer does not belong to such a request for `key`.
Result<EtcdAnswer> read_range(std::string_view body, const std::string& key);
Result<EtcdAnswer> read_swap(std::string_view body, const std::string& key);
Result<std::string> read_login(std::string_view body);  // the token
// The text of an answer with an error status, for a log line: from JSON, or the first line of a plain text.
// Empty: no readable text.
std::string error_text(std::string_view body);

}  // namespace twinloft::repl::arbiter
