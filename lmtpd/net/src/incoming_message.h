// The message of a connection, from its first byte to the replies of its deliveries.
//
//   none ──begin()──▶ receiving ──complete(), and all is stored──▶ whole ──delivering()──▶ delivering
//                        └──abort()──▶ none
//   whole, delivering ──ended()──▶ none         delivering ──delivering()──▶ delivering: the next stage
//
// A whole message is with the filters, if there are any.
//
// An illegal transition throws std::logic_error, which ends this connection only. IncomingMessage has no
// threads: the owner's workers write and deliver. It belongs to the connection's loop.
#pragma once

#include <memory>
#include <span>
#include <variant>

#include "body_upload.h"

namespace twinloft::lmtpd {

class Transaction;

class IncomingMessage {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // Calls write.store->append(write.bytes) on a worker, then written().
    virtual void write(std::shared_ptr<BodyUpload> upload, BodyWrite write) = 0;
    // Filters and delivers the message: delivering(), ended().
    virtual void take(BodyUpload::Whole whole) = 0;
    // The message cannot be stored. The owner informs the session, and abort() follows.
    virtual void lost(const Error& error) = 0;
  };
  // The owner must outlive this object.
  explicit IncomingMessage(Owner& owner) : owner_(owner) {}

  void begin(std::shared_ptr<BodyStore> store);
  // The next part of the message. False: lost() was called. Further parts of a lost message are ignored.
  bool take(std::span<const ByteSpan> pieces);
  // Discards the message. No effect if its delivery has begun.
  void abort();
  // The message has arrived completely.
  void complete(std::shared_ptr<const Envelope> envelope);
  // A write has ended with this status. No effect if the message was discarded meanwhile.
  void written(const std::shared_ptr<BodyUpload>& upload, std::shared_ptr<BodyStore> store,
               const Status& kept);
  void delivering(std::shared_ptr<Transaction> deliveries);
  void ended() { state_ = None{}; }
  // The connection has ended.
  void forget() { state_ = None{}; }

  // A worker is writing a part. The caller should not read from the client.
  bool is_storing() const;
  // The message is complete, and no delivery has begun.
  bool is_whole() const { return std::holds_alternative<Whole>(state_); }
  // The deliveries while they are in flight, otherwise null.
  std::shared_ptr<Transaction> deliveries() const;

 private:
  struct None {};
  struct Receiving {
    std::shared_ptr<BodyUpload> upload;
  };
  struct Whole {};
  struct Delivering {
    std::shared_ptr<Transaction> transaction;
  };
  Receiving& receiving();
  void hand_over_if_whole(BodyUpload& upload);

  Owner& owner_;
  std::variant<None, Receiving, Whole, Delivering> state_;
};

}  // namespace twinloft::lmtpd
