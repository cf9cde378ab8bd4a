#include "twinloft/tls/names.h"

#include <arpa/inet.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string_view>

#include "twinloft/tls/pem.h"

namespace twinloft::tls {

namespace {

using OwnedNames = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES, GENERAL_NAMES_free>>;

std::string text_of(const ASN1_STRING* value) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
          static_cast<std::size_t>(ASN1_STRING_length(value))};
}

std::string address_of(const ASN1_STRING* value) {
  char text[INET6_ADDRSTRLEN] = "";
  int family = ASN1_STRING_length(value) == 4 ? AF_INET : AF_INET6;
  if (family == AF_INET6 && ASN1_STRING_length(value) != 16) return "?";
  ::inet_ntop(family, ASN1_STRING_get0_data(value), text, sizeof text);
  return text;
}

std::vector<std::string> names_of(const X509* certificate, int type) {
  OwnedNames names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> out;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    int found = 0;
    const auto* value = static_cast<const ASN1_STRING*>(
        GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &found));
    if (found == type) out.push_back(type == GEN_IPADD ? address_of(value) : text_of(value));
  }
  return out;
}

}  // namespace

std::vector<std::string> uris_of(const X509* certificate) {
  return names_of(certificate, GEN_URI);
}

std::vector<std::string> hosts_of(const X509* certificate) {
  std::vector<std::string> out = names_of(certificate, GEN_DNS);
  for (std::string& address : names_of(certificate, GEN_IPADD)) out.push_back(std::move(address));
  return out;
}

std::string common_name_of(const X509_NAME* name) {
  int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
  if (at < 0) return "";
  return text_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
}

std::int64_t seconds_of(const ASN1_TIME* time) {
  std::unique_ptr<ASN1_TIME, Freed<ASN1_TIME, ASN1_TIME_free>> epoch(ASN1_TIME_set(nullptr, 0));
  int days = 0, seconds = 0;
  if (ASN1_TIME_diff(&days, &seconds, epoch.get(), time) != 1) return 0;
  return std::int64_t{days} * 86'400 + seconds;
}

bool is_for_host(X509* certificate, const std::string& host) {
  // OpenSSL takes a name that begins with a dot for every host below it.
  if (host.empty() || host[0] == '.') return false;
  constexpr unsigned flags = X509_CHECK_FLAG_NO_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT;
  return is_for_address(certificate, host) ||
         X509_check_host(certificate, host.data(), host.size(), flags, nullptr) == 1;
}

bool is_for_address(X509* certificate, const std::string& address) {
  return X509_check_ip_asc(certificate, address.c_str(), 0) == 1;
}

}  // namespace twinloft::tls
