// An HTTP/1.1 client (Boost.Beast) for few, small requests on a thread that may block: connect, POST, POST,
// close.
//
// Every call has a deadline, and cancel() ends it from another thread. Requests and answers have a maximum
// size.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <optional>
#include <string>
#include <variant>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::arbiter {

struct Endpoint {
  bool tls = false;
  std::string host, port;
  std::string url;  // as configured
};
// "http://host:port" or "https://[::1]", with or without a slash at the end. The default port is 2379.
Result<Endpoint> parse_endpoint(const std::string& url);
// The normal form of the endpoint.
std::string normal_url(const Endpoint& endpoint);

struct TlsFiles {
  std::string ca, certificate, key;  // PEM; empty: the machine's authorities, and no client certificate
};
// Errors: Errc::invalid with the name of a file that cannot be used.
Result<boost::asio::ssl::context> tls_context(const TlsFiles& files);

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
};

class HttpClient {
 public:
  static constexpr std::size_t answer_bytes_max = 64u << 10;
  static constexpr std::size_t header_bytes_max = 8u << 10;

  explicit HttpClient(const Clock& clock) : clock_(clock) {}
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // An error means that no byte of a request was sent.
  Status connect(const Endpoint& endpoint, const TlsFiles& files, Instant deadline);
  bool is_open() const { return stream_.index() != 0; }
  // Sends a request on an open connection. After an error, the connection is closed, and the server may have
  // received the request or not. After an answer, the connection is closed if the server requests it.
  Result<HttpAnswer> post(const std::string& target, const std::string& body, const std::string& token,
                          Instant deadline);
  void close();
  void cancel();  // from any thread; final

 private:
  using Tcp = boost::beast::tcp_stream;
  using Tls = boost::beast::ssl_stream<Tcp>;
  Tcp& tcp();
  template <class Start>
  boost::system::error_code await(Start start);
  Result<boost::asio::ip::tcp::resolver::results_type> resolve(const Endpoint& endpoint, Instant deadline);
  Status secure(const Endpoint& endpoint, const TlsFiles& files, Instant deadline);
  Status arm(Instant deadline);

  const Clock& clock_;
  boost::asio::io_context io_{1};
  boost::asio::ip::tcp::resolver resolver_{io_};
  std::optional<boost::asio::ssl::context> context_;
  std::variant<std::monostate, Tcp, Tls> stream_;
  boost::beast::flat_buffer received_;
  std::string host_;  // for the Host header
  std::atomic<bool> cancelled_ = false;
};

}  // namespace twinloft::repl::arbiter
