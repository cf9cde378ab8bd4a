#include "ram_target.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "twinloft/base/check.h"

namespace twinloft::repl {

namespace {
constexpr std::uint64_t block_bytes = 4096;

std::byte* map_memory(std::uint64_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                   0);
  TL_CHECK_MSG(p != MAP_FAILED, "no memory for the RAM target");
  return static_cast<std::byte*>(p);
}
}  // namespace

RamTarget::RamTarget(ports::Loop& loop, std::uint64_t size_bytes, std::uint64_t seed)
    : loop_(loop),
      size_bytes_(size_bytes),
      random_(seed),
      volatile_(map_memory(size_bytes)),
      durable_(map_memory(size_bytes)),
      dirty_(size_bytes / block_bytes) {}

RamTarget::~RamTarget() {
  ::munmap(volatile_, size_bytes_);
  ::munmap(durable_, size_bytes_);
}

void RamTarget::submit(ports::IoRequest& request) {
  // A front end that passes a bad request on fails the test.
  TL_CHECK(request.done != nullptr && request.offset <= size_bytes_);
  TL_CHECK(request.length <= size_bytes_ - request.offset);
  bool has_data = request.op == ports::IoOp::read || request.op == ports::IoOp::write;
  TL_CHECK(!has_data || (request.data != nullptr && request.length <= ports::io_max_length));
  most_in_flight = std::max(most_in_flight, ++in_flight_);
  switch (random_.below(8)) {
    case 0:
      return complete(request);
    case 1:
      loop_.after(std::chrono::microseconds(random_.below(1000)), [this, &request] { complete(request); });
      return;
    default:
      break;
  }
  waiting_.push_back(&request);
  if (std::exchange(turn_posted_, true)) return;
  loop_.post([this] { complete_some(); });
}

// In random order, most of the waiting requests. Later requests overtake the rest.
void RamTarget::complete_some() {
  turn_posted_ = false;
  std::vector<ports::IoRequest*> now;
  std::vector<ports::IoRequest*> later;
  for (auto* request : waiting_) (random_.below(4) == 0 ? later : now).push_back(request);
  waiting_ = std::move(later);
  for (std::size_t i = now.size(); i > 1; --i) std::swap(now[i - 1], now[random_.below(i)]);
  if (!waiting_.empty()) {
    turn_posted_ = true;
    loop_.post([this] { complete_some(); });
  }
  for (auto* request : now) complete(*request);
}

void RamTarget::complete(ports::IoRequest& r) {
  std::uint64_t first = r.offset / block_bytes;
  std::uint64_t blocks = r.length == 0 ? 0 : (r.offset + r.length - 1) / block_bytes - first + 1;
  switch (r.op) {
    case ports::IoOp::read:
      std::memcpy(r.data, volatile_ + r.offset, r.length);
      break;
    case ports::IoOp::flush:
      ++flushes;
      make_durable(0, dirty_.size());
      break;
    default:
      write(r);
      std::fill_n(dirty_.begin() + static_cast<std::ptrdiff_t>(first), blocks, true);
      if (r.fua) {
        ++fuas;
        make_durable(first, blocks);
      }
  }
  --in_flight_;
  r.error = 0;
  r.done(r);
}

void RamTarget::write(const ports::IoRequest& r) {
  if (r.op == ports::IoOp::write)
    std::memcpy(volatile_ + r.offset, r.data, r.length);
  else
    std::memset(volatile_ + r.offset, 0, r.length);
}

void RamTarget::make_durable(std::uint64_t first_block, std::uint64_t blocks) {
  for (std::uint64_t b = first_block; b < first_block + blocks; ++b) {
    if (!dirty_[b]) continue;
    std::memcpy(durable_ + b * block_bytes, volatile_ + b * block_bytes, block_bytes);
    dirty_[b] = false;
  }
}

std::uint64_t RamTarget::cut() {
  std::uint64_t lost = 0;
  for (std::uint64_t b = 0; b < dirty_.size(); ++b) {
    if (!dirty_[b]) continue;
    lost += std::memcmp(durable_ + b * block_bytes, volatile_ + b * block_bytes, block_bytes) != 0;
    std::memcpy(volatile_ + b * block_bytes, durable_ + b * block_bytes, block_bytes);
    dirty_[b] = false;
  }
  return lost;
}

}  // namespace twinloft::repl
