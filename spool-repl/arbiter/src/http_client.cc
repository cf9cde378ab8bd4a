#include "http_client.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <memory>

#include "twinloft/base/check.h"

namespace twinloft::repl::arbiter {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr std::string_view port_default = "2379";

std::string text_of(const error_code& ec, Duration waited) {
  if (ec == beast::error::timeout)
    return fmt::format("no answer within {} ms",
                       std::chrono::duration_cast<std::chrono::milliseconds>(waited).count());
  if (ec == http::error::end_of_stream || ec == http::error::partial_message ||
      ec == asio::ssl::error::stream_truncated || ec == asio::error::eof)
    return "the connection was closed before the answer was complete";
  if (ec == http::error::body_limit || ec == http::error::header_limit || ec == http::error::buffer_overflow)
    return "the answer is too large";
  if (ec == asio::error::operation_aborted) return "cancelled: this node is being stopped";
  std::string text = ec.message();
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z' && ec.category() == boost::system::system_category())
    text[0] = static_cast<char>(text[0] + ('a' - 'A'));
  return text;
}

bool is_address(const std::string& host) {
  error_code ec;
  asio::ip::make_address(host, ec);
  return !ec;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return out;
}

bool starts_with_any_case(std::string_view text, std::string_view lower_case) {
  return lower(text.substr(0, lower_case.size())) == lower_case;
}

}  // namespace

Result<Endpoint> parse_endpoint(const std::string& url) {
  Endpoint e;
  e.url = url;
  std::string_view rest = url;
  if (starts_with_any_case(rest, "https://"))
    e.tls = true;
  else if (!starts_with_any_case(rest, "http://"))
    return fail(Errc::invalid, "\"{}\": expected http://host:port or https://host:port", url);
  rest.remove_prefix(e.tls ? 8 : 7);
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find('@') != std::string_view::npos)
    return fail(Errc::invalid, "an endpoint must not contain a password: use user and password_file");
  bool odd = std::any_of(rest.begin(), rest.end(),
                         [](char c) { return c <= ' ' || c == 127 || c == '/' || c == '?' || c == '#'; });
  std::string_view port = port_default;
  if (rest.starts_with('[')) {
    std::size_t end = rest.find(']');
    if (end == std::string_view::npos) return fail(Errc::invalid, "\"{}\": a bracket is missing", url);
    e.host = rest.substr(1, end - 1);
    if (!is_address(e.host))
      return fail(Errc::invalid, "\"{}\": in brackets an IPv6 address is expected", url);
    rest.remove_prefix(end + 1);
    if (!rest.empty() && rest[0] != ':') odd = true;
    if (rest.size() >= 1) port = rest.substr(1);
  } else {
    std::size_t colon = rest.find(':');
    e.host = rest.substr(0, colon);
    if (colon != std::string_view::npos) port = rest.substr(colon + 1);
  }
  std::uint16_t number = 0;
  auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (odd || e.host.empty() || e.host.size() > 253 || ec != std::errc() || end != port.data() + port.size() ||
      number == 0)
    return fail(Errc::invalid, "\"{}\": expected http://host:port or https://host:port", url);
  e.port = port;
  return e;
}

std::string normal_url(const Endpoint& e) {
  std::string host = lower(e.host);
  // A name with a dot inside is resolved from the root first. For another name, a dot at the end prevents the
  // search list.
  if (host.ends_with('.') && host.find('.') + 1 < host.size()) host.pop_back();
  error_code ec;
  if (auto address = asio::ip::make_address(host, ec); !ec)
    host = address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
  std::uint16_t port = 0;
  std::from_chars(e.port.data(), e.port.data() + e.port.size(), port);
  return fmt::format("{}://{}:{}", e.tls ? "https" : "http", host, port);
}

Result<asio::ssl::context> tls_context(const TlsFiles& files) {
  asio::ssl::context context(asio::ssl::context::tls_client);
  error_code ec;
  context.set_options(
      asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1,
      ec);
  context.set_verify_mode(asio::ssl::verify_peer, ec);
  auto failed = [&](const std::string& file) { return fail(Errc::invalid, "{}: {}", file, ec.message()); };
  if (files.ca.empty()) {
    if (context.set_default_verify_paths(ec)) return failed("the system's certificate authorities");
  } else if (context.load_verify_file(files.ca, ec)) {
    return failed(files.ca);
  }
  if (!files.certificate.empty()) {
    if (context.use_certificate_chain_file(files.certificate, ec)) return failed(files.certificate);
    if (context.use_private_key_file(files.key, asio::ssl::context::pem, ec)) return failed(files.key);
  }
  return context;
}

HttpClient::Tcp& HttpClient::tcp() {
  if (auto* tls = std::get_if<Tls>(&stream_)) return tls->next_layer();
  return std::get<Tcp>(stream_);
}

// Runs the loop until the operation of `start` has ended. After cancel() the operation is abandoned, and the
// loop does not run again.
template <class Start>
error_code HttpClient::await(Start start) {
  std::optional<error_code> done;
  start([&done](error_code ec, auto&&...) { done = ec; });
  io_.restart();
  while (!done && !cancelled_ && io_.run_one() > 0) {
  }
  return done.value_or(asio::error::operation_aborted);
}

