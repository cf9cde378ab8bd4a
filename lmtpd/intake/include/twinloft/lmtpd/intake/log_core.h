// The writer's side of the intake log, without I/O: which records the next group has, where it is written,
// which space may be used again, and what the mark says.
//
// The caller writes one group at a time, and tells what became of it. The order that it must keep:
//
//   a delivery    append() -> its group is durable -> rename -> settle() -> the mark is set -> 250
//   a withdrawal  cancel() -> its group is durable -> settle() -> 451
//   a checkpoint  prefix of the mark that is set -> sync() -> checkpointed(prefix) -> the next group says so
//
// Space is free once a durable group says that its entries are retired. The newest durable group is never
// overwritten. Not thread-safe: the caller has a lock.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>

#include "twinloft/base/bytes.h"
#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"
#include "twinloft/intake_log/group.h"
#include "twinloft/intake_log/mark.h"
#include "twinloft/intake_log/place.h"
#include "twinloft/intake_log/scan.h"

namespace twinloft::lmtpd {

// Where an append() or a cancel() will be durable.
struct LogTicket {
  std::uint64_t group = 0;
  std::uint64_t first_entry = 0;  // of the names of an append(): first_entry, first_entry + 1, ...
};

// Why a message cannot go into the log now. It goes another way.
enum class LogRefusal {
  too_large,   // it would not fit into an empty group
  group_full,  // the open group waits for the one before
  half_full,   // half of the log waits for a checkpoint
  mark_full,   // too many entries have an unsettled one before
  failed,      // a write failed
};
std::string_view to_string(LogRefusal refusal);

class LogCore {
 public:
  struct Config {
    intake_log::LogShape shape;
    Uuid incarnation;
    intake_log::MountInstance mount;
  };
  // How large a group may be in a log of this shape. 0: the log is too small.
  static std::size_t group_bytes(const intake_log::LogShape& shape);

  // scan: of the segments, without damage. mark: what is set now; intake_log::check_mark() has accepted it.
  // one, two: memory for a group each, of group_bytes() or less. They outlive this object.
  LogCore(const Config& config, const intake_log::Scan& scan, intake_log::Mark mark, MutableByteSpan one,
          MutableByteSpan two);

  // --- Deliveries. ---

  // nullopt: append() has room.
  std::optional<LogRefusal> refusal(std::span<const intake_log::EntryName> names,
                                    std::size_t content_bytes) const;
  // Adds a message to the open group. Errors change nothing: Errc::invalid (a name that the log cannot hold),
  // Errc::exhausted (refusal()).
  Result<LogTicket> append(std::span<const intake_log::EntryName> names, std::string_view content);
  // Adds the withdrawal of a durable entry to the open group. It has room that messages do not take. Errors:
  // Errc::exhausted.
  Result<LogTicket> cancel(std::uint64_t entry);
  // The entry's group is durable, and its name is in new/ or its cancel record is durable.
  void settle(std::uint64_t entry);
  // On the mount of the writer before: what is not settled was never acknowledged.
  void settle_all_durable();
  // What the caller sets. It only grows.
  const intake_log::Mark& mark() const { return mark_; }

  // --- The writer of groups. ---

  // The open group has records, or must say what is retired; and no group is being written.
  bool wants_write() const;
  struct Write {
    std::uint64_t group = 0;
    intake_log::Position at;
    ByteSpan bytes;  // in the memory of the constructor; valid until the next begin_write()
  };
  // After wants_write(). The open group is closed, and a new one opened.
  Write begin_write();
  void written();  // the group is durable
  // It is unknown whether the group is durable. Nothing more is appended or written.
  void write_failed();
  bool has_failed() const { return failed_; }
  // Groups with numbers below are durable.
  std::uint64_t durable_groups() const { return durable_groups_; }
  bool is_durable(const LogTicket& ticket) const { return ticket.group < durable_groups_; }

  // --- Checkpoints. ---

  // A quarter of the log is in use, and a checkpoint may free something.
  bool checkpoint_wanted() const;
  // A mark with this prefix was set, and then synced without an error.
  void checkpointed(std::uint64_t prefix);
  // Every entry is retired, and a durable group says so.
  bool is_empty() const;
  // What a scan would find. Of the newest group it has number, place and entries. After is_empty().
  intake_log::Scan ending() const;
  std::uint64_t used_bytes() const { return used_; }  // of the ring, with the group that is being written
  std::uint64_t next_entry() const { return next_entry_ + open().entries(); }

 private:
  struct Live {
    std::uint64_t number = 0;
    intake_log::Position at;
    std::uint64_t end_entry = 0;
  };
  const intake_log::GroupBuilder& open() const { return builders_[open_]; }
  intake_log::GroupBuilder& open() { return builders_[open_]; }
  bool is_half_full(std::size_t more) const;
  bool must_announce() const;
  void measure();

  const Config config_;
  intake_log::Mark mark_;
  intake_log::GroupBuilder builders_[2];
  std::size_t cancel_room_;  // of each group, not for messages
  unsigned open_ = 0;        // its neighbour is being written, or unused
  // From the oldest group that a durable group calls needed, to the newest one.
  std::deque<Live> live_;
  intake_log::Position end_;                       // of the newest group
  std::uint64_t used_ = 0;                         // from the oldest live group to end_
  std::uint64_t next_group_ = 0, next_entry_ = 0;  // of the open group
  std::uint64_t durable_groups_ = 0, durable_entries_ = 0;
  std::uint64_t retiring_ = 0;  // a synced mark proves it
  std::uint64_t retired_ = 0;   // a durable group says it
  std::optional<intake_log::GroupHeader> writing_;
  bool failed_ = false;
};

}  // namespace twinloft::lmtpd
