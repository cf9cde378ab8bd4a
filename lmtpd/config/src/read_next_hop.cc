#include "read_next_hop.h"

#include <fmt/format.h>

#include <algorithm>

#include "twinloft/lmtpd/proto/path.h"

namespace twinloft::lmtpd {

namespace {

void read_hop_tls(const TomlTable& t, NextHopSettings& hop) {
  std::string tls = "none";
  t.text("tls", tls);
  if (auto parsed = parse_hop_tls(tls))
    hop.spec.tls = *parsed;
  else
    return t.error("tls", parsed.error().message);
  t.path("tls_ca", hop.ca);
  t.path("tls_certificate", hop.certificate);
  t.path("tls_key", hop.key);
  t.text("tls_name", hop.tls_name);
  if (hop.certificate.empty() != hop.key.empty())
    t.error(hop.key.empty() ? "tls_certificate" : "tls_key",
            "needs its counterpart: give tls_certificate and tls_key together");
  for (const char* key : {"tls_ca", "tls_name"})
    if (hop.spec.tls != HopTls::verify && t.has(key))
      t.error(key, "needs tls = \"verify\": otherwise the certificate is not checked");
  for (const char* key : {"tls_certificate", "tls_key"})
    if (hop.spec.tls == HopTls::none && t.has(key)) t.error(key, "needs TLS");
  if (hop.spec.tls != HopTls::verify) return;
  if (hop.tls_name.empty()) hop.tls_name = hop.spec.target.host;
  if (auto normal = normal_domain(hop.tls_name)) hop.tls_name = std::move(*normal);
  if (hop.tls_name.empty()) t.error("tls_name", "is missing: no certificate names a Unix socket");
}

NextHopSettings read_hop(const TomlTable& t, std::string name) {
  NextHopSettings hop;
  t.allow({"address", "tls", "tls_ca", "tls_certificate", "tls_key", "tls_name", "recipient", "xclient",
           "xforward", "smtputf8", "connections", "recipients", "connect_timeout", "reply_timeout",
           "data_timeout", "idle_timeout"});
  NextHopSpec& spec = hop.spec;
  std::string address, recipient = "address";
  t.text("address", address, true);
  auto target = parse_connect_target(with_ascii_host(address));
  if (target)
    spec.target = std::move(*target);
  else if (!address.empty())
    t.error("address", fmt::format("\"{}\": {}", address, target.error().message));
  spec.name = std::move(name);
  read_hop_tls(t, hop);
  t.text("recipient", recipient);
  if (auto parsed = parse_hop_recipient(recipient))
    spec.recipient = *parsed;
  else
    t.error("recipient", parsed.error().message);
  t.flag("xclient", spec.xclient);
  t.flag("xforward", spec.xforward);
  t.flag("smtputf8", spec.smtputf8);
  t.number("connections", 1, 4096, spec.connections_max);
  t.number("recipients", 1, 100'000, spec.recipients_max);
  t.duration("connect_timeout", spec.target.timeout);
  t.duration("reply_timeout", spec.reply_timeout);
  t.duration("data_timeout", spec.data_timeout);
  t.duration("idle_timeout", spec.idle_timeout);
  return hop;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

}  // namespace

void read_next_hops(const TomlTable& top, Config& config) {
  const toml::table* raw = top.child("next_hop");
  if (!raw) return;
  TomlTable hops(top.problems(), *raw, "next_hop");
  for (const auto& [name, value] : *raw) {
    std::string path = "next_hop." + std::string(name.str());
    const toml::table* section = value.as_table();
    if (!section)
      hops.error(name.str(), fmt::format("expected a section [{}]", path));
    else if (!is_name(name.str()))
      hops.error(name.str(), "a next hop's name has letters, digits, \"-\" and \"_\" only");
    else
      config.next_hops.push_back(
          read_hop(TomlTable(top.problems(), *section, path), std::string(name.str())));
  }
}

}  // namespace twinloft::lmtpd
