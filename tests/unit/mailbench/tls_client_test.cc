#include "twinloft/mailbench/tls_client.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>

namespace twinloft::mailbench {
namespace {

struct Identity {
  X509* certificate = nullptr;
  EVP_PKEY* key = nullptr;
  ~Identity() {
    ::X509_free(certificate);
    ::EVP_PKEY_free(key);
  }
};

// A certificate for mx.example.org and 127.0.0.1 that is its own authority.
void make_identity(Identity& out) {
  out.key = ::EVP_EC_gen("P-256");
  out.certificate = ::X509_new();
  ::X509_set_version(out.certificate, 2);
  ::ASN1_INTEGER_set(::X509_get_serialNumber(out.certificate), 1);
  ::X509_gmtime_adj(::X509_getm_notBefore(out.certificate), -3600);
  ::X509_gmtime_adj(::X509_getm_notAfter(out.certificate), 86400);
  ::X509_set_pubkey(out.certificate, out.key);
  X509_NAME* name = ::X509_get_subject_name(out.certificate);
  ::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("test"), -1,
                               -1, 0);
  ::X509_set_issuer_name(out.certificate, name);
  X509_EXTENSION* hosts = ::X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name,
                                                "DNS:mx.example.org,IP:127.0.0.1");
  ASSERT_NE(hosts, nullptr);
  ::X509_add_ext(out.certificate, hosts, -1);
  ::X509_EXTENSION_free(hosts);
  ASSERT_GT(::X509_sign(out.certificate, out.key, ::EVP_sha256()), 0);
}

// A server of OpenSSL in memory.
class Server {
 public:
  Server(const Identity& identity, int version, bool wants_certificate)
      : context_(::SSL_CTX_new(::TLS_server_method())) {
    ::SSL_CTX_set_max_proto_version(context_, version);
    if (wants_certificate)
      ::SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    EXPECT_EQ(::SSL_CTX_use_certificate(context_, identity.certificate), 1);
    EXPECT_EQ(::SSL_CTX_use_PrivateKey(context_, identity.key), 1);
    ssl_ = ::SSL_new(context_);
    in_ = ::BIO_new(::BIO_s_mem());
    out_ = ::BIO_new(::BIO_s_mem());
    ::SSL_set_bio(ssl_, in_, out_);
    ::SSL_set_accept_state(ssl_);
  }
  ~Server() {
    ::SSL_free(ssl_);
    ::SSL_CTX_free(context_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // What the server sends after these bytes.
  std::string take(std::string& bytes) {
    ::BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
    bytes.clear();
    char plain[4096];
    int size = 0;
    while ((size = ::SSL_read(ssl_, plain, sizeof plain)) > 0)
      received.append(plain, static_cast<std::size_t>(size));
    return output();
  }
  std::string say(std::string_view text) {
    ::SSL_write(ssl_, text.data(), static_cast<int>(text.size()));
    return output();
  }
  std::string renegotiate() {
    EXPECT_EQ(::SSL_renegotiate(ssl_), 1);
    ::SSL_do_handshake(ssl_);
    return output();
  }
  std::string received;

 private:
  std::string output() {
    std::string out;
    char bytes[4096];
    int size = 0;
    while ((size = ::BIO_read(out_, bytes, sizeof bytes)) > 0)
      out.append(bytes, static_cast<std::size_t>(size));
    return out;
  }
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  BIO *in_ = nullptr, *out_ = nullptr;
};

class TlsClientTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "mb-tls.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    make_identity(identity_);
    std::FILE* file = std::fopen((directory_ + "/ca.pem").c_str(), "w");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(::PEM_write_X509(file, identity_.certificate), 1);
    std::fclose(file);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  TlsContext context(const std::string& name) {
    return TlsContext::make(name.empty() ? TlsSettings{} : TlsSettings{directory_ + "/ca.pem", name}).value();
  }
  // Passes bytes in both directions until nobody has more to say, or the client fails.
  static Status talk(TlsClient& client, Server& server) {
    TL_TRY(client.feed({}));
    for (int turns = 0; turns < 20; ++turns) {
      std::string answer = server.take(client.output());
      if (answer.empty() && client.output().empty()) return {};
      TL_TRY(client.feed(answer));
    }
    return fail(Errc::internal, "no end");
  }
  static std::string read(TlsClient& client) {
    char text[100];
    auto size = client.read(text);
    return size ? std::string(text, *size) : size.error().message;
  }
  std::string directory_;
  Identity identity_;
};

TEST_F(TlsClientTest, TextGoesBothWays) {
  for (int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const char* name : {"", "mx.example.org", "127.0.0.1"}) {
      Server server(identity_, version, false);
      TlsContext checked = context(name);
      TlsClient client(checked);
      Status talked = talk(client, server);
      ASSERT_TRUE(talked) << talked.error().message;
      ASSERT_TRUE(client.established());
      ASSERT_TRUE(client.write("LHLO me\r\n"));
      std::string sent = std::exchange(client.output(), {});
      server.take(sent);
      EXPECT_EQ(server.received, "LHLO me\r\n");
      ASSERT_TRUE(client.feed(server.say("250 hello\r\n")));
      EXPECT_EQ(read(client), "250 hello\r\n");
      EXPECT_EQ(read(client), "");
    }
  }
}

TEST_F(TlsClientTest, AnotherNameIsDenied) {
  Server server(identity_, TLS1_3_VERSION, false);
  TlsContext checked = context("other.example.org");
  TlsClient client(checked);
  Status talked = talk(client, server);
  ASSERT_FALSE(talked);
  EXPECT_EQ(talked.error().code, Errc::denied);
  EXPECT_FALSE(client.established());
}

// Without an authority nothing is checked, so the reason is another one, and only this connection is lost.
TEST_F(TlsClientTest, AFailureIsNotTakenForABadCertificate) {
  Server server(identity_, TLS1_2_VERSION, true);
  TlsContext unchecked = context("");
  TlsClient client(unchecked);
  Status talked = talk(client, server);
  ASSERT_FALSE(talked);
  EXPECT_EQ(talked.error().code, Errc::unavailable);
  EXPECT_EQ(talked.error().message.find("certificate is refused"), std::string::npos)
      << talked.error().message;
}

// TLS 1.2 lets a server ask for a new handshake. The client refuses, and goes on or fails; it does not stop
// the program.
TEST_F(TlsClientTest, ARenegotiationIsRefused) {
  Server server(identity_, TLS1_2_VERSION, false);
  TlsContext unchecked = context("");
  TlsClient client(unchecked);
  ASSERT_TRUE(talk(client, server));
  ASSERT_TRUE(client.feed(server.renegotiate()));
  (void)read(client);
  EXPECT_TRUE(client.established());
  EXPECT_TRUE(client.write("QUIT\r\n"));
}

TEST_F(TlsClientTest, ADamagedRecordIsAnError) {
  Server server(identity_, TLS1_3_VERSION, false);
  TlsContext unchecked = context("");
  TlsClient client(unchecked);
  ASSERT_TRUE(talk(client, server));
  std::string record = server.say("250 hello\r\n");
  record.back() ^= 1;
  ASSERT_TRUE(client.feed(record));
  EXPECT_NE(read(client).find("TLS: "), std::string::npos);
}

}  // namespace
}  // namespace twinloft::mailbench
