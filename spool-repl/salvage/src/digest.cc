#include "twinloft/spool-repl/salvage/digest.h"

#include <openssl/evp.h>
#include <strings.h>

#include <algorithm>

#include "read_file.h"
#include "twinloft/base/check.h"
#include "twinloft/base/hash.h"

namespace twinloft::repl::salvage {

std::string Sha256::hex() const {
  return to_hex(bytes);
}

Result<Sha256> Sha256::parse(std::string_view hex) {
  Sha256 out;
  auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  bool good = hex.size() == 2 * out.bytes.size();
  for (std::size_t i = 0; good && i < out.bytes.size(); ++i) {
    int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
    good = high >= 0 && low >= 0;
    if (good) out.bytes[i] = static_cast<std::byte>(high << 4 | low);
  }
  if (!good)
    return fail(Errc::corrupt, "\"{}\" is not a SHA-256: 64 digits of 0-9 and a-f are expected", hex);
  return out;
}

struct Sha256Hasher::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256Hasher::Sha256Hasher() : state_(std::make_unique<State>()) {
  TL_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Sha256Hasher::~Sha256Hasher() = default;
void Sha256Hasher::update(ByteSpan data) {
  TL_CHECK(EVP_DigestUpdate(state_->context, data.data(), data.size()) == 1);
}
Sha256 Sha256Hasher::digest() {
  Sha256 out;
  TL_CHECK(EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(out.bytes.data()), nullptr) ==
           1);
  return out;
}

namespace {

bool starts_with_nocase(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && ::strncasecmp(text.data(), prefix.data(), prefix.size()) == 0;
}

// "with LMTP", LMTPS, LMTPA, LMTPSA and UTF8LMTP (RFC 3848, RFC 6531): fields of the final delivery.
bool says_lmtp(std::string_view field) {
  bool with = false;
  for (std::size_t at = 0; at < field.size();) {
    std::size_t end = std::min(field.find_first_of(" \t\r\n;", at), field.size());
    std::string_view word = field.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (with && starts_with_nocase(word, "utf8")) word.remove_prefix(4);
    if (with && starts_with_nocase(word, "lmtp")) return true;
    with = word.size() == 4 && starts_with_nocase(word, "with");
  }
  return false;
}

bool is_trace(std::string_view field) {
  for (std::string_view name : {"Return-Path:", "Delivered-To:", "X-Original-To:", "Envelope-To:"})
    if (starts_with_nocase(field, name)) return true;
  return starts_with_nocase(field, "Received:") && says_lmtp(field);
}

}  // namespace

namespace {

// The end of the field at `at`, after its last line. npos: the field may continue after `text`, which is
// incomplete if `all` is false.
std::size_t field_end(std::string_view text, std::size_t at, bool all) {
  for (;;) {
    std::size_t lf = text.find('\n', at);
    if (lf == text.npos || lf + 1 == text.size()) return all ? text.size() : text.npos;
    at = lf + 1;
    if (text[at] != ' ' && text[at] != '\t') return at;
  }
}

}  // namespace

std::size_t trace_length(std::string_view start, bool all) {
  start = start.substr(0, trace_bytes_max);
  std::size_t at = 0;
  while (at < start.size()) {
    std::size_t end = field_end(start, at, all);
    if (end == start.npos || !is_trace(start.substr(at, end - at))) break;
    at = end;
  }
  return at;
}

std::string without_delivered_to(std::string_view trace) {
  std::string out;
  for (std::size_t at = 0; at < trace.size();) {
    std::size_t end = field_end(trace, at, true);
    std::string_view field = trace.substr(at, end - at);
    if (!starts_with_nocase(field, "Delivered-To:")) out += field;
    at = end;
  }
  return out;
}

void ContentHasher::put(std::string_view text) {
  if (!head_taken_) {
    std::size_t room = std::min<std::size_t>(head_bytes - out_.bytes, text.size());
    first_.update(as_bytes(text.substr(0, room)));
    if (out_.bytes + room == head_bytes) {
      out_.head = first_.digest();
      head_taken_ = true;
    }
  }
  whole_.update(as_bytes(text));
  out_.bytes += text.size();
  out_.lines += static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
  if (!text.empty()) last_ = text.back();
}

// Removes every CR before an LF.
void ContentHasher::take(std::string_view raw) {
  while (!raw.empty()) {
    std::size_t cr = raw.find('\r');
    std::string_view plain = raw.substr(0, cr);
    if (!plain.empty()) {
      if (plain.front() != '\n') put(std::string(pending_cr_, '\r'));
      pending_cr_ = 0;
      put(plain);
    }
    if (cr == std::string_view::npos) return;
    std::size_t behind = std::min(raw.find_first_not_of('\r', cr), raw.size());
    pending_cr_ += behind - cr;
    raw.remove_prefix(behind);
  }
}

void ContentHasher::update(ByteSpan data) {
  if (started_) return take(as_text(data));
  start_ += as_text(data);
  if (start_.size() < trace_bytes_max) return;
  started_ = true;
  take(std::string_view(start_).substr(trace_length(start_, false)));
  start_.clear();
}

ContentDigest ContentHasher::finish() {
  if (!started_) take(std::string_view(start_).substr(trace_length(start_, true)));
  if (last_ != '\n' || pending_cr_ > 0) put("\n");
  if (!head_taken_) out_.head = first_.digest();
  out_.content = whole_.digest();
  return out_;
}

Result<ContentDigest> digest_file(int fd) {
  ContentHasher hasher;
  TL_TRY(read_pieces(fd, [&](ByteSpan piece) -> Result<bool> {
    hasher.update(piece);
    return true;
  }));
  return hasher.finish();
}

}  // namespace twinloft::repl::salvage
