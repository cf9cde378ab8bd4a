// Pages of the dirty bitmaps and of the digests at rest, from a disk that may have rotted. The first byte
// selects the kind of page. It also selects whether magic and checksums are corrected, because they would
// stop the fuzzer.
//
// An accepted page is encoded to a page with the same meaning. A refused page marks everything, or has no
// digests.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/spool-repl/format/bitmap.h"
#include "twinloft/spool-repl/format/digest.h"

using namespace twinloft;
using namespace twinloft::repl;

namespace {

const Uuid volume = Uuid::parse("0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff").value();
using Bytes = std::vector<std::byte>;

void bitmap(Bytes in, bool repair) {
  std::size_t words_wanted = in.empty() ? 0 : static_cast<std::size_t>(in[0]) * 2 + 1;
  in.resize(block_size);
  if (repair) {
    store_le(in.data(), std::uint32_t{0x4d424c54});  // "TLBM"
    store_le(in.data() + 8, std::uint32_t{7});
    store_le(in.data() + 12, std::uint32_t{2});
    store_le(in.data() + 4, std::uint32_t{0});
    store_le(in.data() + 4, crc32c(in, crc32c(volume.bytes)));
  }
  std::vector<std::uint64_t> words(std::min<std::size_t>(words_wanted, bitmap_page_words));
  Status read = decode_bitmap_page(in, volume, 2, 7, words);
  TL_CHECK(read.has_value() || !repair);
  if (!read) return;
  Bytes again(block_size);
  encode_bitmap_page(volume, 2, 7, words, again);
  std::vector<std::uint64_t> same(words.size());
  TL_CHECK(decode_bitmap_page(again, volume, 2, 7, same).has_value() && same == words);
  TL_CHECK(!decode_bitmap_page(again, volume, 3, 7, same).has_value());
  TL_CHECK(!decode_bitmap_page(again, volume, 2, 8, same).has_value());
}

void digests(Bytes in, bool repair) {
  std::size_t blocks = in.empty() ? 1 : static_cast<std::size_t>(in[0]) * 4 + 1;
  in.resize(block_size);
  constexpr std::uint64_t page = 3;
  constexpr unsigned sectors = block_size / digest_sector_bytes;
  if (repair)
    for (unsigned s = 0; s < sectors; ++s) {
      std::byte* at = in.data() + s * digest_sector_bytes;
      std::byte number[8];
      store_le(number, page * sectors + s);
      std::uint32_t crc = crc32c({at, digest_sector_bytes - 4}, crc32c(number, crc32c(volume.bytes)));
      store_le(at + digest_sector_bytes - 4, crc);
    }
  std::vector<Digest> found(std::min<std::size_t>(blocks, digest_page_blocks));
  unsigned lost = decode_digest_page(in, volume, page, found);
  TL_CHECK(lost <= sectors && (lost == 0 || !repair));
  Bytes again(block_size);
  encode_digest_page(volume, page, found, again);
  std::vector<Digest> same(found.size());
  TL_CHECK(decode_digest_page(again, volume, page, same) == 0 && same == found);

  // Loads the page into the table of a volume that ends within it.
  DigestTable table(volume, page * digest_page_blocks + found.size());
  TL_CHECK(table.load(page, in) == lost);
  TL_CHECK(table.memory() <= DigestTable::memory_max(page * digest_page_blocks + found.size()));
  Bytes zeros(block_size);
  for (std::size_t i = 0; i < found.size(); i += 97)
    TL_CHECK(table.fits(Lba{page * digest_page_blocks + i}, zeros.data()) ==
             digest_fits(found[i], volume, Lba{page * digest_page_blocks + i}, zeros));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  auto* bytes = reinterpret_cast<const std::byte*>(data);
  Bytes rest(bytes + 1, bytes + size);
  bool repair = (data[0] & 1) != 0;
  if (data[0] & 2)
    digests(std::move(rest), repair);
  else
    bitmap(std::move(rest), repair);
  return 0;
}
