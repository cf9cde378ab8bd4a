// The message as an agent's stdin: a file of its own, positioned at 0, that can tell afterwards whether it
// was read.
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
  // A sealed memfd where the body is small enough and the budget has room, else an unlinked file in
  // `temporary`. Errors: Errc::exhausted where there is no room for that either.
  static Result<AgentStdin> create(std::string_view header, const MessageBody& body, bool crlf,
                                   const Place& place);
  int fd() const { return fd_.get(); }
  // read() moves the shared offset; pread() and mmap(), which Dovecot's agent uses, change the access time,
  // set here to a time long past. True also where neither could tell (a large message in a file system
  // mounted noatime).
  bool was_read() const;

 private:
  MemoryCharge charge_;
  Fd fd_;
  bool access_time_counts_ = false;
};

}  // namespace twinloft::lmtpd
