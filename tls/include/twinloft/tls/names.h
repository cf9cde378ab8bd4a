// What a certificate says: its names and its end.
#pragma once

#include <openssl/x509.h>

#include <cstdint>
#include <string>
#include <vector>

namespace twinloft::tls {

std::vector<std::string> uris_of(const X509* certificate);
std::vector<std::string> hosts_of(const X509* certificate);  // names, then numeric addresses
std::string common_name_of(const X509_NAME* name);
// Seconds since 1970, UTC. 0: not a valid time.
std::int64_t seconds_of(const ASN1_TIME* time);
// Whether the certificate is for the host, a name or a numeric address, by its alternative names. A wildcard
// does not count.
bool is_for_host(X509* certificate, const std::string& host);
bool is_for_address(X509* certificate, const std::string& address);

}  // namespace twinloft::tls
