// What an MTA says to a filter, and the macros that it sends before (libmilter's smfi_getsymval).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "twinloft/lmtpd/milter/protocol.h"

namespace twinloft::lmtpd::milter {

// The client of the MTA.
struct Connect {
  enum class Family : char { unknown = 'U', unix_socket = 'L', ipv4 = '4', ipv6 = '6' };
  std::string host;  // its name, or its address in brackets
  Family family = Family::unknown;
  std::uint16_t port = 0;
  std::string address;  // numeric, or the path of a socket; empty if the family is unknown
  bool operator==(const Connect&) const = default;
};
struct Helo {
  std::string name;
};
struct Mail {
  std::string sender;                   // without brackets; empty: the null sender
  std::vector<std::string> parameters;  // "SIZE=1000"
};
struct Rcpt {
  std::string recipient;  // without brackets
  std::vector<std::string> parameters;
  bool refused = false;  // by the MTA
};
struct Data {};
// A value is without its last line end. Between its lines is one LF. A value that is longer than a packet
// allows is cut.
struct Header {
  std::string_view name, value;
};
struct EndOfHeaders {};
struct BodyChunk {
  std::string_view bytes;  // at most data_bytes_max, with CR LF line ends
};
struct EndOfBody {};
using Event = std::variant<Connect, Helo, Mail, Rcpt, Data, Header, EndOfHeaders, BodyChunk, EndOfBody>;

// The stages for which a filter may choose macros (SMFIM_*), in the numbers of the protocol.
enum class MacroStage : std::uint32_t { connect, helo, mail, rcpt, data, end_of_body, end_of_headers };
inline constexpr std::size_t macro_stages = 7;
inline constexpr std::size_t macros_chosen_max = 64;  // names for a stage

// Names are with braces if they are longer than one letter: "i", "{client_addr}".
using Macros = std::map<std::string, std::string, std::less<>>;
using MacroNames = std::vector<std::string>;
using ChosenMacros = std::array<std::optional<MacroNames>, macro_stages>;

// The stage whose macros precede this event. nullopt: none.
std::optional<MacroStage> macro_stage_of(const Event& event);
// The names for a filter that has not chosen any, as Sendmail and Postfix send them.
const MacroNames& usual_macros(MacroStage stage);

// The byte of the event's packet (command::*).
char command_of(const Event& event);
// Appends the packet of the event.
void append_event(std::string& out, const Event& event);
// Appends the packet with the values of these macros for the event. Macros without a value are left out; no
// packet if none is left.
void append_macros(std::string& out, const Event& event, const MacroNames& names, const Macros& values);

}  // namespace twinloft::lmtpd::milter
