// The change from clear text to TLS, with a real OpenSSL client over a real connection. The input's first
// bytes say how the handshake is changed on the way. The next part is sent in clear text after STARTTLS, the
// rest in TLS.
//
// Clear-text input has no effect afterwards (CVE-2011-0411). Whatever happens to the handshake, every reply
// can be parsed, the connection ends, and nothing is left of it.
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "connection.h"
#include "hub.h"
#include "twinloft/base/check.h"
#include "twinloft/base/log.h"

using namespace twinloft;
using namespace twinloft::lmtpd;

namespace {

class Users final : public UserDb {
 public:
  bool knows_injected = false;  // the TLS input may contain the same commands

 private:
  std::optional<LookupResult> lookup_now(const LookupRequest& r) override { return lookup(r); }
  LookupResult lookup(const LookupRequest& r) override {
    TL_CHECK(r.local_part != "injected" || knows_injected);
    User user;
    user.name = r.local_part;
    user.uid = user.gid = 1;
    return Resolved{std::move(user)};
  }
};

class NoDeliverer final : public Deliverer {
  DeliveryOutcome deliver(const Envelope& e, const Recipient&, const MessageBody&) override {
    TL_CHECK(!e.tls.empty());
    return {{250, "2.0.0", "Delivered"}};
  }
};

struct Freed {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Freed>;

std::string text_of(BIO* bio) {
  char* data = nullptr;
  long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

TlsMaterial make_material() {
  Owned<EVP_PKEY> key(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"));
  Owned<X509> certificate(X509_new());
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 86'400);
  X509_set_pubkey(certificate.get(), key.get());
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  Owned<BIO> first(BIO_new(BIO_s_mem())), second(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(first.get(), certificate.get());
  PEM_write_bio_PrivateKey(second.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return {text_of(first.get()), text_of(second.get()), {}, false, true};
}

// Exists for the whole run, because its threads do.
struct World {
  Users users;
  NoDeliverer deliverer;
  OsClock clock;
  Hub hub;
  Owned<SSL_CTX> client{SSL_CTX_new(TLS_client_method())};

  static ServerConfig config() {
    ServerConfig c;
    c.session.hostname = "h";
    c.session.new_id = [] { return std::string("id"); };
    c.deliveries_max = 1;
    auto tls = TlsContext::create(make_material());
    TL_CHECK(tls.has_value());
    c.tls = *tls;
    return c;
  }
  World() : hub(config(), users, deliverer, clock) {
    std::signal(SIGPIPE, SIG_IGN);
    log_set_level(LogLevel::error);
  }
};

// Changes of the handshake's bytes on their way to the server.
struct Damage {
  std::uint8_t piece = 0;   // size of the pieces; 0: unchanged
  std::uint16_t at = 0;     // the byte there ...
  std::uint8_t change = 0;  // ... is changed by this value
  bool stop = false;        // the client disconnects there
};

class TestClient {
 public:
  TestClient(World& world, const Damage& damage, TlsPolicy policy)
      : world_(world), damage_(damage), loop_(world.hub, [] {}) {
    int ends[2];
    TL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    socket_.reset(ends[0]);
    auto rules = std::make_shared<ListenRules>();
    rules->tls = policy;
    sockaddr_storage peer{};
    peer.ss_family = AF_UNIX;
    world_.hub.connections.fetch_add(1);
    loop_.add(std::make_shared<Connection>(loop_, NewConnection{Fd(ends[1]), peer, rules}));
    run();
  }

  void send_clear(std::string_view bytes) {
    put(bytes);
    run();
  }
  std::string take_clear() { return std::exchange(in_, {}); }

  bool handshake() {
    tls_.reset(SSL_new(world_.client.get()));
    SSL_set_bio(tls_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(tls_.get());
    for (int i = 0; i < 20 && !gone_; ++i) {
      int result = SSL_do_handshake(tls_.get());
      bool more = SSL_get_error(tls_.get(), result) == SSL_ERROR_WANT_READ;
      carry(true);
      if (result == 1) return true;
      if (!more) return false;
    }
    return false;
  }

  void send_secured(std::string_view text) {
    if (!text.empty()) (void)SSL_write(tls_.get(), text.data(), static_cast<int>(text.size()));
    carry(false);
  }
  // All bytes received in TLS.
  std::string take_secured() {
    std::string out;
    char piece[4096];
    for (int n; (n = SSL_read(tls_.get(), piece, sizeof piece)) > 0;)
      out.append(piece, static_cast<std::size_t>(n));
    return out;
  }

  // The server must end its side too.
  std::string leave() {
    ::shutdown(socket_.get(), SHUT_WR);
    std::string rest;
    for (int i = 0; world_.hub.connections.load() > 0; ++i) {
      TL_CHECK(i < 2000);
      loop_.io().restart();
      loop_.io().run_one_for(std::chrono::milliseconds(5));
      read();
      if (gone_) socket_.reset();
      if (tls_) rest += (feed(), take_secured());
    }
    return rest;
  }

 private:
  void run() {
    loop_.io().restart();
    loop_.io().poll();
    read();
  }
  void read() {
    char piece[16384];
    for (ssize_t n; socket_ && (n = ::recv(socket_.get(), piece, sizeof piece, MSG_DONTWAIT)) >= 0;) {
      if (n == 0) {
        gone_ = true;
        return;
      }
      in_.append(piece, static_cast<std::size_t>(n));
    }
  }
  void put(std::string_view bytes) {
    while (!bytes.empty() && !gone_) {
      ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN) return;
      if (n > 0)
        bytes.remove_prefix(static_cast<std::size_t>(n));
      else
        run();
    }
  }
  void feed() {
    if (!in_.empty()) BIO_write(SSL_get_rbio(tls_.get()), in_.data(), static_cast<int>(in_.size()));
    in_.clear();
  }
  // Carries bytes both ways until neither side makes progress.
  void carry(bool damaged) {
    std::string out = text_of(SSL_get_wbio(tls_.get()));
    (void)BIO_reset(SSL_get_wbio(tls_.get()));
    if (damaged) out = damage(std::move(out));
    std::size_t step = damage_.piece == 0 ? std::max<std::size_t>(1, out.size()) : damage_.piece;
    for (std::size_t at = 0; at < out.size(); at += step) put(std::string_view(out).substr(at, step)), run();
    run();
    feed();
  }
  std::string damage(std::string out) {
    if (damage_.at < sent_ + out.size() && damage_.at >= sent_) {
      std::size_t at = damage_.at - sent_;
      out[at] = static_cast<char>(out[at] ^ damage_.change);
      if (damage_.stop) out.resize(at), ::shutdown(socket_.get(), SHUT_WR);
    }
    sent_ += out.size();
    return out;
  }

  World& world_;
  const Damage damage_;
  Loop loop_;
  Fd socket_;
  Owned<SSL> tls_;
  std::string in_;
  std::size_t sent_ = 0;
  bool gone_ = false;
};

// Complete replies. None may report an open transaction that was not begun in TLS.
void check_replies(std::string_view sent) {
  while (!sent.empty()) {
    std::size_t end = sent.find("\r\n");
    TL_CHECK(end != std::string_view::npos && end >= 4 && end <= 510);
    TL_CHECK(sent[0] >= '2' && sent[0] <= '5' && (sent[3] == ' ' || sent[3] == '-'));
    sent.remove_prefix(end + 2);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World* world = new World;
  if (size < 6) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 6, size - 6);
  Damage damage{data[0], static_cast<std::uint16_t>(data[1] | data[2] << 8), data[3], (data[4] & 1) != 0};
  std::string_view clear = rest.substr(0, std::min<std::size_t>(rest.size(), data[5])),
                   secured = rest.substr(clear.size());
  bool pipelined = (data[4] & 2) != 0;

  TestClient client(*world, damage, (data[4] & 4) != 0 ? TlsPolicy::required : TlsPolicy::offered);
  world->users.knows_injected = secured.find("injected") != secured.npos;
  client.send_clear("LHLO c\r\n");
  (void)client.take_clear();
  if (pipelined)
    client.send_clear("STARTTLS\r\n" + std::string(clear));
  else
    client.send_clear("STARTTLS\r\n"), client.send_clear(clear);
  std::string answer = client.take_clear();
  TL_CHECK(answer.starts_with("220 2.0.0 "));
  // After the 220, the server sends nothing in clear text, even in reply to input sent ahead. The client
  // would treat it as part of the handshake.
  TL_CHECK((!pipelined && !clear.empty()) || answer.find("\r\n") == answer.size() - 2);
  if (clear.empty() || pipelined) {
    // Input sent ahead is discarded with the 220, so it does not affect the handshake.
    bool done = client.handshake();
    TL_CHECK(done || damage.change != 0 || damage.stop);
    if (done) {
      if (!world->users.knows_injected)
        client.send_secured("RCPT TO:<injected@d>\r\n");  // looked up only if a MAIL was accepted
      check_replies(client.take_secured());
      client.send_secured(secured);
    }
  }
  check_replies(client.leave());
  return 0;
}
