// Memory that is registered with the kernel.
#include <algorithm>
#include <memory>

#include "fixed_ops.h"
#include "twinloft/base/check.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::io {

namespace {

constexpr std::size_t area_bytes_max = 1u << 30;  // of a buffer: io_uring_register(2)

bool has_fixed_vectors(io_uring& ring) {
  std::unique_ptr<io_uring_probe, decltype(&io_uring_free_probe)> probe(io_uring_get_probe_ring(&ring),
                                                                        &io_uring_free_probe);
  return probe && io_uring_opcode_supported(probe.get(), op_readv_fixed) &&
         io_uring_opcode_supported(probe.get(), op_writev_fixed);
}

}  // namespace

Status UringLoop::register_memory(std::span<const MutableByteSpan> areas) {
  TL_CHECK_MSG(areas_.empty(), "memory is registered once");
  std::vector<MutableByteSpan> cut;
  std::vector<iovec> iov;
  for (MutableByteSpan area : areas)
    for (; !area.empty(); area = area.subspan(cut.back().size())) {
      cut.push_back(area.first(std::min(area.size(), area_bytes_max)));
      iov.push_back({cut.back().data(), cut.back().size()});
    }
  if (iov.empty()) return {};
  if (int rc = io_uring_register_buffers(&ring_, iov.data(), static_cast<unsigned>(iov.size())); rc < 0)
    return fail_errno(-rc, "registering memory");
  areas_ = std::move(cut);
  fixed_vectors_ = has_fixed_vectors(ring_);
  return {};
}

// The area that contains all memory of the operation.
int UringLoop::registered_area(const DiskOp& op) const {
  auto within = [](const MutableByteSpan& area, const iovec& v) {
    auto at = reinterpret_cast<std::uintptr_t>(v.iov_base),
         begin = reinterpret_cast<std::uintptr_t>(area.data());
    return at >= begin && at - begin <= area.size() && v.iov_len <= area.size() - (at - begin);
  };
  if (op.iov_count_ == 0) return -1;
  auto area = std::find_if(areas_.begin(), areas_.end(),
                           [&](const MutableByteSpan& a) { return within(a, *op.iov_); });
  if (area == areas_.end()) return -1;
  if (!std::all_of(op.iov_, op.iov_ + op.iov_count_, [&](const iovec& v) { return within(*area, v); }))
    return -1;
  return static_cast<int>(area - areas_.begin());
}

}  // namespace twinloft::repl::io
