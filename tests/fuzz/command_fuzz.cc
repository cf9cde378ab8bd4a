// The input is one command line without its CRLF. Its first byte selects a prefix for the line, which helps
// the fuzzer reach the parsers sooner.
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "twinloft/base/check.h"
#include "twinloft/base/utf8.h"
#include "twinloft/lmtpd/proto/command.h"

using namespace twinloft;
using namespace twinloft::lmtpd;

namespace {

bool is_clean(std::string_view text) {
  return text.find_first_of(std::string_view("\0\r\n", 3)) == std::string_view::npos;
}

// Paths go into headers, arguments and log lines.
void check_path(const Path& path) {
  for (unsigned char c : path.text) TL_CHECK(c >= 0x20 && c != 0x7f);
  TL_CHECK(path.is_ascii == is_ascii(path.text));
  TL_CHECK(is_clean(path.local_part) && is_clean(path.domain));
  TL_CHECK(path.is_null() || !path.local_part.empty());
  const SplitLocalPart split = split_detail(path.local_part, "+");
  TL_CHECK(split.user.size() + split.detail.size() <= path.local_part.size());
  TL_CHECK(path.is_null() || !split.user.empty());
}

void check(const Lhlo& c) {
  TL_CHECK(is_clean(c.domain));
}
void check(const Mail& c) {
  check_path(c.from);
  TL_CHECK(c.ret.empty() || c.ret == "FULL" || c.ret == "HDRS");
  TL_CHECK(is_clean(c.envelope_id) && is_ascii(c.envelope_id) && c.envelope_id.size() <= 100);
}
void check(const Rcpt& c) {
  check_path(c.to);
  TL_CHECK(!c.to.is_null() && c.to.text.size() <= path_bytes_max);
  TL_CHECK(is_clean_utf8(c.to.text) && is_clean_utf8(c.to.local_part) && is_clean_utf8(c.to.domain));
  bool literal = c.to.domain.starts_with("[");
  for (char byte : c.to.domain) TL_CHECK(literal || byte < 'A' || byte > 'Z');
  TL_CHECK(is_clean(c.original_to) && is_clean_utf8(c.original_to));
  TL_CHECK(is_clean(c.notify) && c.notify.size() <= 21 && c.original_type.empty() == c.original_to.empty());
}
template <class Other>
void check(const Other&) {}

// A refusal is one line of valid length, whatever the client sent.
void check_refusal(const Reply& reply) {
  TL_CHECK(reply.code >= 500 && reply.code <= 599);
  TL_CHECK(reply.enhanced.starts_with("5."));
  std::string wire;
  append_reply(wire, reply);
  TL_CHECK(wire.size() <= 512 && wire.ends_with("\r\n"));
  TL_CHECK(is_clean(std::string_view(wire).substr(0, wire.size() - 2)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view starts[] = {"",
                                         "LHLO ",
                                         "BDAT ",
                                         "MAIL FROM:",
                                         "MAIL FROM:<",
                                         "MAIL FROM:<a@b> ",
                                         "MAIL FROM:<a@b> SIZE=",
                                         "RCPT TO:",
                                         "RCPT TO:<",
                                         "RCPT TO:<\"",
                                         "RCPT TO:<@a,@b:",
                                         "RCPT TO:<a@[IPv6:",
                                         "RCPT TO:<a@b> ORCPT=rfc822;",
                                         "RCPT TO:<a@b> ORCPT=utf-8;",
                                         "RCPT TO:<a@b> NOTIFY=",
                                         "MAIL FROM:<a@b> SMTPUTF8 ENVID=",
                                         "RCPT TO:<a@\xc3\xa4"};
  if (size == 0) return 0;
  std::string line(starts[data[0] % std::size(starts)]);
  line.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto command = parse_command(line);
  if (command)
    std::visit([](const auto& c) { check(c); }, *command);
  else
    check_refusal(command.error());
  return 0;
}
