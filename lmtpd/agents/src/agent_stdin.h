// The message as an agent's stdin: a separate file at position 0, which shows afterwards whether it was
// read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/session/memory_budget.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

class AgentStdin {
 public:
  struct Place {
    std::uint64_t memory_bytes_max = 0;  // of the body
    MemoryBudget* budget = nullptr;      // of all messages; null: no bound
    const std::string& temporary;
    MemoryBudget* disk = nullptr;  // of all files; null: no bound
  };
  // A sealed memfd if the body is small enough and the budget has room, otherwise an unlinked file in
  // `temporary`. Errors: Errc::exhausted (no room for a file either).
  static Result<AgentStdin> create(std::string_view header, const MessageBody& body, bool crlf,
                                   const Place& place);
  int fd() const { return fd_.get(); }
  // Whether the message was read. read(2) moves the shared offset. pread(2) and mmap(2), as by Dovecot's
  // agent, change the access time, which is set to an old time here. True also if neither is known (a large
  // message on a file system mounted with noatime).
  bool was_read() const;

 private:
  MemoryCharge charge_;
  Fd fd_;
  bool access_time_counts_ = false;
};

}  // namespace twinloft::lmtpd
