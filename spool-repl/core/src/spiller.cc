#include "spiller.h"

#include <algorithm>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/base/errno_text.h"

namespace twinloft::repl::core {

void Spiller::load(const std::vector<SpillChunk>& chunks) {
  if (!v_.far.load_spill(chunks, v_.now))
    v_.out.notices.push_back(
        {false, "the spill does not continue in the journal: it is dropped", NoticeKind::other});
  if (!chunks.empty()) next_number_ = chunks.back().number + 1;
}

void Spiller::advance() {
  if (!v_.config.spill || v_.failed) return;
  drop();
  bool slow = writing_ && v_.now - writing_since_ >= v_.config.slow_peer;
  if (slow && !v_.far.spill_failing()) fail("the spill does not answer");
  if (filling_ && filling_->reads_left == 0 && !writing_) finish_filling();
  if (filling_ || (retry_at_ && v_.now < *retry_at_)) return;
  RecordNo from = writing_ ? writing_->end() : v_.far.spill_from();
  bool damaged = v_.far.keeps_any() && from < v_.readable_from && from >= v_.log.first();
  if (damaged) return fail("the journal is damaged, and cannot be spilled");
  if (is_due(from)) start(from);
}

void Spiller::drop() {
  v_.far.drop_unneeded();
  std::uint64_t keep_from = !v_.far.spill().empty() ? v_.far.spill().oldest().number
                            : writing_              ? writing_->chunk.number
                                                    : next_number_;
  if (keep_from <= dropped_) return;
  dropped_ = keep_from;
  v_.out.spill_drops.push_back({keep_from});
}

// Early enough that the tail can move before the journal is full, and late enough that a short lag costs no
// writes.
bool Spiller::is_due(RecordNo from) const {
  if (!v_.far.keeps_any() || from < v_.log.first()) return false;
  std::uint64_t unspilled = v_.log.bytes_behind(std::min(from, v_.log.end()));
  return from < v_.log.committed_end() && unspilled > v_.log.ring_bytes() / 8 * 3;
}

void Spiller::start(RecordNo from) {
  Filling f{{from, {}}, std::vector<std::byte>(spill_header_bytes)};
  SpillChunk& c = f.held.chunk;
  c.before = v_.log.mark_before(from);
  c.from = v_.log.at(from).pos;
  std::uint64_t run_end = 0;
  std::vector<JournalRead> reads;
  for (RecordNo no = from; no < v_.log.committed_end(); ++no) {
    const LogRecord& r = v_.log.at(no);
    std::uint32_t bytes = r.total_blocks * block_size;
    if (c.bytes + bytes > spill_chunk_bytes_max) break;
    std::uint64_t offset = v_.journal_offset(r.pos);
    if (reads.empty() || offset != run_end) {
      f.parts.push_back({spill_header_bytes + c.bytes, 0});
      reads.push_back({make_token(TokenKind::spill_fill, reads.size()), offset, 0});
    }
    reads.back().bytes += bytes;
    f.parts.back().second += bytes;
    run_end = offset + bytes;
    c.bytes += bytes;
    c.records++;
    c.last = r.mark;
    c.to = {r.pos.v + bytes};
  }
  f.bytes.resize(spill_header_bytes + c.bytes);
  f.reads_left = reads.size();
  for (JournalRead& r : reads) v_.out.journal_reads.push_back(r);
  filling_ = std::move(f);
}

void Spiller::on_journal_read(std::uint64_t part, int error, const std::vector<std::byte>& bytes) {
  TL_CHECK(filling_ && filling_->reads_left > 0 && part < filling_->parts.size());
  Filling& f = *filling_;
  f.reads_left--;
  auto [at, size] = f.parts[part];
  if (error != 0)
    f.error = error;
  else
    std::copy_n(bytes.begin(), size, f.bytes.begin() + static_cast<std::ptrdiff_t>(at));
}

// The tail may have passed the records meanwhile, and others may be in their place.
std::string Spiller::verify(const Filling& f) const {
  if (f.error != 0) return fmt::format("the journal cannot be read ({})", errno_text(f.error));
  LogMark last = f.held.chunk.before;
  ByteSpan rest = ByteSpan(f.bytes).subspan(spill_header_bytes);
  for (std::uint32_t i = 0; i < f.held.chunk.records; ++i) {
    auto r = decode_stored_record(rest, v_.sb.volume, v_.sb.volume_blocks);
    if (!r) return "a record of the journal: " + r.error().message;
    if (r->body.header.prev_hash != last.hash || r->body.header.first_lsn != last.lsn + 1)
      return fmt::format("record {} of the journal does not follow {}", r->body.header.first_lsn.v,
                         last.lsn.v);
    last = r->body.mark();
    rest = rest.subspan(r->bytes);
  }
  return last == f.held.chunk.last && rest.empty() ? "" : "the journal holds other records";
}

void Spiller::finish_filling() {
  Filling f = std::move(*filling_);
  filling_.reset();
  if (!v_.far.spill_wants(f.held)) return;
  if (std::string why = verify(f); !why.empty()) return fail(why);
  SpillChunk& c = f.held.chunk;
  c.number = next_number_++;
  c.crc = crc32c(ByteSpan(f.bytes).subspan(spill_header_bytes));
  encode_spill_header(c, v_.sb.volume, v_.sb.replica, MutableByteSpan(f.bytes).first(spill_header_bytes));
  v_.out.spill_writes.push_back({make_token(TokenKind::spill_write, c.number), c.number, std::move(f.bytes)});
  writing_ = f.held;
  writing_since_ = v_.now;
}

void Spiller::on_written(std::uint64_t number, int error) {
  TL_CHECK(writing_ && writing_->chunk.number == number);
  SpillIndex::Held held = *std::exchange(writing_, std::nullopt);
  if (error != 0) next_number_ = number;  // numbers have no gaps
  if (error != 0) return fail(fmt::format("the spill cannot be written ({})", errno_text(error)));
  if (v_.far.spill_failing())
    v_.out.notices.push_back({false, "the spill can be written again", NoticeKind::buffer_eased});
  v_.far.set_spill_failing(false);
  retry_at_.reset();
  if (v_.far.spill_wants(held)) v_.far.add_to_spill(held);
}

// What the spill has stays valid. A chunk that is being read does not continue it, and will not be wanted.
// Without a spill that grows, the lag is bounded by the journal.
void Spiller::fail(const std::string& why) {
  retry_at_ = v_.now + v_.config.buffer_interval;
  if (v_.far.spill_failing()) return;
  v_.far.set_spill_failing(true);
  v_.out.notices.push_back({true, fmt::format("{}: far replicas may lag by half of the journal only", why),
                            NoticeKind::buffer_full});
}

std::optional<Instant> Spiller::next_tick() const {
  if (writing_ && !v_.far.spill_failing()) return writing_since_ + v_.config.slow_peer;
  return retry_at_;
}

}  // namespace twinloft::repl::core
