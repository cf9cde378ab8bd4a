#include "flush_points.h"

#include <algorithm>

namespace twinloft::power {

void FlushPoints::apply(const EventReader::Item& item) {
  if (item.event.kind == EventKind::write && item.event.offset >= sb_.ring_offset)
    on_write(item.event, item.bytes);
  if (item.event.kind == EventKind::done) on_done(item.event.id);
}

void FlushPoints::on_write(const Event& e, ByteSpan bytes) {
  auto frame = bytes.size() >= repl::block_size ? repl::decode_frame(bytes, sb_.volume)
                                                : Result<repl::FrameHeader>(fail(Errc::not_found, "short"));
  if (frame && frame->replica == sb_.replica) {
    ByteSpan meta = bytes.subspan(repl::frame_header_bytes, frame->meta_bytes);
    auto body = repl::decode_body_meta(meta, sb_.volume, sb_.volume_blocks);
    if (!body) return;
    under_way_.push_back({body->header.first_lsn, body->header.last_lsn(), e.offset,
                          std::uint64_t{frame->total_blocks} * repl::block_size, 0});
    ends_.push_back(body->header.last_lsn());
    arrived_ = std::max(arrived_, body->header.last_lsn());
  }
  for (const Record& r : under_way_)
    if (r.offset <= e.offset && e.offset < r.offset + r.bytes) parts_[e.id] = {r.first, e.length};
}

void FlushPoints::on_done(std::uint64_t id) {
  auto part = parts_.find(id);
  if (part == parts_.end()) return;
  auto r = std::find_if(under_way_.begin(), under_way_.end(),
                        [&](const Record& a) { return a.first == part->second.record; });
  r->done += part->second.bytes;
  parts_.erase(part);
  if (r->done < r->bytes) return;
  durable_ahead_[r->first.v] = r->last.v;
  under_way_.erase(r);
  for (auto next = durable_ahead_.find(durable_.v + 1); next != durable_ahead_.end();
       next = durable_ahead_.find(durable_.v + 1)) {
    durable_ = {next->second};
    durable_ahead_.erase(next);
  }
}

}  // namespace twinloft::power
