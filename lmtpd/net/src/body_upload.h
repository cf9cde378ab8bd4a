// A message on its way from a connection into its BodyStore: its parts are stored one after the other, in the
// order in which they came.
//
//   here ──a part that does not fit into memory──▶ away ──written──▶ here
//                                                  away ──written, and more has come──▶ away
//   away ──an error──▶ lost
//
// While it is away a worker alone has the store, and what comes meanwhile waits here: two parts are never
// written at once. Without I/O and threads of its own; belongs to the connection's loop.
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
  using Next = Result<std::optional<BodyWrite>>;  // nullopt: nothing is to be written now. An error: the body
                                                  // is lost

  explicit BodyUpload(std::shared_ptr<BodyStore> store) : state_(Here{std::move(store)}) {}

  // The next part of the message.
  Next append(std::span<const ByteSpan> pieces);
  // The last write has ended so.
  Next written(std::shared_ptr<BodyStore> store, const Status& kept);
  // A write is under way.
  bool is_away() const { return std::holds_alternative<Away>(state_); }
  // An error was returned, and nothing is taken or delivered any more.
  bool is_lost() const { return std::holds_alternative<Lost>(state_); }

  // All of the message has come: what it is to be delivered with, once every part is stored.
  void complete(std::shared_ptr<const Envelope> envelope) { envelope_ = std::move(envelope); }
  struct Whole {
    std::shared_ptr<const Envelope> envelope;
    std::shared_ptr<BodyStore> store;
  };
  // Once, where it is complete and stored.
  std::optional<Whole> take_whole();

 private:
  struct Here {
    std::shared_ptr<BodyStore> store;
  };
  struct Away {
    std::string waiting;  // came while the part before it was being written
  };
  struct Lost {
    Error error;
  };
  Next lose(const Error& error);

  std::variant<Here, Away, Lost> state_;
  std::shared_ptr<const Envelope> envelope_;  // null: more may come
};

}  // namespace twinloft::lmtpd
