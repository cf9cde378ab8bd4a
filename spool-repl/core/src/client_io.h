// The clients' requests on a primary: reads, writes, zeroes and flushes. It also has the open batch, which
// collects writes until it is sealed as a record, and the requests that wait for an acknowledgement.
//
//          try_write               seal                        commit
//   write ----------> open batch ------> record in the log ----------> committed image
//                                                |
//                                                +--acknowledge--> flushes are answered
//
// A write waits as `stalled` while the primary is suspended or has no room. A write that covers a part of a
// block also waits for the old content of the block (`filling`). A read waits as `stalled` only for scratch
// memory.
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "awaiting_repair.h"
#include "checkpointer.h"
#include "open_batch.h"
#include "read_balance.h"
#include "requests.h"
#include "term.h"
#include "twinloft/spool-repl/core/pace.h"

namespace twinloft::repl::core {

class ClientIo final : public Requests {
 public:
  // `pace` gets the latency of each request.
  ClientIo(Volume& volume, Checkpointer& checkpointer, Repair& repair, Pace& pace, const Term& term,
           ReadBalance& balance);
  ~ClientIo() { pending_.clear(); }
  ClientIo(const ClientIo&) = delete;
  ClientIo& operator=(const ClientIo&) = delete;

  void submit(const ClientRequest& request);
  void on_client_read(std::uint64_t token_number, int error);
  void on_fill_read(std::uint64_t token_number, int error);
  bool on_repaired(const Repair::Finished& finished);             // false: no request waits for this repair
  bool on_blocks_read(ReplicaId from, const BlocksRead& answer);  // false: the peer was not asked
  void end_overdue_reads();                                       // they begin anew, here

  void retry_stalled();
  void seal_soon() { want_seal_ = true; }
  // All writes and flushes of a turn share one record, so the batch is sealed at the end of the turn.
  bool seal_is_due();
  void seal_if_due();
  bool seal();                     // false: the open batch is empty, or cannot be sealed now
  void commit(RecordNo end);       // the records before it are committed
  void acknowledge(RecordNo end);  // the records before it are as safe as the protocol promises
  void answer_flushes();           // those that wait only for acknowledged records
  void fail_everything();

  bool any_waits() const override { return !stalled_writes_.empty() || !waiters_.empty(); }
  std::uint64_t serial_without_data() override;
  Pace::Waiting waiting() const;
  bool nothing_under_way() const;  // no disk operation in flight, and no request waits, except flushes
  bool no_flush_waits() const { return waiters_.empty(); }
  bool settled() const { return open_.empty() && stalled_writes_.empty() && waiters_.empty(); }
  bool no_room() const;  // writes wait for room
  std::size_t waiting_requests() const;
  std::optional<Instant> next_tick() const;
  void check_invariants() const;

 private:
  struct ReadRequest {
    ClientRequest request;
    Instant since;         // when it came
    unsigned repairs = 0;  // so far
    bool here = false;     // a peer did not answer as it should: nothing more is asked
    unsigned& repaired() { return repairs; }
  };
  struct Read {
    struct Run {
      Lba lba;
      std::uint64_t blocks;
      std::vector<Slot> slots;  // empty: the disk reads directly into the client's memory
      ReadBalance::Begun read = {};
    };
    ReadRequest request;
    std::vector<Run> runs;
    unsigned outstanding = 0;
    std::uint64_t home_changes = 0;  // Volume::home_changes when it began
    std::vector<Lba> unreadable;     // blocks of failed runs, and blocks with wrong content
    bool stale = false;              // a block that does not fit its digest may have changed during the read
    bool remote = false;             // a peer was asked
  };
  // A write, write-zeroes or trim. `fills`: the old content of edge blocks that the request covers in part.
  struct Write {
    struct Fill {
      Lba lba;
      Slot slot = 0;
    };
    ClientRequest request;
    std::vector<Fill> fills;
    unsigned outstanding = 0;
    std::uint64_t home_changes = 0;  // Volume::home_changes when the fills were read
    unsigned repairs = 0;            // so far
    std::vector<Lba> unreadable;
    unsigned& repaired() { return repairs; }
  };
  struct Waiter {
    std::uint64_t serial;
    std::uint64_t id;
    Instant since;
  };
  enum class FillState { none_needed, waiting, no_memory };

  void load_uncommitted();
  BlockIndex::Found newest(Lba lba) const;
  void complete(const ClientRequest& request, int error);

  // client_read.cc
  void submit_read(const ClientRequest& request);
  bool try_read(const ReadRequest& request);
  void check_run(Read& read, const Read::Run& run);
  void end_run(std::unordered_map<std::uint64_t, Read>::iterator read);
  bool take_answer(Read& read, const ReadBalance::Asked& asked, const BlocksRead& answer);
  void answer_read(const Read& read);
  void after_repair(const ReadRequest& request, bool ok);

  // client_write.cc
  bool try_write(Write& write);
  FillState start_fills(Write& write);
  void drop_fills(Write& write);
  void apply(Write& write);
  void put_block(Lba lba, std::uint32_t from, std::uint32_t bytes, const std::byte* data, const Write& write);
  void after_repair(Write write, bool ok);

  void submit_flush(const ClientRequest& request);
  void wait_durable(std::uint64_t serial, const ClientRequest& request);

  Volume& v_;
  Checkpointer& checkpointer_;
  Pace& pace_;
  const Term& term_;
  ReadBalance& balance_;

  BlockIndex pending_;  // newest content that is not committed; serial = batch serial
  OpenBatch open_;
  std::uint64_t open_serial_ = 1;
  bool want_seal_ = false;

  std::uint64_t acked_serial_ = 0;
  std::deque<Waiter> waiters_;        // by serial
  std::deque<Write> stalled_writes_;  // in order of arrival
  std::deque<ReadRequest> stalled_reads_;
  std::uint64_t next_op_ = 1;
  std::unordered_map<std::uint64_t, Read> reads_;
  std::unordered_map<std::uint64_t, Write> filling_;
  AwaitingRepair<ReadRequest> repairing_reads_;
  AwaitingRepair<Write> repairing_writes_;
};

}  // namespace twinloft::repl::core
