#include "etcd_messages.h"

#include <array>

#include "twinloft/base/json.h"

namespace twinloft::repl::arbiter {

namespace {

constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::size_t error_text_max = 200;

std::unexpected<Error> odd(const std::string& what) {
  return fail(Errc::corrupt, "not an answer of etcd: {}", what);
}

Result<json::object> answer_in(std::string_view body) {
  auto root = parse_object(body);
  if (!root) return odd(root.error().message);
  return root;
}

const json::object* object_in(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  return v ? v->if_object() : nullptr;
}
std::optional<std::string> text_in(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  if (!v || !v->is_string()) return std::nullopt;
  return std::string(std::string_view(v->get_string()));
}

Status read_header(const json::object& root, EtcdAnswer& out) {
  const json::object* header = object_in(root, "header");
  auto cluster = header ? text_in(*header, "cluster_id") : std::nullopt;
  if (!cluster || cluster->empty() || cluster->size() > 32) return odd("no cluster_id in its header");
  out.cluster = *cluster;
  return {};
}

// {"kvs":[{"key":..,"value":..}],"count":"1"}, or no kvs.
Status read_kvs(const json::object& o, const std::string& key, EtcdAnswer& out) {
  const json::value* kvs = o.if_contains("kvs");
  if (!kvs) return {};
  if (!kvs->is_array() || kvs->get_array().size() > 1) return odd("more than the requested key");
  if (kvs->get_array().empty()) return {};
  const json::object* kv = kvs->get_array()[0].if_object();
  auto name = kv ? text_in(*kv, "key") : std::nullopt;
  if (!name || *name != base64(key)) return odd("another key than the requested key");
  // An empty value is left out like every default.
  TL_TRY_ASSIGN(out.value, unbase64(text_in(*kv, "value").value_or("")));
  return {};
}

}  // namespace

std::string base64(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t v = 0;
    std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k) v = v << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) out += k <= n ? digits[v >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

Result<std::string> unbase64(std::string_view text) {
  std::string out;
  if (text.size() % 4 != 0) return odd("a value that is not base64");
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t v = 0;
    std::size_t given = 4;
    if (i + 4 == text.size())
      while (given > 2 && text[i + given - 1] == '=') --given;
    for (std::size_t k = 0; k < 4; ++k) {
      std::size_t digit = k < given ? digits.find(text[i + k]) : 0;
      if (digit == std::string_view::npos) return odd("a value that is not base64");
      v = v << 6 | static_cast<std::uint32_t>(digit);
    }
    for (std::size_t k = 0; k + 1 < given; ++k) out += static_cast<char>(v >> (16 - 8 * k) & 0xff);
    if (given < 4 && (v & (given == 3 ? 0xffu : 0xffffu)) != 0) return odd("a value that is not base64");
  }
  return out;
}

std::string range_request(const std::string& key) {
  return json::serialize(json::object{{"key", base64(key)}});
}

std::string swap_request(const std::string& key, const std::optional<std::string>& expected,
                         const std::string& desired) {
  std::string name = base64(key);
  json::object compare{{"key", name}, {"result", "EQUAL"}};
  if (expected) {
    compare["target"] = "VALUE";
    compare["value"] = base64(*expected);
  } else {
    compare["target"] = "CREATE";
    compare["create_revision"] = "0";
  }
  json::object put{{"requestPut", json::object{{"key", name}, {"value", base64(desired)}}}};
  json::object read{{"requestRange", json::object{{"key", name}}}};
  return json::serialize(json::object{{"compare", json::array{std::move(compare)}},
                                      {"success", json::array{std::move(put)}},
                                      {"failure", json::array{std::move(read)}}});
}

std::string login_request(const std::string& user, const std::string& password) {
  return json::serialize(json::object{{"name", user}, {"password", password}});
}

Result<EtcdAnswer> read_range(std::string_view body, const std::string& key) {
  TL_TRY_ASSIGN(json::object root, answer_in(body));
  EtcdAnswer out;
  TL_TRY(read_header(root, out));
  TL_TRY(read_kvs(root, key, out));
  return out;
}

Result<EtcdAnswer> read_swap(std::string_view body, const std::string& key) {
  TL_TRY_ASSIGN(json::object root, answer_in(body));
  EtcdAnswer out;
  TL_TRY(read_header(root, out));
  if (const json::value* v = root.if_contains("succeeded")) {
    if (!v->is_bool()) return odd("\"succeeded\" is neither true nor false");
    out.succeeded = v->get_bool();
  }
  // The responses show which branch was taken, and must agree with "succeeded".
  const json::value* responses = root.if_contains("responses");
  const json::array* list = responses ? responses->if_array() : nullptr;
  const json::object* one = list && list->size() == 1 ? (*list)[0].if_object() : nullptr;
  if (!one) return odd("not the one response of a swap");
  auto either = [&](std::string_view a, std::string_view b) {
    const json::object* o = object_in(*one, a);
    return o ? o : object_in(*one, b);
  };
  if (out.succeeded) {
    if (!either("response_put", "responsePut")) return odd("a successful swap without a put");
    return out;
  }
  const json::object* range = either("response_range", "responseRange");
  if (!range) return odd("a failed swap without a read");
  TL_TRY(read_kvs(*range, key, out));
  return out;
}

Result<std::string> read_login(std::string_view body) {
  TL_TRY_ASSIGN(json::object root, answer_in(body));
  auto token = text_in(root, "token");
  if (!token || token->empty()) return odd("no token");
  // The token is sent in a header.
  for (char c : *token)
    if (c <= ' ' || c >= 127) return odd("a token with other than printable characters");
  return *token;
}

std::string error_text(std::string_view body) {
  std::optional<std::string> text;
  if (auto root = parse_object(body)) {
    text = text_in(*root, "message");
    if (!text || text->empty()) text = text_in(*root, "error");
  } else if (!body.starts_with('<')) {
    text = std::string(body.substr(0, body.find_first_of("\r\n")));
  }
  if (!text) return "";
  std::string out;
  for (char c : text->substr(0, error_text_max)) out += c >= ' ' && c < 127 ? c : '?';
  return out;
}

}  // namespace twinloft::repl::arbiter
