// The message of a connection, from its first byte to the replies of its deliveries.
//
//   none ──begin()──▶ receiving ──complete(), and all is stored──▶ delivering ──delivered()──▶ none
//                        └──abort()──▶ none
//
// A step that a state does not have is a std::logic_error, which costs the connection, and nothing else.
// Without threads: the owner has workers carry out what is written and delivered. Belongs to the
// connection's loop.
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
    // write.store->append(write.bytes), on a worker. Then written().
    virtual void write(std::shared_ptr<BodyUpload> upload, BodyWrite write) = 0;
    // The deliveries of the message, begun. Then delivered().
    virtual std::shared_ptr<Transaction> deliver(BodyUpload::Whole whole) = 0;
    // It cannot be stored. The session has to learn it, and abort() follows.
    virtual void lost(const Error& error) = 0;
  };
  // The owner outlives it.
  explicit IncomingMessage(Owner& owner) : owner_(owner) {}

  void begin(std::shared_ptr<BodyStore> store);
  // The next part of it. False: the owner was told that the message is lost. Of a lost message nothing more
  // is kept.
  bool take(std::span<const ByteSpan> pieces);
  // Nothing more comes of it, and it is not delivered. Nothing where it is being delivered already.
  void abort();
  // All of it has come.
  void complete(std::shared_ptr<const Envelope> envelope);
  // A write has ended so. Of a message that was given up meanwhile it changes nothing.
  void written(const std::shared_ptr<BodyUpload>& upload, std::shared_ptr<BodyStore> store,
               const Status& kept);
  void delivered() { state_ = None{}; }
  // The connection has ended.
  void forget() { state_ = None{}; }

  // A part of it is with a worker: nothing more should be read from the client.
  bool is_storing() const;
  // Its deliveries, while they are under way; else null.
  std::shared_ptr<Transaction> deliveries() const;

 private:
  struct None {};
  struct Receiving {
    std::shared_ptr<BodyUpload> upload;
  };
  struct Delivering {
    std::shared_ptr<Transaction> transaction;
  };
  Receiving& receiving();
  void deliver_if_whole(BodyUpload& upload);

  Owner& owner_;
  std::variant<None, Receiving, Delivering> state_;
};

}  // namespace twinloft::lmtpd
