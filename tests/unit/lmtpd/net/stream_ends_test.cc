// The two directions of a connection's socket: reads, writes, and steps that are invalid in a state.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "command_reader.h"
#include "reply_writer.h"
#include "twinloft/base/fd.h"

namespace twinloft::lmtpd {
namespace {

class StreamEnds : public testing::Test {
 protected:
  StreamEnds() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    client_.reset(ends[1]);
    wire_.attach(ours_.get());
  }
  // All bytes that the client can read now.
  std::string received() {
    std::string out;
    std::array<char, 65536> buffer;
    for (ssize_t n; (n = ::recv(client_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0;)
      out.append(buffer.data(), static_cast<std::size_t>(n));
    return out;
  }
  void client_sends(std::string_view text) {
    ASSERT_EQ(::send(client_.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }

  Fd ours_, client_;
  Wire wire_;
  CommandReader reader_;
  ReplyWriter writer_;
  std::array<char, 16> buffer_{};
};

using Flushed = ReplyWriter::Flushed;

TEST_F(StreamEnds, RepliesGatherAndGoOutTogether) {
  EXPECT_EQ(writer_.flush(wire_), Flushed::all) << "there is no data";
  writer_.add("250 a\r\n");
  writer_.add("250 b\r\n");
  EXPECT_FALSE(writer_.empty());
  EXPECT_EQ(writer_.flush(wire_), Flushed::all);
  EXPECT_TRUE(writer_.empty());
  EXPECT_EQ(received(), "250 a\r\n250 b\r\n");
}

// Sends each byte once, in order, even if the socket is often full.
TEST_F(StreamEnds, TheRestIsSentOnceThereIsRoom) {
  std::string all;
  for (int i = 0; all.size() < 4'000'000; ++i) all += std::to_string(i) + "\r\n";
  writer_.add(all);
  std::string got;
  int rounds = 0;
  for (; writer_.flush(wire_) == Flushed::needs_room && rounds < 10'000; ++rounds) {
    writer_.wait();
    got += received();
    writer_.ready();
  }
  got += received();
  EXPECT_GT(rounds, 1);
  EXPECT_EQ(got, all);
  EXPECT_LE(writer_.memory(), 16u * 1024) << "the memory of a burst is freed";
}

TEST_F(StreamEnds, AClientThatIsGoneIsBroken) {
  client_.reset();
  writer_.add("250 a\r\n");
  EXPECT_EQ(writer_.flush(wire_), Flushed::broken);
}

TEST_F(StreamEnds, WhatBecameOfAMessageIsNotHeldBack) {
  writer_.add("250 a\r\n");
  EXPECT_TRUE(writer_.may_be_held_back());
  writer_.hurry();
  EXPECT_FALSE(writer_.may_be_held_back());
  EXPECT_EQ(writer_.flush(wire_), Flushed::all);
  writer_.add("250 b\r\n");
  EXPECT_TRUE(writer_.may_be_held_back());
  writer_.add(std::string(16 * 1024, 'x'));
  EXPECT_FALSE(writer_.may_be_held_back()) << "too much";
}

TEST_F(StreamEnds, ReadsWhatIsThere) {
  EXPECT_TRUE(std::holds_alternative<CommandReader::Nothing>(reader_.read(wire_, buffer_)));
  client_sends("NOOP\r\n");
  CommandReader::Got got = reader_.read(wire_, buffer_);
  ASSERT_TRUE(std::holds_alternative<CommandReader::Bytes>(got));
  EXPECT_EQ(std::get<CommandReader::Bytes>(got).bytes, "NOOP\r\n");
  EXPECT_FALSE(reader_.ended());
}

TEST_F(StreamEnds, TheEndOfTheInputComesOnce) {
  client_sends("NOOP\r\n");
  ::shutdown(client_.get(), SHUT_WR);
  EXPECT_TRUE(std::holds_alternative<CommandReader::Bytes>(reader_.read(wire_, buffer_)));
  EXPECT_TRUE(std::holds_alternative<CommandReader::End>(reader_.read(wire_, buffer_)));
  EXPECT_TRUE(reader_.ended());
  EXPECT_FALSE(reader_.may_wait());
  EXPECT_THROW(reader_.wait(), std::logic_error);
  writer_.add("221 2.0.0 Bye\r\n");
  EXPECT_EQ(writer_.flush(wire_), Flushed::all) << "the other direction is open";
}

TEST_F(StreamEnds, AStepThatAStateDoesNotHaveThrows) {
  reader_.wait();
  EXPECT_FALSE(reader_.may_wait());
  EXPECT_THROW(reader_.wait(), std::logic_error);
  EXPECT_THROW(CommandReader().ready(), std::logic_error);
  writer_.wait();
  EXPECT_TRUE(writer_.is_waiting());
  EXPECT_THROW(writer_.wait(), std::logic_error);
  EXPECT_THROW(ReplyWriter().ready(), std::logic_error);
}

}  // namespace
}  // namespace twinloft::lmtpd
