#include "journal_text.h"
#include "twinloft/base/json.h"

#include <fmt/format.h>

#include <iterator>

namespace twinloft::repl::ctl {

namespace {

using journal::CutReport;
using journal::History;
using journal::ListedRecord;
using journal::Listing;

const char* type_name(RecordType type) {
  return type == RecordType::epoch ? "epoch" : "data";
}

std::uint64_t zero_blocks(const Body& body) {
  std::uint64_t n = 0;
  for (const Extent& e : body.extents) n += e.kind == ExtentKind::zeros ? e.blocks : 0;
  return n;
}

bool is_void(const Superblock& sb, const FrameHeader& f) {
  return f.incarnation < sb.cut_incarnation;
}

std::string verdict(const Listing& l) {
  if (l.damage) return fmt::format("DAMAGED: {}\n", l.damage->message);
  if (l.behind.empty()) return "The chain is whole.\n";
  return fmt::format(
      "The chain is whole up to LSN {}. Behind it lie {} whole frames of writes that were under way when it "
      "ended, or that were cut off: nobody was told of them.\n",
      l.last.lsn.v, l.behind.size());
}

void put_records(const Listing& l, std::string& out) {
  auto at = std::back_inserter(out);
  fmt::format_to(at, "\n{:>14} {:>19} {:>6} {:<5} {:>7} {:>6} {:>6} {:>10} {:>10}\n", "position", "LSN",
                 "epoch", "type", "extents", "blocks", "zeros", "durable", "commit");
  for (const ListedRecord& r : l.records) {
    const BodyHeader& h = r.body.header;
    fmt::format_to(at, "{:>14} {:>19} {:>6} {:<5} {:>7} {:>6} {:>6} {:>10} {:>10}", r.frame.pos.v,
                   fmt::format("{}-{}", h.first_lsn.v, h.last_lsn().v), h.epoch.counter, type_name(h.type),
                   r.body.extents.size(), h.payload_blocks, zero_blocks(r.body), r.frame.durable_lsn.v,
                   r.frame.commit_lsn.v);
    if (h.type == RecordType::epoch)
      fmt::format_to(at, "  epoch {} begins: written by replica {}, in sync {:#x}{}",
                     r.body.epoch_change.epoch.counter, r.body.epoch_change.writer,
                     r.body.epoch_change.in_sync,
                     r.body.epoch_change.flags & epoch_by_force ? ", by force" : "");
    out += '\n';
  }
  for (const FrameHeader& f : l.behind)
    fmt::format_to(at, "{:>14} {:>19} {:>6} {:<5} {:>7} {:>6} {:>6} {:>10} {:>10}\n", f.pos.v,
                   is_void(l.superblock, f) ? "behind, cut off" : "behind the end", "", "", "", "", "",
                   f.durable_lsn.v, f.commit_lsn.v);
}

json::object json_of(const FrameHeader& f) {
  return {{"position", f.pos.v},
          {"bytes", std::uint64_t{f.total_blocks} * block_size},
          {"durable", f.durable_lsn.v},
          {"commit", f.commit_lsn.v},
          {"incarnation", f.incarnation}};
}

json::object json_of(const ListedRecord& r) {
  const BodyHeader& h = r.body.header;
  json::object out = json_of(r.frame);
  out["first_lsn"] = h.first_lsn.v;
  out["last_lsn"] = h.last_lsn().v;
  out["hash"] = r.body.hash.hex();
  out["epoch"] = {{"counter", h.epoch.counter}, {"id", h.epoch.id.text()}};
  out["type"] = type_name(h.type);
  out["blocks"] = h.payload_blocks;
  json::array extents;
  for (const Extent& e : r.body.extents)
    extents.push_back(
        {{"lba", e.lba.v}, {"blocks", e.blocks}, {"kind", e.kind == ExtentKind::zeros ? "zeros" : "data"}});
  out["extents"] = std::move(extents);
  if (h.type == RecordType::epoch)
    out["begins"] = {{"counter", r.body.epoch_change.epoch.counter},
                     {"id", r.body.epoch_change.epoch.id.text()},
                     {"writer", r.body.epoch_change.writer},
                     {"in_sync", r.body.epoch_change.in_sync},
                     {"by_force", (r.body.epoch_change.flags & epoch_by_force) != 0}};
  return out;
}

}  // namespace

std::string journal_text(const JournalReport& report, bool with_records) {
  const Listing& l = report.listing;
  const Superblock& sb = l.superblock;
  std::string out;
  auto at = std::back_inserter(out);
  fmt::format_to(at, "{}: journal of volume {}, replica {}, {} MiB\n", report.path, sb.volume.text(),
                 sb.replica, sb.volume_blocks * block_size >> 20);
  fmt::format_to(at, "ring       {} bytes at {}, {} in use; incarnation {}\n", sb.ring_bytes, sb.ring_offset,
                 l.end.v - sb.tail_pos.v, sb.incarnation);
  fmt::format_to(at, "LSN        tail {}, committed {}, last {}; {} records\n", sb.tail.lsn.v, l.commit.v,
                 l.last.lsn.v, l.records.size());
  if (is_inconsistent(sb.disk))
    out += "disk       Inconsistent: a resync into this replica was not finished\n";
  if (!l.superblock_copies_agree)
    out += "superblock one of its copies is older or damaged; the next start writes it anew\n";
  if (report.data_area && !*report.data_area)
    fmt::format_to(at, "data area  {}\n", report.data_area->error().message);
  if (report.in_use) out += "The replica is being served: it may have changed while it was read.\n";
  if (with_records) put_records(l, out);
  if (with_records) out += '\n';
  return out + verdict(l);
}

std::string journal_json(const JournalReport& report, bool with_records) {
  const Listing& l = report.listing;
  const Superblock& sb = l.superblock;
  json::object root{
      {"journal", report.path},
      {"volume", sb.volume.text()},
      {"replica", sb.replica},
      {"size_bytes", sb.volume_blocks * block_size},
      {"ring",
       {{"offset", sb.ring_offset}, {"bytes", sb.ring_bytes}, {"used_bytes", l.end.v - sb.tail_pos.v}}},
      {"incarnation", sb.incarnation},
      {"lsn", {{"tail", sb.tail.lsn.v}, {"commit", l.commit.v}, {"last", l.last.lsn.v}}},
      {"inconsistent", is_inconsistent(sb.disk)},
      {"superblock_copies_agree", l.superblock_copies_agree},
      {"in_use", report.in_use},
      {"good", !l.damage && (!report.data_area || report.data_area->has_value())},
      {"damage", l.damage ? json::value(l.damage->message) : json::value()}};
  if (report.data_area) root["data_area"] = *report.data_area ? "fits" : report.data_area->error().message;
  if (with_records) {
    json::array records;
    for (const ListedRecord& r : l.records) records.push_back(json_of(r));
    root["records"] = std::move(records);
  }
  json::array behind;
  for (const FrameHeader& f : l.behind) {
    json::object o = json_of(f);
    o["cut_off"] = is_void(sb, f);
    behind.push_back(std::move(o));
  }
  root["behind"] = std::move(behind);
  return json::serialize(root) + "\n";
}

std::string cut_text(const History& history, Lsn lsn, const CutReport& report, const std::string& path) {
  return fmt::format(
      "{}: the volume as it was after LSN {} (possible here: {} to {}; committed: {}): {} records applied, "
      "{} blocks from the journal, {} from the data area\n",
      path, lsn.v, history.first().v, history.last().v, history.commit().v, report.records,
      report.blocks_from_journal, report.blocks_from_data);
}

std::string cut_json(const History& history, Lsn lsn, const CutReport& report, const std::string& path) {
  json::object root{{"image", path},
                    {"lsn", lsn.v},
                    {"possible", {{"first", history.first().v}, {"last", history.last().v}}},
                    {"commit", history.commit().v},
                    {"records", report.records},
                    {"blocks_from_journal", report.blocks_from_journal},
                    {"blocks_from_data", report.blocks_from_data}};
  return json::serialize(root) + "\n";
}

}  // namespace twinloft::repl::ctl
