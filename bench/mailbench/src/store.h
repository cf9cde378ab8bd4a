// Where the delivered messages are: a spool of Maildirs, or the mailboxes of an IMAP server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "expectations.h"
#include "twinloft/base/clock.h"
#include "twinloft/mailbench/verify.h"

namespace twinloft::mailbench {

// A message of the store. The views are valid during the call only.
struct StoredText {
  std::uint32_t id = 0;  // for Store::place()
  std::string_view text{};
  std::string error{};               // not empty: it cannot be read
  bool owner_known = false;          // by the place; otherwise the message's Delivered-To names the owner
  std::uint32_t owner = UINT32_MAX;  // index into Expectations::recipients; UINT32_MAX: another one
  std::string_view owner_name{};
  std::optional<WallTime> stored{};  // when the file was written
};

class Store {
 public:
  using Take = std::function<void(std::size_t thread, const StoredText& message)>;
  virtual ~Store() = default;

  // Reads all messages. `take` is called from several threads, whose numbers are below threads(). Errors: the
  // store cannot be read.
  virtual Status read(const Take& take) = 0;
  virtual std::size_t threads() const = 0;
  virtual std::string place(std::uint32_t id) const = 0;  // in words, for reports
  virtual std::uint64_t count() const = 0;                // messages, after read()
  virtual std::uint64_t left_in_tmp() const { return 0; }
};

// Both outlive the store. Errors: Errc::conflict, two recipients have one Maildir.
Result<std::unique_ptr<Store>> make_spool_store(const VerifyOptions& options, const Expectations& expected);
Result<std::unique_ptr<Store>> make_imap_store(const VerifyOptions& options, const Expectations& expected);

}  // namespace twinloft::mailbench
