// A message from its first byte to its deliveries. The test does the work of workers and deliveries.
#include "incoming_message.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <stdexcept>

#include "fakes.h"
#include "transaction.h"

namespace twinloft::lmtpd {
namespace {

class IncomingMessageTest : public testing::Test, public IncomingMessage::Owner {
 protected:
  IncomingMessageTest() { envelope_->recipients.emplace_back(); }

  void write(std::shared_ptr<BodyUpload> upload, BodyWrite write) override {
    writes_.emplace_back(std::move(upload), std::move(write));
  }
  void take(BodyUpload::Whole whole) override {
    whole_ = whole;
    EXPECT_TRUE(message_.is_whole());
    if (delivers_)
      message_.delivering(std::make_shared<Transaction>(
          hub_, std::move(whole.envelope), std::move(whole.store), [](const std::vector<Reply>&) {}));
  }
  void lost(const Error& error) override { losses_.push_back(error.message); }

  std::shared_ptr<BodyStore> store() { return std::make_shared<BodyStore>(limits_, budget_); }
  bool take(std::string_view text) {
    ByteSpan piece = as_bytes(text);
    return message_.take({&piece, 1});
  }
  // Ends the oldest write in flight.
  void end_write(std::optional<Error> error = {}) {
    auto [upload, write] = std::move(writes_.front());
    writes_.pop_front();
    Status kept = error ? Status(std::unexpected(*error)) : write.store->append(write.bytes);
    message_.written(upload, std::move(write.store), kept);
  }

  OsClock clock_;
  FakeUsers users_;
  FakeDeliverer deliverer_;
  Hub hub_{ServerConfig{}, users_, deliverer_, clock_};
  MemoryBudget budget_{1000};
  BodyLimits limits_{4, "/tmp"};
  std::shared_ptr<Envelope> envelope_ = std::make_shared<Envelope>();
  std::deque<std::pair<std::shared_ptr<BodyUpload>, BodyWrite>> writes_;
  std::vector<std::string> losses_;
  std::optional<BodyUpload::Whole> whole_;
  bool delivers_ = true;  // at once
  IncomingMessage message_{*this};
};

TEST_F(IncomingMessageTest, ASmallOneIsDeliveredAtOnce) {
  message_.begin(store());
  EXPECT_TRUE(take("abcd"));
  EXPECT_FALSE(message_.is_storing());
  EXPECT_EQ(message_.deliveries(), nullptr);
  message_.complete(envelope_);
  ASSERT_TRUE(whole_);
  EXPECT_EQ(whole_->envelope, envelope_);
  EXPECT_EQ(whole_->store->body().memory, "abcd");
  EXPECT_NE(message_.deliveries(), nullptr);
  message_.ended();
  EXPECT_EQ(message_.deliveries(), nullptr);
  message_.begin(store());
}

TEST_F(IncomingMessageTest, ALargeOneIsDeliveredOnceItIsStored) {
  message_.begin(store());
  EXPECT_TRUE(take("abcdefgh"));
  EXPECT_TRUE(message_.is_storing());
  EXPECT_TRUE(take("ij"));
  message_.complete(envelope_);
  EXPECT_FALSE(whole_);
  ASSERT_EQ(writes_.size(), 1u);
  end_write();
  ASSERT_EQ(writes_.size(), 1u) << "the data that arrived meanwhile";
  EXPECT_TRUE(message_.is_storing());
  end_write();
  ASSERT_TRUE(whole_);
  EXPECT_EQ(whole_->store->body().size, 10u);
  EXPECT_FALSE(message_.is_storing());
}

TEST_F(IncomingMessageTest, ALostOneIsToldOnceAndNotDelivered) {
  message_.begin(store());
  EXPECT_TRUE(take("abcdefgh"));
  end_write(Error{Errc::io, "the disk is full"});
  EXPECT_EQ(losses_, std::vector<std::string>{"the disk is full"});
  EXPECT_TRUE(take("more")) << "the owner already knows";
  message_.complete(envelope_);
  EXPECT_EQ(losses_.size(), 1u);
  EXPECT_FALSE(whole_);
  message_.abort();
  message_.begin(store());
}

TEST_F(IncomingMessageTest, OfOneThatWasGivenUpAWriteThatEndsIsOfNoInterest) {
  message_.begin(store());
  EXPECT_TRUE(take("abcdefgh"));
  message_.abort();
  EXPECT_FALSE(message_.is_storing());
  message_.begin(store());
  EXPECT_TRUE(take("xy"));
  end_write(Error{Errc::io, "the disk is full"});
  EXPECT_TRUE(losses_.empty());
  message_.complete(envelope_);
  ASSERT_TRUE(whole_);
  EXPECT_EQ(whole_->store->body().memory, "xy");
}

TEST_F(IncomingMessageTest, WhatIsBeingDeliveredIsNotAborted) {
  message_.begin(store());
  message_.complete(envelope_);
  message_.abort();
  EXPECT_NE(message_.deliveries(), nullptr);
  message_.forget();
  EXPECT_EQ(message_.deliveries(), nullptr);
}

TEST_F(IncomingMessageTest, AStepThatAStateDoesNotHaveThrows) {
  EXPECT_THROW(take("ab"), std::logic_error);
  EXPECT_THROW(message_.complete(envelope_), std::logic_error);
  message_.begin(store());
  EXPECT_THROW(message_.begin(store()), std::logic_error);
  message_.complete(envelope_);
  EXPECT_THROW(message_.begin(store()), std::logic_error);
  EXPECT_THROW(take("ab"), std::logic_error);
}

}  // namespace
}  // namespace twinloft::lmtpd
