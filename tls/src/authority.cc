#include "twinloft/tls/authority.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "twinloft/tls/names.h"
#include "twinloft/tls/pem.h"

namespace twinloft::tls {

namespace {

using OwnedNumber = std::unique_ptr<BIGNUM, Freed<BIGNUM, BN_free>>;
using OwnedExtension = std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION, X509_EXTENSION_free>>;

constexpr std::int64_t day = 86'400, begins_before = 3'600;
constexpr int serial_bits = 127;            // a positive number of at most 20 octets (RFC 5280, 4.1.2.2)
constexpr std::size_t name_bytes_max = 64;  // ub-common-name

std::string text_of(BIO* bio) {
  char* data = nullptr;
  long bytes = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(bytes)};
}

Result<std::string> as_pem(X509* certificate) {
  OwnedBio bio(BIO_new(BIO_s_mem()));
  if (!bio || PEM_write_bio_X509(bio.get(), certificate) != 1) return bad_tls("writing a certificate");
  return text_of(bio.get());
}

Result<std::string> as_pem(EVP_PKEY* key) {
  OwnedBio bio(BIO_new(BIO_s_mem()));
  if (!bio || PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return bad_tls("writing a key");
  return text_of(bio.get());
}

Status add(X509* certificate, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  OwnedExtension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  if (!extension || X509_add_ext(certificate, extension.get(), -1) != 1)
    return bad_tls("an extension of a certificate");
  return {};
}

using OwnedNames = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES, GENERAL_NAMES_free>>;

Status push(GENERAL_NAMES* names, int kind, ASN1_STRING* value) {
  GENERAL_NAME* name = GENERAL_NAME_new();
  if (!name || !value) return bad_tls("a name of a certificate");
  GENERAL_NAME_set0_value(name, kind, value);
  if (sk_GENERAL_NAME_push(names, name) <= 0) return bad_tls("a name of a certificate");
  return {};
}

Status push_text(GENERAL_NAMES* names, int kind, const std::string& text) {
  ASN1_IA5STRING* value = ASN1_IA5STRING_new();
  if (!value || ASN1_STRING_set(value, text.data(), static_cast<int>(text.size())) != 1)
    return bad_tls("a name of a certificate");
  return push(names, kind, value);
}

// Not by the text of an extension: a name could contain its separators.
Status add_names(X509* certificate, const Holder& holder) {
  OwnedNames names(sk_GENERAL_NAME_new_null());
  for (const std::string& uri : holder.uris) TL_TRY(push_text(names.get(), GEN_URI, uri));
  for (const std::string& host : holder.hosts) {
    if (ASN1_OCTET_STRING* address = a2i_IPADDRESS(host.c_str()))
      TL_TRY(push(names.get(), GEN_IPADD, address));
    else
      TL_TRY(push_text(names.get(), GEN_DNS, host));
  }
  ERR_clear_error();
  if (sk_GENERAL_NAME_num(names.get()) == 0) return {};
  if (X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, 0) != 1)
    return bad_tls("the names of a certificate");
  return {};
}

Status set_serial(X509* certificate) {
  OwnedNumber serial(BN_new());
  if (!serial || BN_rand(serial.get(), serial_bits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) != 1 ||
      !BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate)))
    return bad_tls("a serial number");
  return {};
}

Status set_lifetime(X509* certificate, const Lifetime& lifetime) {
  if (lifetime.days <= 0) return fail(Errc::invalid, "a certificate has at least one day");
  std::int64_t now = lifetime.now.seconds;
  if (!ASN1_TIME_set(X509_getm_notBefore(certificate), now - begins_before) ||
      !ASN1_TIME_set(X509_getm_notAfter(certificate), now + lifetime.days * day))
    return bad_tls("the lifetime of a certificate");
  return {};
}

Status set_name(X509* certificate, const std::string& name) {
  if (name.empty() || name.size() > name_bytes_max)
    return fail(Errc::invalid, "\"{}\": the name of a certificate has 1 to {} bytes", name, name_bytes_max);
  if (X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate), NID_commonName, MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(name.data()),
                                 static_cast<int>(name.size()), -1, 0) != 1)
    return bad_tls("the name of a certificate");
  return {};
}

// Without its extensions, its issuer and its signature.
Result<OwnedX509> begin(const std::string& name, EVP_PKEY* key, const Lifetime& lifetime) {
  OwnedX509 out(X509_new());
  if (!out || X509_set_version(out.get(), X509_VERSION_3) != 1 || X509_set_pubkey(out.get(), key) != 1)
    return bad_tls("a certificate");
  TL_TRY(set_serial(out.get()));
  TL_TRY(set_lifetime(out.get(), lifetime));
  TL_TRY(set_name(out.get(), name));
  return out;
}

