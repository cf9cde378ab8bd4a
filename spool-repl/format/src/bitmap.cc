#include "twinloft/spool-repl/format/bitmap.h"

#include <algorithm>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::repl {

namespace {

constexpr std::uint32_t page_magic = 0x4d424c54;  // "TLBM"

// Over the volume, and the page with the CRC field zero.
std::uint32_t page_crc(const Uuid& volume, ByteSpan page) {
  std::vector<std::byte> bytes(volume.bytes.begin(), volume.bytes.end());
  bytes.insert(bytes.end(), page.begin(), page.end());
  store_le(bytes.data() + volume.bytes.size() + 4, std::uint32_t{0});
  return crc32c(bytes);
}

}  // namespace

void set_bitmap_bits(std::span<std::uint64_t> words, Lba lba, std::uint64_t blocks) {
  TL_CHECK(blocks <= words.size() * 64 && lba.v <= words.size() * 64 - blocks);
  for (std::uint64_t at = lba.v, end = lba.v + blocks; at < end;) {
    std::uint64_t n = std::min(64 - at % 64, end - at);
    words[at / 64] |= (n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1) << at % 64;
    at += n;
  }
}

void encode_bitmap_page(const Uuid& volume, std::uint32_t slot, std::uint64_t page,
                        std::span<const std::uint64_t> words, MutableByteSpan out) {
  TL_CHECK(out.size() == block_size && words.size() <= bitmap_page_words && page <= UINT32_MAX);
  std::memset(out.data(), 0, out.size());
  store_le(out.data(), page_magic);
  store_le(out.data() + 8, static_cast<std::uint32_t>(page));
  store_le(out.data() + 12, slot);
  if (!words.empty()) std::memcpy(out.data() + bitmap_page_header_bytes, words.data(), words.size_bytes());
  store_le(out.data() + 4, page_crc(volume, out));
}

Status decode_bitmap_page(ByteSpan in, const Uuid& volume, std::uint32_t slot, std::uint64_t page,
                          std::span<std::uint64_t> words) {
  TL_CHECK(in.size() == block_size && words.size() <= bitmap_page_words);
  bool right = load_le<std::uint32_t>(in.data()) == page_magic &&
               load_le<std::uint32_t>(in.data() + 8) == page &&
               load_le<std::uint32_t>(in.data() + 12) == slot &&
               load_le<std::uint32_t>(in.data() + 4) == page_crc(volume, in);
  if (!right) return fail(Errc::corrupt, "page {} of dirty bitmap {} is damaged", page, slot);
  if (!words.empty()) std::memcpy(words.data(), in.data() + bitmap_page_header_bytes, words.size_bytes());
  return {};
}

}  // namespace twinloft::repl
