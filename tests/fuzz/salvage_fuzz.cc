// The first byte selects the kind of input: a manifest, a ledger, or a message. An accepted object is encoded
// to the same bytes. A digest depends neither on the pieces nor on the fields that a delivery adds.
//
// In half of the runs, the checksums are corrected, because they would stop the fuzzer.
#include <cstdint>
#include <string>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/salvage/bundle.h"
#include "twinloft/spool-repl/salvage/ledger.h"

using namespace twinloft;
using namespace twinloft::repl::salvage;

namespace {

void manifest(std::string text, bool repair) {
  if (repair) {
    text = "#twinloft-salvage-bundle 1\n" + text + "\n";
    std::size_t messages = 0;
    for (std::size_t at = 0; (at = text.find("\nmessage ", at)) != text.npos; ++at) ++messages;
    Sha256Hasher hasher;
    hasher.update(as_bytes(text));
    text += fmt::format("#end messages={} sha256={}\n", messages, hasher.digest().hex());
  }
  auto out = decode_manifest(text);
  if (!out) return;
  auto again = decode_manifest(encode_manifest(*out));
  TL_CHECK(again && *again == *out);
  for (const Message& m : out->messages)
    TL_CHECK(!m.maildir.empty() && m.maildir[0] != '/' && m.maildir.find("../") == std::string::npos);
}

void ledger(std::string text, bool repair) {
  if (repair) {
    std::string out = ledger_first_line();
    for (char c : text) {
      Sha256 content;
      content.bytes.fill(static_cast<std::byte>(c));
      out += encode_ledger_record({std::string(1, c), content}, static_cast<Mark>(c & 3), out.size());
      if (c == 'x') out.resize(out.size() - 1 - out.size() % 50);
    }
    text = out;
  }
  auto out = decode_ledger(text);
  if (!out) return;
  TL_CHECK(out->good_bytes <= text.size());
  auto again = decode_ledger(std::string_view(text).substr(0, out->good_bytes));
  TL_CHECK(again && again->marks == out->marks && again->good_bytes == out->good_bytes);
}

void message(std::string_view text) {
  ContentHasher whole, pieces;
  whole.update(as_bytes(text));
  for (std::size_t at = 0; at < text.size(); at += 7) pieces.update(as_bytes(text.substr(at, 7)));
  ContentDigest digest = whole.finish();
  TL_CHECK(digest == pieces.finish());
  TL_CHECK(text.size() >= digest.file_bytes_min());
  if (text.starts_with(' ') || text.starts_with('\t')) return;  // the line would continue the field before it
  if (text.size() + 100 > trace_bytes_max) return;  // with more input, such a long trace may end elsewhere
  ContentHasher delivered;
  delivered.update(as_bytes("Return-Path: <>\nDelivered-To: x\nReceived: by y\n\twith LMTP id 1\n"));
  delivered.update(as_bytes(text));
  TL_CHECK(delivered.finish().content == digest.content);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] >> 1 & 3) {
    case 0:
      manifest(std::move(rest), data[0] & 1);
      break;
    case 1:
      ledger(std::move(rest), data[0] & 1);
      break;
    default:
      message(rest);
      break;
  }
  return 0;
}
