// A secondary that passes records on to replicas near it: sends each of them the records of the log here,
// from the point that the replica names. The replica itself compares them with what the primary says.
//
// docs/decisions/relays.md
#pragma once

#include <deque>
#include <map>
#include <string>

#include "volume.h"

namespace twinloft::repl::core {

class RelayService {
 public:
  explicit RelayService(Volume& volume) : v_(volume) {}
  ~RelayService();
  RelayService(const RelayService&) = delete;
  RelayService& operator=(const RelayService&) = delete;

  void handle(ReplicaId from, const Subscribe& message);
  void handle(ReplicaId from, const Taken& message);
  void ended(ReplicaId of, const SubscriptionEnded& message);
  void ended(ReplicaId of);       // its connection is lost
  void end_all(const char* why);  // this replica follows no records any more
  void advance();                 // the journal's tail waits for neighbours while there is room
  void send();                    // just before the output goes out, since it refers to the arena
  void on_journal_read(std::uint64_t token_number, int error, std::vector<std::byte> bytes);
  bool serves(ReplicaId id) const { return neighbours_.contains(id); }
  bool empty() const { return neighbours_.empty(); }

 private:
  struct Neighbour {
    Epoch epoch;  // of its question, as all messages to it
    std::uint64_t seq = 0;
    LogMark after;
    bool begun = false;      // `after` was found here
    RecordNo next = 0;       // to be sent
    RecordNo durable_end{};  // there
    struct Flying {
      RecordNo end;
      std::uint64_t bytes;
    };
    std::deque<Flying> flying = {};  // sent, and not in its memory
    std::uint64_t flying_bytes = 0;
    std::uint64_t read = 0, read_bytes = 0;  // the journal read under way; 0: none
    bool read_is_stale = false;              // it began for an earlier question
    std::uint64_t held() const { return flying_bytes + read_bytes; }
  };
  std::string send_to(ReplicaId of, Neighbour& n);  // the reason why it ends, or an empty text
  bool has_room(ReplicaId of, const Neighbour& n, std::uint64_t bytes) const;
  void note_sent(Neighbour& n, const LogRecord& record);
  void end(ReplicaId of, const std::string& why);
  void tell_memory(ReplicaId of, std::uint64_t bytes) const;

  Volume& v_;
  std::map<ReplicaId, Neighbour> neighbours_;
};

}  // namespace twinloft::repl::core