Status HttpClient::arm(Instant deadline) {
  if (cancelled_) return fail(Errc::unavailable, "cancelled: this node is being stopped");
  Duration left = deadline - clock_.now();
  if (left <= Duration(0)) return fail(Errc::timeout, "no time left for the request");
  tcp().expires_after(left);
  return {};
}

// A look-up of a name cannot be interrupted. After the deadline it continues unattended.
Result<asio::ip::tcp::resolver::results_type> HttpClient::resolve(const Endpoint& endpoint,
                                                                  Instant deadline) {
  struct Found {
    bool done = false;
    error_code ec;
    asio::ip::tcp::resolver::results_type results;
  };
  auto found = std::make_shared<Found>();
  resolver_.async_resolve(endpoint.host, endpoint.port,
                          [found](error_code ec, asio::ip::tcp::resolver::results_type results) {
                            *found = {true, ec, std::move(results)};
                          });
  io_.restart();
  while (!found->done && !cancelled_) {
    Duration left = deadline - clock_.now();
    if (left <= Duration(0) || io_.run_one_for(left) == 0) break;
  }
  if (!found->done) return fail(Errc::timeout, "no answer from the name service for {}", endpoint.host);
  if (found->ec) return fail(Errc::not_found, "{}: {}", endpoint.host, found->ec.message());
  return std::move(found->results);
}

Status HttpClient::connect(const Endpoint& endpoint, const TlsFiles& files, Instant deadline) {
  close();
  TL_TRY_ASSIGN(auto addresses, resolve(endpoint, deadline));
  Duration given = deadline - clock_.now();
  stream_.emplace<Tcp>(io_);
  TL_TRY(arm(deadline));
  if (error_code ec = await([&](auto handler) { tcp().async_connect(addresses, std::move(handler)); })) {
    close();
    return fail(Errc::unavailable, "{}", text_of(ec, given));
  }
  host_ = endpoint.host.find(':') == std::string::npos ? endpoint.host : "[" + endpoint.host + "]";
  host_ += ":" + endpoint.port;
  if (!endpoint.tls) return {};
  Status secured = secure(endpoint, files, deadline);
  if (!secured) close();
  return secured;
}

Status HttpClient::secure(const Endpoint& endpoint, const TlsFiles& files, Instant deadline) {
  TL_TRY_ASSIGN(auto context, tls_context(files));
  context_.emplace(std::move(context));
  Tcp connected = std::move(std::get<Tcp>(stream_));
  Tls& tls = stream_.emplace<Tls>(std::move(connected), *context_);
  tls.set_verify_callback(asio::ssl::host_name_verification(endpoint.host));
  if (!is_address(endpoint.host) && !SSL_set_tlsext_host_name(tls.native_handle(), endpoint.host.c_str()))
    return fail(Errc::internal, "TLS refuses the name {}", endpoint.host);
  Duration given = deadline - clock_.now();
  TL_TRY(arm(deadline));
  if (error_code ec = await(
          [&](auto handler) { tls.async_handshake(asio::ssl::stream_base::client, std::move(handler)); }))
    return fail(Errc::unavailable, "TLS: {}", text_of(ec, given));
  return {};
}

Result<HttpAnswer> HttpClient::post(const std::string& target, const std::string& body,
                                    const std::string& token, Instant deadline) {
  http::request<http::string_body> request(http::verb::post, target, 11);
  request.set(http::field::host, host_);
  request.set(http::field::user_agent, "twinloft-spool-repl");
  request.set(http::field::content_type, "application/json");
  if (!token.empty()) request.set(http::field::authorization, token);
  request.body() = body;
  request.prepare_payload();
  http::response_parser<http::string_body> parser;
  parser.body_limit(answer_bytes_max);
  parser.header_limit(header_bytes_max);

  TL_CHECK(is_open());
  Duration given = deadline - clock_.now();
  if (Status armed = arm(deadline); !armed) {
    close();
    return std::unexpected(armed.error());
  }
  error_code ec = std::visit(
      [&](auto& stream) -> error_code {
        if constexpr (std::is_same_v<std::decay_t<decltype(stream)>, std::monostate>) {
          return asio::error::not_connected;
        } else {
          if (auto e = await([&](auto handler) { http::async_write(stream, request, std::move(handler)); }))
            return e;
          return await(
              [&](auto handler) { http::async_read(stream, received_, parser, std::move(handler)); });
        }
      },
      stream_);
  if (ec) {
    close();
    return fail(ec == beast::error::timeout ? Errc::timeout : Errc::unavailable, "{}", text_of(ec, given));
  }
  HttpAnswer answer{parser.get().result_int(), std::move(parser.get().body())};
  if (!parser.get().keep_alive()) close();
  return answer;
}

void HttpClient::close() {
  stream_.emplace<std::monostate>();
  received_.clear();
}

void HttpClient::cancel() {
  cancelled_ = true;
  io_.stop();
}

}  // namespace twinloft::repl::arbiter
