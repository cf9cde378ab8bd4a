// The numbers of the milter protocol, version 6. Source: libmilter's mfdef.h and mfapi.h (Sendmail 8.14 and
// later).
//
// A packet is a length (4 bytes, big-endian), a byte that names its kind, and data of length - 1 bytes. Texts
// end with a NUL byte. A number is 4 bytes, big-endian.
#pragma once

#include <cstddef>
#include <cstdint>

namespace twinloft::lmtpd::milter {

inline constexpr std::uint32_t version_newest = 6;
inline constexpr std::uint32_t version_oldest = 2;

// The data of a packet to a filter has at most these bytes: libmilter refuses more (MILTER_MAX_DATA_SIZE).
inline constexpr std::size_t data_bytes_max = 65535;

// Kinds of packets to a filter (SMFIC_*).
namespace command {
inline constexpr char abort = 'A';
inline constexpr char body = 'B';
inline constexpr char connect = 'C';
inline constexpr char macros = 'D';
inline constexpr char end_of_body = 'E';
inline constexpr char helo = 'H';
inline constexpr char quit_for_another_client = 'K';
inline constexpr char header = 'L';
inline constexpr char mail = 'M';
inline constexpr char end_of_headers = 'N';
inline constexpr char negotiate = 'O';
inline constexpr char quit = 'Q';
inline constexpr char rcpt = 'R';
inline constexpr char data = 'T';
}  // namespace command

// Kinds of packets from a filter (SMFIR_*). The answer to a negotiation has command::negotiate.
namespace answer {
inline constexpr char add_recipient = '+';
inline constexpr char remove_recipient = '-';
inline constexpr char add_recipient_with_parameters = '2';
inline constexpr char shut_down = '4';
inline constexpr char accept = 'a';
inline constexpr char replace_body = 'b';
inline constexpr char continue_ = 'c';
inline constexpr char discard = 'd';
inline constexpr char change_sender = 'e';
inline constexpr char fail_connection = 'f';
inline constexpr char add_header = 'h';
inline constexpr char insert_header = 'i';
inline constexpr char change_header = 'm';
inline constexpr char progress = 'p';
inline constexpr char quarantine = 'q';
inline constexpr char reject = 'r';
inline constexpr char skip = 's';
inline constexpr char tempfail = 't';
inline constexpr char reply_code = 'y';
}  // namespace answer

// What a filter may do with a message (SMFIF_*).
namespace may {
inline constexpr std::uint32_t add_headers = 0x1;
inline constexpr std::uint32_t replace_body = 0x2;
inline constexpr std::uint32_t add_recipients = 0x4;
inline constexpr std::uint32_t remove_recipients = 0x8;
inline constexpr std::uint32_t change_headers = 0x10;
inline constexpr std::uint32_t quarantine = 0x20;
inline constexpr std::uint32_t change_sender = 0x40;
inline constexpr std::uint32_t add_recipients_with_parameters = 0x80;
inline constexpr std::uint32_t choose_macros = 0x100;
inline constexpr std::uint32_t all = 0x1ff;
}  // namespace may

// How a filter wants the events (SMFIP_*): which ones are not sent, and which ones it does not answer.
namespace wish {
inline constexpr std::uint32_t no_connect = 0x1;
inline constexpr std::uint32_t no_helo = 0x2;
inline constexpr std::uint32_t no_mail = 0x4;
inline constexpr std::uint32_t no_rcpt = 0x8;
inline constexpr std::uint32_t no_body = 0x10;
inline constexpr std::uint32_t no_headers = 0x20;
inline constexpr std::uint32_t no_end_of_headers = 0x40;
inline constexpr std::uint32_t silent_header = 0x80;
inline constexpr std::uint32_t no_unknown = 0x100;
inline constexpr std::uint32_t no_data = 0x200;
inline constexpr std::uint32_t may_skip = 0x400;
inline constexpr std::uint32_t refused_recipients = 0x800;
inline constexpr std::uint32_t silent_connect = 0x1000;
inline constexpr std::uint32_t silent_helo = 0x2000;
inline constexpr std::uint32_t silent_mail = 0x4000;
inline constexpr std::uint32_t silent_rcpt = 0x8000;
inline constexpr std::uint32_t silent_data = 0x10000;
inline constexpr std::uint32_t silent_unknown = 0x20000;
inline constexpr std::uint32_t silent_end_of_headers = 0x40000;
inline constexpr std::uint32_t silent_body = 0x80000;
inline constexpr std::uint32_t leading_space = 0x100000;  // header values with the space behind the colon
inline constexpr std::uint32_t all = 0x1fffff;
inline constexpr std::uint32_t of_version_2 = 0x7f;  // what a filter of this version knows
}  // namespace wish

}  // namespace twinloft::lmtpd::milter
