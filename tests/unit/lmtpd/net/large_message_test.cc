// Messages that are kept in files, in a directory that may block or fail.
#include <fmt/format.h>
#include <poll.h>

#include <atomic>
#include <future>

#include "body_store.h"
#include "server_fixture.h"

namespace twinloft::lmtpd {
namespace {

// The directory of large messages blocks until open() is called.
class StuckDirectory {
 public:
  Result<Fd> make_file(const std::string& directory) {
    asked_.set_value();
    opened_.get_future().wait();
    return make_unlinked_file(directory);
  }
  void wait_until_asked() { asked_.get_future().wait(); }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> asked_, opened_;
};

class LargeMessageTest : public ServerTest {
 protected:
  LargeMessageTest() {
    config_.body_memory = 1000;
    config_.make_body_file = [this](const std::string& directory) { return stuck_.make_file(directory); };
    while (text_.size() < 5000) text_ += "A line of a large message, again and again.\r\n";
  }
  // The deliverer holds the client's large message.
  void hold_deliveries_of(LmtpClient& client) {
    deliverer_.hold();
    client.begin();
    client.envelope({"ann@example.org"});
    client.send(text_ + ".\r\n");
    deliverer_.wait_for_waiting(1);
  }
  StuckDirectory stuck_;
  std::string text_;
};

TEST_F(LargeMessageTest, ADirectoryThatStandsStillHoldsUpNobodyElse) {
  start();
  LmtpClient large(port_);
  large.begin();
  large.envelope({"ann@example.org"});
  large.send(text_ + ".\r\nMAIL FROM:<>\r\n");  // the end of the message, and the next command
  stuck_.wait_until_asked();
  LmtpClient small(port_);
  small.begin();
  small.envelope({"bob@example.org"});
  EXPECT_EQ(small.ask(message).substr(0, 3), "250");
  stuck_.open();
  EXPECT_EQ(large.reply().substr(0, 9), "250 2.0.0");
  EXPECT_EQ(large.reply().substr(0, 9), "250 2.1.0");
  auto delivered = deliverer_.delivered();
  ASSERT_EQ(delivered.size(), 2u);
  EXPECT_EQ(delivered[1].text, text_);
  EXPECT_FALSE(delivered[1].in_memory);
}

TEST_F(LargeMessageTest, WhatArrivesMeanwhileIsKeptInOrder) {
  start();
  LmtpClient client(port_);
  client.begin();
  client.envelope({"ann@example.org"});
  client.send(text_.substr(0, 2000));
  stuck_.wait_until_asked();
  client.trickle(text_.substr(2000, 100));
  stuck_.open();
  client.trickle(text_.substr(2100, 100));
  EXPECT_EQ(client.ask(text_.substr(2200) + ".\r\n").substr(0, 3), "250");
  ASSERT_EQ(deliverer_.delivered().size(), 1u);
  EXPECT_EQ(deliverer_.delivered()[0].text, text_);
}

// While a part is being stored, further input would have to be kept in memory.
TEST_F(LargeMessageTest, NoMoreIsTakenThanADirectoryThatStandsStillAllowsFor) {
  start();
  LmtpClient client(path());
  client.begin();
  client.envelope({"ann@example.org"});
  client.send(text_);
  stuck_.wait_until_asked();
  const std::string more(std::size_t{1} << 16, 'x');
  std::size_t sent = 0;
  pollfd room{client.fd(), POLLOUT, 0};
  while (sent < (16u << 20) && ::poll(&room, 1, 500) == 1) {
    ssize_t n = ::send(client.fd(), more.data(), more.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) sent += static_cast<std::size_t>(n);
  }
  EXPECT_LT(sent, 4u << 20) << "no more than the kernel buffers";
  stuck_.open();
  client.hang_up();
  stop();
  EXPECT_TRUE(deliverer_.delivered().empty());
}

TEST_F(LargeMessageTest, ABrokenDirectoryIsToldToEachRecipient) {
  config_.make_body_file = [](const std::string&) { return fail(Errc::io, "the directory is broken"); };
  start();
  LmtpClient client(port_);
  client.begin();
  client.envelope({"ann@example.org", "bob@example.org"});
  EXPECT_EQ(client.ask(text_ + ".\r\n").substr(0, 9), "451 4.3.0");
  EXPECT_EQ(client.reply().substr(0, 9), "451 4.3.0");
  client.envelope({"ann@example.org"});
  client.trickle(text_);
  EXPECT_EQ(client.ask(".\r\n").substr(0, 9), "451 4.3.0");
  client.envelope({"ann@example.org"});
  EXPECT_EQ(client.ask(message).substr(0, 3), "250") << "command and reply match";
}

// A reply about space is right only if the disk is full.
TEST_F(LargeMessageTest, TheReplyIsThatOfTheReason) {
  for (auto [sys, says] : {std::pair{ENOSPC, "452 4.3.1"},
                           {EDQUOT, "452 4.3.1"},
                           {EMFILE, "451 4.3.2"},
                           {ENFILE, "451 4.3.2"},
                           {EACCES, "451 4.3.0"},
                           {ENOENT, "451 4.3.0"}}) {
    config_.make_body_file = [sys = sys](const std::string&) -> Result<Fd> {
      return fail_errno(sys, "no file");
    };
    start();
    LmtpClient client(port_);
    client.begin();
    client.envelope({"ann@example.org"});
    EXPECT_EQ(client.ask(text_ + ".\r\n").substr(0, 9), says) << sys;
    stop();
  }
}

TEST_F(LargeMessageTest, BeyondTheDiskThatAllMayTakeAMessageIsDeferred) {
  config_.make_body_file = nullptr;
  config_.body_disk_total = 8000;
  start();
  LmtpClient first(port_), second(port_);
  hold_deliveries_of(first);
  second.begin();
  second.envelope({"bob@example.org", "cat@example.org"});
  EXPECT_EQ(second.ask(text_ + ".\r\n").substr(0, 9), "452 4.3.1");
  EXPECT_EQ(second.reply().substr(0, 9), "452 4.3.1");
  second.envelope({"bob@example.org"});
  second.send(message);  // a small message needs no file
  deliverer_.wait_for_waiting(2);
  deliverer_.release();
  EXPECT_EQ(first.reply().substr(0, 3), "250");
  EXPECT_EQ(second.reply().substr(0, 3), "250");
  second.envelope({"bob@example.org"});
  EXPECT_EQ(second.ask(text_ + ".\r\n").substr(0, 3), "250") << "the first message's space is free again";
}

TEST_F(LargeMessageTest, AnExceptionOfTheDirectoryIsToldToo) {
  config_.make_body_file = [](const std::string&) -> Result<Fd> {
    throw std::runtime_error("the directory throws");
  };
  start();
  LmtpClient client(port_);
  client.begin();
  client.envelope({"ann@example.org"});
  EXPECT_EQ(client.ask(text_ + ".\r\n").substr(0, 9), "451 4.3.0");
  client.envelope({"ann@example.org"});
  EXPECT_EQ(client.ask(message).substr(0, 3), "250") << "command and reply match";
}

TEST_F(LargeMessageTest, StopMeanwhileDeliversNothing) {
  start();
  LmtpClient client(port_);
  client.begin();
  client.envelope({"ann@example.org"});
  client.send(text_ + ".\r\n");
  stuck_.wait_until_asked();
  LmtpClient idle(port_);
  idle.begin();
  server_->stop();
  EXPECT_EQ(idle.reply().substr(0, 9), "421 4.3.2") << "the stop has been seen";
  stuck_.open();
  EXPECT_EQ(client.reply().substr(0, 9), "451 4.3.2");
  EXPECT_EQ(client.reply().substr(0, 9), "421 4.3.2");
  client.hang_up();
  idle.hang_up();
  thread_.join();
  EXPECT_TRUE(deliverer_.delivered().empty());
}

// Small chunks, sent ahead. They have more replies than one write can send, so the session continues with its
// input by itself. The first file blocks.
class SmallChunks : public ServerTest {
 protected:
  SmallChunks() {
    config_.body_memory = 1000;
    config_.make_body_file = [this](const std::string& directory) {
      if (++files_ == 1) first_.pass();
      return make_unlinked_file(directory);
    };
    for (int i = 0; i < 900; ++i) text_ += fmt::format("L{:03}\n", i);  // 5 bytes each
  }
  ~SmallChunks() override { first_.release(); }
  static std::string chunk(std::string_view text, bool last) {
    return fmt::format("BDAT {}{}\r\n", text.size(), last ? " LAST" : "") + std::string(text);
  }
  std::string chunks(bool to_the_end) const {
    std::string out;
    for (std::size_t at = 0; at < text_.size(); at += 5)
      out += chunk(std::string_view(text_).substr(at, 5), to_the_end && at + 5 == text_.size());
    return out;
  }
  // Lets the event loop run a few turns.
  void let_others_go_on() {
    LmtpClient other(port_);
    other.begin();
    other.envelope({"bob@example.org"});
    EXPECT_EQ(other.ask(message).substr(0, 3), "250");
  }

