// Where a message is kept while it arrives and until its deliveries are done: in memory up to a limit, then
// in an unlinked file. All bodies in memory share one budget; where it is used up a message goes to a file,
// whatever its size. A part of the budget is left to recipients and to the input of agents.
//
// What goes to a file may block for as long as a disk does, and is for worker threads; what stays in memory
// never does.
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
#include "twinloft/lmtpd/session/memory_budget.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

Result<Fd> make_unlinked_file(const std::string& directory);

struct BodyLimits {
  std::uint64_t memory_bytes_max = 1u << 20;  // of one message
  std::string directory = "/var/tmp";         // of the files
  std::function<Result<Fd>(const std::string& directory)> make_file = make_unlinked_file;
  MemoryBudget* disk = nullptr;  // of all files; null: no bound
};

class BodyStore {
 public:
  BodyStore(const BodyLimits& limits, MemoryBudget& budget) : limits_(limits), budget_(budget) {}
  ~BodyStore() { give_back(); }
  BodyStore(const BodyStore&) = delete;
  BodyStore& operator=(const BodyStore&) = delete;

  // Takes them where they stay in memory. False: append() is to be called.
  bool append_to_memory(std::span<const ByteSpan> pieces);
  // Errors: Errc::exhausted where the budget of files is used up, Errc::io where the file cannot be made or
  // written. The body is then lost; what was taken from the budget is given back.
  Status append(std::string_view bytes);
  const MessageBody& body() const { return body_; }

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
  MessageBody body_;  // before its charge is given back the file is gone
};

}  // namespace twinloft::lmtpd
