// An authority of one's own, and what it issues, verified by OpenSSL.
#include "twinloft/tls/authority.h"

#include <gtest/gtest.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include "twinloft/tls/names.h"
#include "twinloft/tls/pem.h"

namespace twinloft::tls {
namespace {

constexpr WallTime now{1'800'000'000, 0};
constexpr std::int64_t day = 86'400;
const Holder holder{"mail replica 1",
                    {"twinloft:a", "twinloft:b,URI:twinloft:c"},
                    {"mail1.example.org", "192.0.2.1", "2001:db8::1"}};

// X509_V_OK or the reason. purpose: X509_PURPOSE_SSL_CLIENT, X509_PURPOSE_SSL_SERVER.
int verified(const std::string& authority, const std::string& certificate, int purpose, std::int64_t at) {
  auto ca = read_x509(authority, "ca").value(), leaf = read_x509(certificate, "leaf").value();
  std::unique_ptr<X509_STORE, Freed<X509_STORE, X509_STORE_free>> store(X509_STORE_new());
  X509_STORE_add_cert(store.get(), ca.get());
  std::unique_ptr<X509_STORE_CTX, Freed<X509_STORE_CTX, X509_STORE_CTX_free>> work(X509_STORE_CTX_new());
  X509_STORE_CTX_init(work.get(), store.get(), leaf.get(), nullptr);
  X509_STORE_CTX_set_time(work.get(), 0, at);
  X509_STORE_CTX_set_purpose(work.get(), purpose);
  X509_VERIFY_PARAM_set_flags(X509_STORE_CTX_get0_param(work.get()), X509_V_FLAG_X509_STRICT);
  X509_verify_cert(work.get());
  return X509_STORE_CTX_get_error(work.get());
}

struct AuthorityTest : testing::Test {
  CertificateAndKey authority = make_authority("Twinloft", {now, 3650}).value();
};

TEST_F(AuthorityTest, ACertificateIsGoodForBothRolesForItsTime) {
  auto made = issue(authority, holder, {now, 30});
  ASSERT_TRUE(made) << made.error().message;
  for (int purpose : {X509_PURPOSE_SSL_CLIENT, X509_PURPOSE_SSL_SERVER}) {
    EXPECT_EQ(verified(authority.certificate, made->certificate, purpose, now.seconds), X509_V_OK);
    EXPECT_EQ(verified(authority.certificate, made->certificate, purpose, now.seconds - 3'599), X509_V_OK);
    EXPECT_EQ(verified(authority.certificate, made->certificate, purpose, now.seconds + 30 * day - 1),
              X509_V_OK);
    EXPECT_EQ(verified(authority.certificate, made->certificate, purpose, now.seconds + 30 * day + 1),
              X509_V_ERR_CERT_HAS_EXPIRED);
    EXPECT_EQ(verified(authority.certificate, made->certificate, purpose, now.seconds - 2 * day),
              X509_V_ERR_CERT_NOT_YET_VALID);
  }
  auto other = make_authority("Twinloft", {now, 3650}).value();
  EXPECT_NE(verified(other.certificate, made->certificate, X509_PURPOSE_SSL_CLIENT, now.seconds), X509_V_OK);
}

TEST_F(AuthorityTest, TheNamesAreAsGiven) {
  auto made = issue(authority, holder, {now, 30}).value();
  auto facts = read_certificate(made.certificate).value();
  EXPECT_EQ(facts.name, holder.name);
  EXPECT_EQ(facts.issuer, "Twinloft");
  EXPECT_EQ(facts.uris, holder.uris) << "a separator in a name does not make two names";
  EXPECT_EQ(facts.hosts, holder.hosts);
  EXPECT_EQ(facts.begins, now.seconds - 3'600);
  EXPECT_EQ(facts.ends, now.seconds + 30 * day);
  EXPECT_FALSE(facts.is_authority);
  EXPECT_TRUE(read_certificate(authority.certificate)->is_authority);
  EXPECT_NE(issue(authority, holder, {now, 30})->key, made.key);
}

TEST_F(AuthorityTest, NoCertificateOutlivesItsAuthority) {
  auto brief = make_authority("Twinloft", {now, 10}).value();
  auto made = issue(brief, holder, {now, 30}).value();
  EXPECT_EQ(read_certificate(made.certificate)->ends, now.seconds + 10 * day);
  EXPECT_EQ(read_certificate(*renew(brief, made.certificate, {now, 40}))->ends, now.seconds + 10 * day);
}

// The name for people is none that is checked.
TEST_F(AuthorityTest, TheCommonNameIsNoHost) {
  auto leaf = read_x509(issue(authority, {"mail1.example.org", {"twinloft:a"}}, {now, 30})->certificate, "x")
                  .value();
  EXPECT_FALSE(is_for_host(leaf.get(), "mail1.example.org"));
}

TEST_F(AuthorityTest, HostsAreNamesOrAddresses) {
  auto leaf = read_x509(issue(authority, holder, {now, 30})->certificate, "leaf").value();
  for (const std::string& host : holder.hosts) EXPECT_TRUE(is_for_host(leaf.get(), host)) << host;
  for (const char* other :
       {"", "mail2.example.org", "example.org", "192.0.2.2", "2001:db8::2", "twinloft:a", ".example.org"})
    EXPECT_FALSE(is_for_host(leaf.get(), other)) << other;
}

TEST_F(AuthorityTest, ARenewalKeepsKeyAndNames) {
  auto before = issue(authority, holder, {now, 30}).value();
  WallTime later{now.seconds + 40 * day, 0};
  auto renewed = renew(authority, before.certificate, {later, 30});
  ASSERT_TRUE(renewed) << renewed.error().message;
  EXPECT_EQ(verified(authority.certificate, *renewed, X509_PURPOSE_SSL_SERVER, later.seconds), X509_V_OK);
  auto facts = read_certificate(*renewed).value();
  EXPECT_EQ(facts.name, holder.name);
  EXPECT_EQ(facts.uris, holder.uris);
  EXPECT_EQ(facts.hosts, holder.hosts);
  auto key = read_key(before.key, "key").value();
  EXPECT_EQ(X509_check_private_key(read_x509(*renewed, "x")->get(), key.get()), 1);
}

TEST_F(AuthorityTest, WhatIsNotAnAuthorityIssuesNothing) {
  auto other = make_authority("Twinloft", {now, 3650}).value();
  auto leaf = issue(authority, holder, {now, 30}).value();
  auto refused = [](auto result, std::string_view why) {
    return !result && result.error().code == Errc::invalid &&
           result.error().message.find(why) != std::string::npos;
  };
  EXPECT_TRUE(refused(issue(leaf, holder, {now, 1}), "is not one of an authority"));
  EXPECT_TRUE(
      refused(issue({authority.certificate, other.key}, holder, {now, 1}), "is not its certificate's"));
  EXPECT_TRUE(refused(issue({"", authority.key}, holder, {now, 1}), "the authority's certificate"));
  EXPECT_TRUE(refused(issue({authority.certificate, "x"}, holder, {now, 1}), "the authority's key"));
  EXPECT_TRUE(refused(renew(other, leaf.certificate, {now, 1}), "of another authority"));
  EXPECT_TRUE(refused(renew(authority, authority.certificate, {now, 1}), "is an authority's"));
  EXPECT_TRUE(refused(issue(authority, holder, {now, 0}), "at least one day"));
  EXPECT_TRUE(refused(issue(authority, {std::string(65, 'x'), {}}, {now, 1}), "64 bytes"));
  EXPECT_TRUE(refused(issue(authority, {"", {}}, {now, 1}), "64 bytes"));
  EXPECT_TRUE(refused(read_certificate("no certificate"), "the certificate"));
}

}  // namespace
}  // namespace twinloft::tls