  Gate first_;
  std::atomic<int> files_{0};
  std::string text_;
};

TEST_F(SmallChunks, NoPartIsStoredBesideAnother) {
  start();
  LmtpClient client(port_);
  client.begin();
  client.send("MAIL FROM:<>\r\nRCPT TO:<ann@example.org>\r\n" + chunks(true));
  first_.wait_for_waiting(1);
  let_others_go_on();
  EXPECT_EQ(files_, 1);
  first_.release();
  for (std::size_t i = 0; i < 2 + text_.size() / 5; ++i) ASSERT_EQ(client.reply().substr(0, 3), "250") << i;
  auto delivered = deliverer_.wait_for_delivered(2);
  EXPECT_TRUE(delivered[1].text == text_);
  EXPECT_EQ(files_, 1);
}

TEST_F(SmallChunks, ResetWhileAPartIsBeingStored) {
  start();
  const std::string second(2000, 'x');
  LmtpClient client(port_);
  client.begin();
  const std::string envelope = "MAIL FROM:<>\r\nRCPT TO:<ann@example.org>\r\n";
  client.send(envelope + chunks(false) + "RSET\r\n" + envelope + chunk(second, true) + "QUIT\r\n");
  first_.wait_for_waiting(1);
  let_others_go_on();
  first_.release();
  for (std::size_t i = 0; i < 2 + text_.size() / 5 + 1 + 2 + 1; ++i)
    ASSERT_EQ(client.reply().substr(0, 3), "250") << i;
  EXPECT_EQ(client.reply().substr(0, 3), "221");
  auto delivered = deliverer_.wait_for_delivered(2);
  EXPECT_TRUE(delivered[1].text == second);
  client.hang_up();
  stop();
  EXPECT_EQ(server_->connections(), 0u);
}

// The client disconnects during the write of a part.
TEST_F(LargeMessageTest, AClientThatDisappearsMeanwhileLeavesNothing) {
  start();
  {
    LmtpClient client(port_);
    client.begin();
    client.envelope({"ann@example.org"});
    client.send(text_);
    stuck_.wait_until_asked();
  }
  stuck_.open();
  stop();
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_TRUE(deliverer_.delivered().empty());
}

}  // namespace
}  // namespace twinloft::lmtpd
