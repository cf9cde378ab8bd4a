// Moves a message from a connection into its BodyStore. The parts are stored one at a time, in the order of
// their arrival.
//
//   here ──a part that does not fit into memory──▶ away ──written──▶ here
//                                                  away ──written, and more has come──▶ away
//   away ──an error──▶ lost
//
// In state `away` only a worker has the store, and new parts wait here, so two parts are never written at the
// same time. BodyUpload has no I/O and no threads. It belongs to the connection's loop.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "body_store.h"
#include "twinloft/base/bytes.h"

namespace twinloft::lmtpd {

// For a worker: store->append(bytes). Then BodyUpload::written().
struct BodyWrite {
  std::shared_ptr<BodyStore> store;
  std::string bytes;
};

class BodyUpload {
 public:
  // nullopt: nothing to write now. An error: the body is lost.
  using Next = Result<std::optional<BodyWrite>>;

  explicit BodyUpload(std::shared_ptr<BodyStore> store) : state_(Here{std::move(store)}) {}

  // The next part of the message.
  Next append(std::span<const ByteSpan> pieces);
  // The last write has ended with this status.
  Next written(std::shared_ptr<BodyStore> store, const Status& kept);
  // A write is in flight.
  bool is_away() const { return std::holds_alternative<Away>(state_); }
  // An error was returned. No more parts are taken, and nothing is delivered.
  bool is_lost() const { return std::holds_alternative<Lost>(state_); }

  // The message has arrived completely. Delivery with this envelope may begin when every part is stored.
  void complete(std::shared_ptr<const Envelope> envelope) { envelope_ = std::move(envelope); }
  struct Whole {
    std::shared_ptr<const Envelope> envelope;
    std::shared_ptr<BodyStore> store;
  };
  // Returns the message once, when it is complete and stored.
  std::optional<Whole> take_whole();

 private:
  struct Here {
    std::shared_ptr<BodyStore> store;
  };
  struct Away {
    std::string waiting;  // arrived while the part before was being written
  };
  struct Lost {
    Error error;
  };
  Next lose(const Error& error);

  std::variant<Here, Away, Lost> state_;
  std::shared_ptr<const Envelope> envelope_;  // null: not complete
};

}  // namespace twinloft::lmtpd