Result<OwnedKey> new_key() {
  OwnedKey key(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"));
  if (!key) return bad_tls("a new key");
  return key;
}

struct Signer {
  OwnedX509 certificate;
  OwnedKey key;
};

Result<Signer> read_authority(const CertificateAndKey& pem) {
  TL_TRY_ASSIGN(OwnedX509 certificate, read_x509(pem.certificate, "the authority's certificate"));
  TL_TRY_ASSIGN(OwnedKey key, read_key(pem.key, "the authority's key"));
  if (X509_check_private_key(certificate.get(), key.get()) != 1)
    return bad_tls("the authority's key is not its certificate's");
  if (X509_check_ca(certificate.get()) != 1)
    return fail(Errc::invalid, "the authority's certificate is not one of an authority");
  return Signer{std::move(certificate), std::move(key)};
}

Result<std::string> sign_leaf(const Signer& signer, X509* leaf, const Holder& holder) {
  if (X509_set_issuer_name(leaf, X509_get_subject_name(signer.certificate.get())) != 1)
    return bad_tls("the issuer of a certificate");
  X509* issuer = signer.certificate.get();
  // A certificate is not valid after the end of its authority.
  const ASN1_TIME* last = X509_get0_notAfter(issuer);
  if (ASN1_TIME_compare(X509_get0_notAfter(leaf), last) > 0 && X509_set1_notAfter(leaf, last) != 1)
    return bad_tls("the lifetime of a certificate");
  TL_TRY(add(leaf, issuer, NID_basic_constraints, "critical,CA:FALSE"));
  TL_TRY(add(leaf, issuer, NID_key_usage, "critical,digitalSignature"));
  TL_TRY(add(leaf, issuer, NID_ext_key_usage, "serverAuth,clientAuth"));
  TL_TRY(add(leaf, issuer, NID_subject_key_identifier, "hash"));
  TL_TRY(add(leaf, issuer, NID_authority_key_identifier, "keyid:always"));
  TL_TRY(add_names(leaf, holder));
  if (X509_sign(leaf, signer.key.get(), EVP_sha256()) == 0) return bad_tls("signing a certificate");
  return as_pem(leaf);
}

}  // namespace

Result<CertificateAndKey> make_authority(const std::string& name, const Lifetime& lifetime) {
  TL_TRY_ASSIGN(OwnedKey key, new_key());
  TL_TRY_ASSIGN(OwnedX509 own, begin(name, key.get(), lifetime));
  if (X509_set_issuer_name(own.get(), X509_get_subject_name(own.get())) != 1)
    return bad_tls("the issuer of a certificate");
  TL_TRY(add(own.get(), own.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  TL_TRY(add(own.get(), own.get(), NID_key_usage, "critical,keyCertSign,cRLSign"));
  TL_TRY(add(own.get(), own.get(), NID_subject_key_identifier, "hash"));
  if (X509_sign(own.get(), key.get(), EVP_sha256()) == 0) return bad_tls("signing a certificate");
  CertificateAndKey out;
  TL_TRY_ASSIGN(out.certificate, as_pem(own.get()));
  TL_TRY_ASSIGN(out.key, as_pem(key.get()));
  return out;
}

Result<CertificateAndKey> issue(const CertificateAndKey& authority, const Holder& holder,
                                const Lifetime& lifetime) {
  TL_TRY_ASSIGN(Signer signer, read_authority(authority));
  TL_TRY_ASSIGN(OwnedKey key, new_key());
  TL_TRY_ASSIGN(OwnedX509 leaf, begin(holder.name, key.get(), lifetime));
  CertificateAndKey out;
  TL_TRY_ASSIGN(out.certificate, sign_leaf(signer, leaf.get(), holder));
  TL_TRY_ASSIGN(out.key, as_pem(key.get()));
  return out;
}

Result<std::string> renew(const CertificateAndKey& authority, const std::string& certificate,
                          const Lifetime& lifetime) {
  TL_TRY_ASSIGN(Signer signer, read_authority(authority));
  TL_TRY_ASSIGN(OwnedX509 before, read_x509(certificate, "the certificate"));
  if (X509_check_ca(before.get()) != 0)
    return fail(Errc::invalid, "the certificate is an authority's, which nobody signs again: make another");
  if (X509_check_issued(signer.certificate.get(), before.get()) != X509_V_OK ||
      X509_verify(before.get(), signer.key.get()) != 1) {
    ERR_clear_error();
    return fail(Errc::invalid, "the certificate is of another authority");
  }
  Holder holder{common_name_of(X509_get_subject_name(before.get())), uris_of(before.get()),
                hosts_of(before.get())};
  TL_TRY_ASSIGN(OwnedX509 leaf, begin(holder.name, X509_get0_pubkey(before.get()), lifetime));
  return sign_leaf(signer, leaf.get(), holder);
}

Result<CertificateFacts> read_certificate(const std::string& pem) {
  TL_TRY_ASSIGN(OwnedX509 certificate, read_x509(pem, "the certificate"));
  X509* x = certificate.get();
  return CertificateFacts{common_name_of(X509_get_subject_name(x)),
                          common_name_of(X509_get_issuer_name(x)),
                          uris_of(x),
                          hosts_of(x),
                          seconds_of(X509_get0_notBefore(x)),
                          seconds_of(X509_get0_notAfter(x)),
                          X509_check_ca(x) == 1};
}

}  // namespace twinloft::tls
