#include "twinloft/lmtpd/milter/agreement.h"

#include <utility>

namespace twinloft::lmtpd::milter {

namespace {

MacroNames split_names(std::string_view text) {
  MacroNames names;
  while (!text.empty() && names.size() < macros_chosen_max) {
    std::size_t end = text.find_first_of(" ,");
    if (end != 0) names.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return names;
}

// The flags of an event: not wanted, and not answered. A filter of version 3 and older knows fewer events.
struct Flags {
  std::uint32_t unwanted = 0, silent = 0;
};
struct FlagsOf {
  Flags operator()(const Connect&) const { return {wish::no_connect, wish::silent_connect}; }
  Flags operator()(const Helo&) const { return {wish::no_helo, wish::silent_helo}; }
  Flags operator()(const Mail&) const { return {wish::no_mail, wish::silent_mail}; }
  Flags operator()(const Rcpt&) const { return {wish::no_rcpt, wish::silent_rcpt}; }
  Flags operator()(const Data&) const { return {wish::no_data, wish::silent_data}; }
  Flags operator()(const Header&) const { return {wish::no_headers, wish::silent_header}; }
  Flags operator()(const EndOfHeaders&) const {
    return {wish::no_end_of_headers, wish::silent_end_of_headers};
  }
  Flags operator()(const BodyChunk&) const { return {wish::no_body, wish::silent_body}; }
  Flags operator()(const EndOfBody&) const { return {}; }
};

constexpr std::uint32_t version_with_data = 4;  // the event DATA (Sendmail 8.13)

}  // namespace

std::string offer() {
  std::string data, out;
  append_number(data, version_newest);
  append_number(data, may::all);
  append_number(data, wish::all);
  append_packet(out, command::negotiate, data);
  return out;
}

Result<Agreement> parse_agreement(const Packet& packet) {
  if (packet.kind != command::negotiate) return fail(Errc::invalid, "no answer to the negotiation");
  DataReader in(packet.data);
  Agreement agreed;
  agreed.version = in.number();
  agreed.rights = in.number();
  agreed.wishes = in.number();
  if (!in.ok()) return fail(Errc::invalid, "the answer to the negotiation has {} bytes", packet.data.size());
  if (agreed.version < version_oldest || agreed.version > version_newest)
    return fail(Errc::invalid, "version {} of the milter protocol; {} to {} are supported", agreed.version,
                version_oldest, version_newest);
  if (std::uint32_t unknown = agreed.rights & ~may::all)
    return fail(Errc::invalid, "the filter wants the unknown actions {:#x}", unknown);
  if (std::uint32_t unknown = agreed.wishes & ~wish::all)
    return fail(Errc::invalid, "the filter wants the unknown protocol steps {:#x}", unknown);
  if (agreed.version <= version_oldest) agreed.wishes &= wish::of_version_2;
  while (!in.at_end()) {
    std::uint32_t stage = in.number();
    std::string_view names = in.text();
    if (!in.ok() || stage >= macro_stages)
      return fail(Errc::invalid, "the filter's list of macros is malformed");
    agreed.macros[stage] = split_names(names);
  }
  return agreed;
}

bool is_unwanted(const Agreement& agreement, const Event& event) {
  if (std::holds_alternative<Data>(event) && agreement.version < version_with_data) return true;
  if (const Rcpt* rcpt = std::get_if<Rcpt>(&event);
      rcpt && rcpt->refused && !agreement.wants(wish::refused_recipients))
    return true;
  return agreement.wants(std::visit(FlagsOf{}, event).unwanted);
}

bool is_silent(const Agreement& agreement, const Event& event) {
  return agreement.wants(std::visit(FlagsOf{}, event).silent);
}

}  // namespace twinloft::lmtpd::milter
