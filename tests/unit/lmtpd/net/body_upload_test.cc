#include "body_upload.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace twinloft::lmtpd {
namespace {

class BodyUploadTest : public testing::Test {
 protected:
  BodyUpload::Next append(std::string_view text) {
    ByteSpan piece = as_bytes(text);
    return upload_.append({&piece, 1});
  }
  // Does a worker's part of the write.
  BodyUpload::Next write(BodyWrite write) {
    Status kept = write.store->append(write.bytes);
    return upload_.written(std::move(write.store), kept);
  }
  static std::string text_of(const BodyStore& store) {
    const MessageBody& body = store.body();
    if (body.in_memory()) return body.memory;
    std::string out(body.size, '\0');
    EXPECT_EQ(::pread(body.file.get(), out.data(), out.size(), 0), static_cast<ssize_t>(out.size()));
    return out;
  }

  MemoryBudget budget_{1000};
  BodyLimits limits_{4, "/tmp"};
  BodyUpload upload_{std::make_shared<BodyStore>(limits_, budget_)};
  std::shared_ptr<const Envelope> envelope_ = std::make_shared<Envelope>();
};

TEST_F(BodyUploadTest, WhatFitsIntoMemoryNeedsNoWorker) {
  auto next = append("abcd");
  ASSERT_TRUE(next);
  EXPECT_FALSE(*next);
  EXPECT_FALSE(upload_.is_away());
  EXPECT_FALSE(upload_.take_whole()) << "more data may arrive";
  upload_.complete(envelope_);
  auto whole = upload_.take_whole();
  ASSERT_TRUE(whole);
  EXPECT_EQ(text_of(*whole->store), "abcd");
  EXPECT_FALSE(upload_.take_whole()) << "once";
}

TEST_F(BodyUploadTest, WhatComesMeanwhileIsWrittenNextAndNeverAtOnce) {
  ASSERT_FALSE(*append("ab"));
  auto first = append("cdef");
  ASSERT_TRUE(first && *first);
  EXPECT_TRUE(upload_.is_away());
  for (std::string_view part : {"g", "hi", "j"}) ASSERT_FALSE(*append(part)) << "one write at a time";
  upload_.complete(envelope_);
  EXPECT_FALSE(upload_.take_whole());
  auto second = write(std::move(**first));
  ASSERT_TRUE(second && *second);
  EXPECT_EQ((*second)->bytes, "ghij");
  EXPECT_FALSE(upload_.take_whole());
  auto none = write(std::move(**second));
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
  auto whole = upload_.take_whole();
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->envelope, envelope_);
  EXPECT_EQ(text_of(*whole->store), "abcdefghij");
}

TEST_F(BodyUploadTest, AFailedWriteLosesAllThatFollows) {
  auto first = append("abcdef");
  ASSERT_TRUE(first && *first);
  ASSERT_FALSE(*append("ghi"));
  upload_.complete(envelope_);
  auto next = upload_.written((*first)->store, fail(Errc::io, "the disk is full"));
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().message, "the disk is full");
  EXPECT_FALSE(append("jkl"));
  EXPECT_FALSE(upload_.take_whole());
}

TEST_F(BodyUploadTest, AWriteThatNobodyAskedForIsRefused) {
  auto store = std::make_shared<BodyStore>(limits_, budget_);
  EXPECT_FALSE(upload_.written(store, {}));
  ASSERT_FALSE(*append("ab"));
  upload_.complete(envelope_);
  EXPECT_EQ(text_of(*upload_.take_whole()->store), "ab");
}

// Every split of a message into three parts. The last two arrive during the write of the first, or after it.
TEST(BodyUploadParts, AreStoredInOrderHoweverTheyCome) {
  const std::string text = "0123456789";
  for (std::size_t first = 0; first <= text.size(); ++first)
    for (std::size_t second = first; second <= text.size(); ++second)
      for (bool late : {false, true}) {
        MemoryBudget budget(1000);
        BodyLimits limits{3, "/tmp"};
        BodyUpload upload(std::make_shared<BodyStore>(limits, budget));
        std::optional<BodyWrite> open;
        auto put = [&](std::string_view part) {
          ByteSpan piece = as_bytes(part);
          auto next = upload.append({&piece, 1});
          ASSERT_TRUE(next);
          ASSERT_FALSE(*next && open) << "two writes at once";
          if (*next) open = std::move(**next);
        };
        auto finish = [&] {
          while (open) {
            BodyWrite write = *std::exchange(open, std::nullopt);
            Status kept = write.store->append(write.bytes);
            auto next = upload.written(std::move(write.store), kept);
            ASSERT_TRUE(next);
            open = std::move(*next);
          }
        };
        put(std::string_view(text).substr(0, first));
        if (late) finish();
        put(std::string_view(text).substr(first, second - first));
        put(std::string_view(text).substr(second));
        upload.complete(std::make_shared<Envelope>());
        finish();
        auto whole = upload.take_whole();
        ASSERT_TRUE(whole);
        const MessageBody& body = whole->store->body();
        std::string got(body.size, '\0');
        ASSERT_EQ(::pread(body.file.get(), got.data(), got.size(), 0), static_cast<ssize_t>(text.size()));
        EXPECT_EQ(got, text) << first << ", " << second << (late ? ", late" : "");
      }
}

}  // namespace
}  // namespace twinloft::lmtpd
