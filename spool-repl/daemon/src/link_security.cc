#include "twinloft/spool-repl/daemon/link_security.h"

#include <sys/stat.h>

#include "twinloft/base/fd.h"

namespace twinloft::repl::daemon {

namespace {

constexpr std::size_t secret_bytes_min = 16, secret_bytes_max = 4096, pem_bytes_max = 1u << 20;
constexpr const char* purpose_of_secret = "twinloft replica 1";

Status check_private(const std::string& path, std::string_view what) {
  struct stat st{};
  if (::stat(path.c_str(), &st) == 0 && (st.st_mode & 077) != 0)
    return fail(Errc::denied, "{}: others may read {}: chmod 600 it", path, what);
  return {};
}

stream::Records records_of(const VolumeSettings& settings) {
  return settings.kernel_tls ? stream::Records::below : stream::Records::openssl;
}

Result<std::shared_ptr<const stream::TlsContext>> read_certificates(const TlsSettings& tls,
                                                                    stream::Records records) {
  TL_TRY(check_private(tls.key, "the private key"));
  stream::TlsMaterial material;
  TL_TRY_ASSIGN(material.certificate, read_file(tls.certificate, pem_bytes_max));
  TL_TRY_ASSIGN(material.key, read_file(tls.key, pem_bytes_max));
  TL_TRY_ASSIGN(material.authorities, read_file(tls.authority, pem_bytes_max));
  auto made = stream::TlsContext::by_certificates(material, records);
  if (!made)
    return fail(Errc::invalid, "{}, {}, {}: {}", tls.certificate, tls.key, tls.authority,
                made.error().message);
  return made;
}

}  // namespace

Result<std::string> read_secret(const std::string& path) {
  if (path.empty()) return std::string();
  TL_TRY(check_private(path, "the shared secret"));
  TL_TRY_ASSIGN(std::string text, read_file(path, secret_bytes_max));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.size() < secret_bytes_min)
    return fail(Errc::invalid, "{}: a shared secret needs at least {} characters", path, secret_bytes_min);
  return text;
}

Result<net::LinkSecurity> read_link_security(const VolumeSettings& settings) {
  net::LinkSecurity out;
  TL_TRY_ASSIGN(std::string secret, read_secret(settings.secret_file));
  if (!settings.tls.certificate.empty()) {
    TL_TRY_ASSIGN(out.tls, read_certificates(settings.tls, records_of(settings)));
  } else if (!secret.empty()) {
    TL_TRY_ASSIGN(out.tls, stream::TlsContext::by_secret(secret, purpose_of_secret, records_of(settings)));
  }
  if (settings.accept_old_release) out.old_secret = secret;
  return out;
}

Result<std::shared_ptr<const stream::TlsContext>> read_nbd_tls(const VolumeSettings& settings) {
  if (!settings.nbd_has_tls()) return nullptr;
  // Not by the kernel: a client that has ended its output still gets all of its answers, however slowly it
  // reads.
  return read_certificates(settings.nbd_tls, stream::Records::openssl);
}

Result<Security> read_security(const VolumeSettings& settings) {
  Security out;
  TL_TRY_ASSIGN(out.links, read_link_security(settings));
  TL_TRY_ASSIGN(out.nbd, read_nbd_tls(settings));
  return out;
}

}  // namespace twinloft::repl::daemon
