#include "twinloft/spool-repl/compress/coder.h"

#include <fmt/format.h>
#include <lz4.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <vector>

#include "twinloft/base/check.h"

namespace twinloft::repl::compress {

namespace {

constexpr int raw_deflate = -15;  // without a checksum: messages have their own
constexpr unsigned xz_dictionary = raw_bytes_max;

template <class T>
T* as(const std::byte* p) {
  return reinterpret_cast<T*>(const_cast<std::byte*>(p));
}

Status damaged(Codec codec) {
  return fail(Errc::corrupt, "a damaged frame of codec {}", name_of(codec));
}
Status no_memory(Codec codec) {
  return fail(Errc::exhausted, "no memory to decompress a frame of codec {}", name_of(codec));
}

// zlib's states of one direction.
class Deflate {
 public:
  ~Deflate() {
    if (open_) ::deflateEnd(&z_);
  }
  std::size_t run(int level, ByteSpan raw, MutableByteSpan to) {
    if (open_ && level != level_) {
      ::deflateEnd(&z_);
      open_ = false;
    }
    level_ = level;
    if (!open_) open_ = ::deflateInit2(&z_, level, Z_DEFLATED, raw_deflate, 8, Z_DEFAULT_STRATEGY) == Z_OK;
    if (!open_ || ::deflateReset(&z_) != Z_OK) return 0;
    z_.next_in = as<Bytef>(raw.data());
    z_.avail_in = static_cast<uInt>(raw.size());
    z_.next_out = as<Bytef>(to.data());
    z_.avail_out = static_cast<uInt>(to.size());
    return ::deflate(&z_, Z_FINISH) == Z_STREAM_END ? to.size() - z_.avail_out : 0;
  }

 private:
  z_stream z_{};
  bool open_ = false;
  int level_ = 0;
};

class Inflate {
 public:
  ~Inflate() {
    if (open_) ::inflateEnd(&z_);
  }
  Status run(ByteSpan packed, MutableByteSpan to) {
    if (!open_) open_ = ::inflateInit2(&z_, raw_deflate) == Z_OK;
    if (!open_ || ::inflateReset(&z_) != Z_OK) return no_memory(Codec::zlib);
    z_.next_in = as<Bytef>(packed.data());
    z_.avail_in = static_cast<uInt>(packed.size());
    z_.next_out = as<Bytef>(to.data());
    z_.avail_out = static_cast<uInt>(to.size());
    int end = ::inflate(&z_, Z_FINISH);
    if (end == Z_MEM_ERROR) return no_memory(Codec::zlib);
    return end == Z_STREAM_END && z_.avail_in == 0 && z_.avail_out == 0 ? Status() : damaged(Codec::zlib);
  }

 private:
  z_stream z_{};
  bool open_ = false;
};

// For liblzma, which allocates some MiB for each frame: the blocks stay here for the next one.
class KeptMemory {
 public:
  KeptMemory() { blocks_.reserve(blocks_max); }
  const lzma_allocator* allocator() { return &allocator_; }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size;
    bool used;
  };
  static void* take(void* opaque, std::size_t count, std::size_t each) {
    auto& blocks = static_cast<KeptMemory*>(opaque)->blocks_;
    std::size_t size = std::max<std::size_t>(count * each, 1);
    for (Block& b : blocks)
      if (!b.used && b.size >= size && b.size / 2 <= size) return b.used = true, b.bytes.get();
    std::unique_ptr<std::byte[]> fresh(new (std::nothrow) std::byte[size]);
    if (!fresh) return nullptr;
    // Those that no frame has used any more.
    if (blocks.size() >= blocks_max) std::erase_if(blocks, [](const Block& b) { return !b.used; });
    if (blocks.size() >= blocks_max) return nullptr;  // no exception passes through liblzma
    blocks.push_back({std::move(fresh), size, true});
    return blocks.back().bytes.get();
  }
  static void give_back(void* opaque, void* bytes) {
    for (Block& b : static_cast<KeptMemory*>(opaque)->blocks_)
      if (b.bytes.get() == bytes) b.used = false;
  }
  static constexpr std::size_t blocks_max = 32;
  lzma_allocator allocator_{take, give_back, this};
  std::vector<Block> blocks_;
};

// LZMA2 without the container of xz, which costs 60 bytes. Decoding needs the dictionary's size alone.
std::size_t pack_xz(KeptMemory& memory, int level, ByteSpan raw, MutableByteSpan to) {
  lzma_options_lzma options;
  if (::lzma_lzma_preset(&options, static_cast<std::uint32_t>(level))) return 0;
  options.dict_size = xz_dictionary;
  lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, nullptr}};
  std::size_t out = 0;
  lzma_ret end = ::lzma_raw_buffer_encode(filters, memory.allocator(), as<std::uint8_t>(raw.data()),
                                          raw.size(), as<std::uint8_t>(to.data()), &out, to.size());
  return end == LZMA_OK ? out : 0;
}

