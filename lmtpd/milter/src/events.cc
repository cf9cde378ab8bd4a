#include "twinloft/lmtpd/milter/events.h"

#include <algorithm>

#include "twinloft/base/check.h"
#include "twinloft/lmtpd/milter/packet.h"

namespace twinloft::lmtpd::milter {

namespace {

// A NUL byte would end the text early, and hide the rest from the filter.
void append_text(std::string& out, std::string_view text) {
  const std::size_t begin = out.size();
  out += text;
  std::replace(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(), '\0', '?');
  out += '\0';
}

std::string bracketed(std::string_view address) {
  return fmt::format("<{}>", address);
}

// Cuts what would not fit a packet. The filter still sees the begin of it.
std::string_view fitting(std::string_view text, std::size_t used) {
  return text.substr(0, data_bytes_max - used - 1);
}

struct DataOf {
  std::string& out;
  void operator()(const Connect& e) const {
    append_text(out, e.host);
    out += static_cast<char>(e.family);
    if (e.family == Connect::Family::unknown) return;
    out += static_cast<char>(e.port >> 8);
    out += static_cast<char>(e.port & 0xff);
    append_text(out, e.address);
  }
  void operator()(const Helo& e) const { append_text(out, e.name); }
  void operator()(const Mail& e) const { path(e.sender, e.parameters); }
  void operator()(const Rcpt& e) const { path(e.recipient, e.parameters); }
  void operator()(const Header& e) const {
    append_text(out, e.name.substr(0, data_bytes_max / 2));
    append_text(out, fitting(e.value, out.size()));
  }
  void operator()(const BodyChunk& e) const { out = e.bytes; }
  void operator()(const Data&) const {}
  void operator()(const EndOfHeaders&) const {}
  void operator()(const EndOfBody&) const {}
  void path(const std::string& address, const std::vector<std::string>& parameters) const {
    append_text(out, bracketed(address));
    for (const std::string& p : parameters) append_text(out, p);
  }
};

}  // namespace

std::optional<MacroStage> macro_stage_of(const Event& event) {
  struct {
    std::optional<MacroStage> operator()(const Connect&) const { return MacroStage::connect; }
    std::optional<MacroStage> operator()(const Helo&) const { return MacroStage::helo; }
    std::optional<MacroStage> operator()(const Mail&) const { return MacroStage::mail; }
    std::optional<MacroStage> operator()(const Rcpt&) const { return MacroStage::rcpt; }
    std::optional<MacroStage> operator()(const Data&) const { return MacroStage::data; }
    std::optional<MacroStage> operator()(const Header&) const { return std::nullopt; }
    std::optional<MacroStage> operator()(const EndOfHeaders&) const { return MacroStage::end_of_headers; }
    std::optional<MacroStage> operator()(const BodyChunk&) const { return std::nullopt; }
    std::optional<MacroStage> operator()(const EndOfBody&) const { return MacroStage::end_of_body; }
  } stage;
  return std::visit(stage, event);
}

const MacroNames& usual_macros(MacroStage stage) {
  static const std::array<MacroNames, macro_stages> names = {{
      {"j", "{daemon_name}", "{daemon_addr}", "v", "_", "{client_addr}", "{client_name}", "{client_ptr}",
       "{client_port}"},
      {"{tls_version}", "{cipher}", "{cipher_bits}", "{cert_subject}", "{cert_issuer}"},
      {"i", "{auth_type}", "{auth_authen}", "{auth_author}", "{mail_addr}", "{mail_host}", "{mail_mailer}"},
      {"{rcpt_addr}", "{rcpt_host}", "{rcpt_mailer}"},
      {"i"},
      {"i"},
      {"i"},
  }};
  return names[static_cast<std::size_t>(stage)];
}

char command_of(const Event& event) {
  struct {
    char operator()(const Connect&) const { return command::connect; }
    char operator()(const Helo&) const { return command::helo; }
    char operator()(const Mail&) const { return command::mail; }
    char operator()(const Rcpt&) const { return command::rcpt; }
    char operator()(const Data&) const { return command::data; }
    char operator()(const Header&) const { return command::header; }
    char operator()(const EndOfHeaders&) const { return command::end_of_headers; }
    char operator()(const BodyChunk&) const { return command::body; }
    char operator()(const EndOfBody&) const { return command::end_of_body; }
  } command;
  return std::visit(command, event);
}

void append_event(std::string& out, const Event& event) {
  std::string data;
  std::visit(DataOf{data}, event);
  append_packet(out, command_of(event), data);
}

void append_macros(std::string& out, const Event& event, const MacroNames& names, const Macros& values) {
  std::string data(1, command_of(event));
  for (const std::string& name : names) {
    auto found = values.find(name);
    if (found == values.end() || found->second.empty()) continue;
    if (data.size() + name.size() + found->second.size() + 2 > data_bytes_max) continue;
    append_text(data, name);
    append_text(data, found->second);
  }
  if (data.size() > 1) append_packet(out, command::macros, data);
}

}  // namespace twinloft::lmtpd::milter
