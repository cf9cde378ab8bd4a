// A certificate authority of one's own, and the certificates that it issues (RFC 5280), in PEM.
//
// Keys are ECDSA on P-256. A certificate of a machine is for both roles of TLS, server and client. The
// authority signs no other authority.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"

namespace twinloft::tls {

struct CertificateAndKey {
  std::string certificate, key;
};

struct Lifetime {
  WallTime now;
  std::int64_t days = 0;  // the certificate begins an hour before `now`, for machines whose clock is behind
};

Result<CertificateAndKey> make_authority(const std::string& name, const Lifetime& lifetime);

struct Holder {
  std::string name;                     // for people
  std::vector<std::string> uris;        // what the certificate is checked for
  std::vector<std::string> hosts = {};  // likewise: names, and numeric addresses
};
// Errors: Errc::invalid (no authority, or a key of another certificate).
Result<CertificateAndKey> issue(const CertificateAndKey& authority, const Holder& holder,
                                const Lifetime& lifetime);
// A certificate for the key, the name and the URIs of an earlier one. Errors: as above, and Errc::invalid (a
// certificate of another authority).
Result<std::string> renew(const CertificateAndKey& authority, const std::string& certificate,
                          const Lifetime& lifetime);

struct CertificateFacts {
  std::string name, issuer;
  std::vector<std::string> uris, hosts;  // hosts: names and numeric addresses
  std::int64_t begins = 0, ends = 0;     // seconds since 1970, UTC
  bool is_authority = false;
};
// Of the first certificate in the text. Errors: Errc::invalid (none).
Result<CertificateFacts> read_certificate(const std::string& pem);

}  // namespace twinloft::tls