Status unpack_xz(KeptMemory& memory, ByteSpan packed, MutableByteSpan to) {
  lzma_options_lzma options{};
  options.dict_size = xz_dictionary;
  lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, nullptr}};
  std::size_t in = 0, out = 0;
  lzma_ret end = ::lzma_raw_buffer_decode(filters, memory.allocator(), as<std::uint8_t>(packed.data()), &in,
                                          packed.size(), as<std::uint8_t>(to.data()), &out, to.size());
  if (end == LZMA_MEM_ERROR) return no_memory(Codec::xz);
  return end == LZMA_OK && in == packed.size() && out == to.size() ? Status() : damaged(Codec::xz);
}

}  // namespace

struct Coder::State {
  std::vector<std::byte> lz4 = std::vector<std::byte>(static_cast<std::size_t>(::LZ4_sizeofState()));
  std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> zstd_out{nullptr, ::ZSTD_freeCCtx};
  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> zstd_in{nullptr, ::ZSTD_freeDCtx};
  Deflate deflate;
  Inflate inflate;
  KeptMemory xz;

  std::size_t pack_zstd(int level, ByteSpan raw, MutableByteSpan to) {
    if (!zstd_out) zstd_out.reset(::ZSTD_createCCtx());
    if (!zstd_out) return 0;
    std::size_t n = ::ZSTD_compressCCtx(zstd_out.get(), to.data(), to.size(), raw.data(), raw.size(), level);
    return ::ZSTD_isError(n) ? 0 : n;
  }
  Status unpack_zstd(ByteSpan packed, MutableByteSpan to) {
    if (!zstd_in) zstd_in.reset(::ZSTD_createDCtx());
    if (!zstd_in) return no_memory(Codec::zstd);
    std::size_t n = ::ZSTD_decompressDCtx(zstd_in.get(), to.data(), to.size(), packed.data(), packed.size());
    if (::ZSTD_isError(n) || n != to.size()) return damaged(Codec::zstd);
    return {};
  }
  Status unpack_lz4(ByteSpan packed, MutableByteSpan to) {
    int n = ::LZ4_decompress_safe(as<char>(packed.data()), as<char>(to.data()),
                                  static_cast<int>(packed.size()), static_cast<int>(to.size()));
    return n == static_cast<int>(to.size()) ? Status() : damaged(Codec::lz4);
  }
};

Coder::Coder() : state_(std::make_unique<State>()) {}
Coder::~Coder() = default;

std::size_t Coder::pack(const Method& method, ByteSpan raw, MutableByteSpan to) {
  TL_CHECK(raw.size() <= raw_bytes_max && to.size() < raw.size());
  if (to.empty()) return 0;
  int level = method.level != 0 ? method.level : default_level(method.codec);
  switch (method.codec) {
    case Codec::none:
      break;
    case Codec::lz4:
      return static_cast<std::size_t>(
          ::LZ4_compress_fast_extState(state_->lz4.data(), as<char>(raw.data()), as<char>(to.data()),
                                       static_cast<int>(raw.size()), static_cast<int>(to.size()), 1));
    case Codec::zstd:
      return state_->pack_zstd(level, raw, to);
    case Codec::zlib:
      return state_->deflate.run(level, raw, to);
    case Codec::xz:
      return pack_xz(state_->xz, level, raw, to);
  }
  return 0;
}

Status Coder::unpack(Codec codec, ByteSpan packed, MutableByteSpan to) {
  switch (codec) {
    case Codec::none:
      if (packed.size() != to.size()) return damaged(codec);
      std::copy(packed.begin(), packed.end(), to.begin());
      return {};
    case Codec::lz4:
      return state_->unpack_lz4(packed, to);
    case Codec::zstd:
      return state_->unpack_zstd(packed, to);
    case Codec::zlib:
      return state_->inflate.run(packed, to);
    case Codec::xz:
      return unpack_xz(state_->xz, packed, to);
  }
  return damaged(codec);
}

}  // namespace twinloft::repl::compress
