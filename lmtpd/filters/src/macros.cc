#include "macros.h"

#include <fmt/format.h>

#include "twinloft/lmtpd/proto/xtext.h"

namespace twinloft::lmtpd {

namespace {

constexpr const char* software = "Twinloft lmtpd";
constexpr const char* unknown_name = "unknown";

std::string domain_of(std::string_view address) {
  std::size_t at = address.rfind('@');
  return at == std::string_view::npos ? std::string() : std::string(address.substr(at + 1));
}

std::string name_of(const FilterClient& client) {
  if (!client.name.empty()) return client.name;
  return client.address.empty() ? unknown_name : fmt::format("[{}]", client.address);
}

// "TLSv1.3 with cipher NAME" (Envelope::tls).
void set_tls_macros(milter::Macros& macros, const std::string& tls) {
  constexpr std::string_view between = " with cipher ";
  std::size_t at = tls.find(between);
  macros["{tls_version}"] = tls.substr(0, at);
  macros["{cipher}"] = at == std::string::npos ? "" : tls.substr(at + between.size());
}

}  // namespace

void set_client_macros(milter::Macros& macros, const std::string& hostname, const FilterClient& client) {
  macros["j"] = hostname;
  macros["v"] = software;
  macros["{daemon_name}"] = hostname;
  macros["{client_name}"] = name_of(client);
  macros["{client_ptr}"] = client.name.empty() ? unknown_name : client.name;
  macros["{client_addr}"] = client.address;
  macros["{client_port}"] = client.port > 0 ? fmt::format("{}", client.port) : "";
  macros["_"] = client.address.empty()
                    ? name_of(client)
                    : fmt::format("{} [{}]", client.name.empty() ? unknown_name : client.name,
                                  client.address);
  set_tls_macros(macros, client.tls);
}

void set_mail_macros(milter::Macros& macros, const Envelope& envelope) {
  macros["i"] = envelope.id;
  macros["{mail_addr}"] = envelope.from;
  macros["{mail_host}"] = domain_of(envelope.from);
  macros["{mail_mailer}"] = "lmtp";
}

void set_rcpt_macros(milter::Macros& macros, const FilterRcpt& rcpt) {
  macros["{rcpt_addr}"] = rcpt.recipient;
  macros["{rcpt_host}"] = domain_of(rcpt.recipient);
  macros["{rcpt_mailer}"] = rcpt.refused ? "error" : "lmtp";
}

milter::Connect connect_event(const FilterClient& client) {
  using Family = milter::Connect::Family;
  if (client.address.empty()) return {name_of(client), Family::unknown, 0, {}};
  const bool ipv6 = client.address.find(':') != std::string::npos;
  return {name_of(client), ipv6 ? Family::ipv6 : Family::ipv4, client.port, client.address};
}

milter::Mail mail_event(const FilterMail& mail) {
  const Envelope& envelope = *mail.envelope;
  milter::Mail out{envelope.from, {}};
  if (mail.size > 0) out.parameters.push_back(fmt::format("SIZE={}", mail.size));
  if (envelope.body_8bitmime) out.parameters.emplace_back("BODY=8BITMIME");
  if (envelope.smtputf8) out.parameters.emplace_back("SMTPUTF8");
  if (!envelope.ret.empty()) out.parameters.push_back("RET=" + envelope.ret);
  if (!envelope.envelope_id.empty()) out.parameters.push_back("ENVID=" + encode_xtext(envelope.envelope_id));
  return out;
}

}  // namespace twinloft::lmtpd
