// Stores a message from its first byte until its deliveries have ended: in memory up to a limit, then in an
// unlinked file. All messages in memory share one budget. If the budget is used up, a message of any size
// goes to a file. A quarter of the budget is reserved for recipients and for the input of agents.
//
// Writes to a file may block on the disk, so worker threads do them. Appending to memory never blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "twinloft/base/bytes.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/session/filtering.h"
#include "twinloft/lmtpd/session/memory_budget.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

Result<Fd> make_unlinked_file(const std::string& directory);

struct BodyLimits {
  std::uint64_t memory_bytes_max = 1u << 20;  // of one message
  std::string directory = "/var/tmp";         // of the files
  std::function<Result<Fd>(const std::string& directory)> make_file = make_unlinked_file;
  MemoryBudget* disk = nullptr;  // of all files; null: no limit
};

class BodyStore final : public StoredBody {
 public:
  BodyStore(const BodyLimits& limits, MemoryBudget& budget) : limits_(limits), budget_(budget) {}
  ~BodyStore() override { give_back(); }
  BodyStore(const BodyStore&) = delete;
  BodyStore& operator=(const BodyStore&) = delete;

  // Takes the pieces if they fit into memory. False: nothing is taken; the caller calls append().
  bool append_to_memory(std::span<const ByteSpan> pieces);
  // Errors: Errc::exhausted (the budget of files is used up), Errc::io (the file cannot be made or written).
  // After an error the body is lost, and its part of the budgets is given back.
  Status append(std::string_view bytes) override;
  const MessageBody& body() const override { return body_; }

 private:
  bool take_memory(std::uint64_t bytes);
  Status add(std::string_view bytes);
  Status move_to_file();
  Status write_to_file(int file, std::string_view bytes);
  void give_back();

  const BodyLimits& limits_;
  MemoryBudget& budget_;
  std::uint64_t charged_ = 0;
  MemoryCharge on_disk_;
  MessageBody body_;  // last: the file is closed before its charge is given back
};

}  // namespace twinloft::lmtpd
