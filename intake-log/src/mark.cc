#include "twinloft/intake_log/mark.h"

#include <algorithm>
#include <bit>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::intake_log {

namespace {

constexpr std::uint32_t mark_magic = 0x4d494c54;  // "TLIM"
constexpr std::size_t mark_crc_offset = 8;
constexpr std::uint64_t word_bits = 64;
// Sums of entry numbers never overflow.
constexpr std::uint64_t entry_max = std::uint64_t{1} << 62;

std::uint64_t bits_below(std::uint64_t count) {  // count: below 64
  return (std::uint64_t{1} << count) - 1;
}

std::uint32_t crc_of(ByteSpan bytes) {
  constexpr std::array<std::byte, 4> zero{};
  std::uint32_t crc = crc32c(bytes.first(mark_crc_offset));
  crc = crc32c(zero, crc);
  return crc32c(bytes.subspan(mark_crc_offset + 4), crc);
}

}  // namespace

Mark::Mark(const Uuid& incarnation, std::uint64_t prefix) : incarnation_(incarnation), prefix_(prefix) {
  TL_CHECK(prefix <= entry_max);
}

std::uint64_t Mark::end() const {
  if (words_.empty()) return prefix_;
  return base() + words_.size() * word_bits - static_cast<std::uint64_t>(std::countl_zero(words_.back()));
}

std::uint64_t Mark::room() const {
  return base() + mark_words_max * word_bits;
}

bool Mark::is_settled(std::uint64_t entry) const {
  if (entry < prefix_) return true;
  const std::uint64_t bit = entry - base();
  return bit / word_bits < words_.size() && (words_[bit / word_bits] >> bit % word_bits & 1) != 0;
}

void Mark::settle(std::uint64_t entry) {
  TL_CHECK(entry < room());
  if (is_settled(entry)) return;
  const std::uint64_t bit = entry - base();
  if (words_.empty()) words_.push_back(bits_below(prefix_ % word_bits));
  if (words_.size() <= bit / word_bits) words_.resize(bit / word_bits + 1);
  words_[bit / word_bits] |= std::uint64_t{1} << bit % word_bits;
  if (entry == prefix_) advance();
}

// Moves the prefix over settled entries.
void Mark::advance() {
  std::size_t full = 0;
  while (full < words_.size() && words_[full] == ~std::uint64_t{0}) ++full;
  const std::uint64_t ones = full < words_.size() ? static_cast<std::uint64_t>(std::countr_one(words_[full]))
                                                  : 0;
  prefix_ = base() + full * word_bits + ones;
  words_.erase(words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(full));
  if (words_.size() == 1 && words_[0] == bits_below(ones)) words_.clear();
}

void Mark::settle_below(std::uint64_t end) {
  TL_CHECK(end <= entry_max);
  if (end <= prefix_) return;
  const std::uint64_t gone = std::min<std::uint64_t>((end - base()) / word_bits, words_.size());
  words_.erase(words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(gone));
  prefix_ = end;
  if (words_.empty()) return;
  words_[0] |= bits_below(prefix_ % word_bits);
  if (words_.size() == 1 && words_[0] == bits_below(prefix_ % word_bits))
    words_.clear();
  else
    advance();
}

void Mark::merge(const Mark& other) {
  TL_CHECK(incarnation_ == other.incarnation_);
  settle_below(other.prefix_);
  for (std::uint64_t entry = prefix_; entry < other.end(); ++entry)
    if (other.is_settled(entry)) settle(entry);
}

std::vector<std::byte> Mark::encode() const {
  std::vector<std::byte> out;
  out.reserve(mark_fixed_bytes + words_.size() * sizeof(std::uint64_t));
  Writer w(out);
  w.put(mark_magic);
  w.put(mark_version);
  w.put(static_cast<std::uint16_t>(words_.size()));
  w.put(std::uint32_t{0});
  w.put_bytes(incarnation_.bytes);
  w.put(prefix_);
  for (std::uint64_t word : words_) w.put(word);
  store_le(out.data() + mark_crc_offset, crc_of(out));
  return out;
}

Result<Mark> Mark::decode(ByteSpan bytes, const Uuid& incarnation) {
  if (bytes.size() > mark_bytes_max)
    return fail(Errc::corrupt, "the mark has {} bytes, more than {}", bytes.size(), mark_bytes_max);
  Reader r(bytes);
  const auto kind = r.get<std::uint32_t>();
  const auto version = r.get<std::uint16_t>();
  const auto words = r.get<std::uint16_t>();
  const auto crc = r.get<std::uint32_t>();
  Uuid of;
  r.get_into(of.bytes);
  const auto prefix = r.get<std::uint64_t>();
  if (!r.ok() || kind != mark_magic) return fail(Errc::corrupt, "this is not a mark");
  if (crc != crc_of(bytes)) return fail(Errc::corrupt, "the checksum of the mark is wrong");
  if (version != mark_version)
    return fail(Errc::invalid, "the mark has version {}, and this program reads version {}", version,
                mark_version);
  if (of != incarnation)
    return fail(Errc::conflict, "the mark is of the log {}, and this is the log {}", of.text(),
                incarnation.text());
  if (r.remaining() != words * sizeof(std::uint64_t) || prefix > entry_max)
    return fail(Errc::corrupt, "the mark contradicts itself");
  Mark mark(incarnation, prefix);
  for (std::size_t i = 0; i < words; ++i) mark.words_.push_back(r.get<std::uint64_t>());
  // Only what encode() makes: the prefix ends at the first entry that is not settled.
  const std::uint64_t low = bits_below(prefix % word_bits);
  if (words > 0 &&
      ((mark.words_[0] & (low << 1 | 1)) != low || mark.end() <= prefix || mark.words_.back() == 0))
    return fail(Errc::corrupt, "the mark contradicts itself");
  return mark;
}

}  // namespace twinloft::intake_log
