// Messages that go to a file while they arrive: all chunkings, and a command or the client's end at every
// point. These tests also run under the thread sanitizer.
#include <thread>

#include "server_fixture.h"

namespace twinloft::lmtpd {
namespace {

constexpr std::string_view envelope_of_one = "MAIL FROM:<from@example.org>\r\nRCPT TO:<ann@example.org>\r\n";

std::string numbered_lines(std::size_t bytes) {
  std::string out = "Subject: x\r\n\r\n";
  for (int i = 0; out.size() < bytes; ++i) out += "L" + std::to_string(10'000'000 + i) + "\r\n";
  return out;
}

std::vector<std::string> in_chunks(std::string_view text, std::size_t chunk) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size(); at += chunk) {
    std::string_view piece = text.substr(at, chunk);
    bool last = at + piece.size() == text.size();
    out.push_back("BDAT " + std::to_string(piece.size()) + (last ? " LAST" : "") + "\r\n" +
                  std::string(piece));
  }
  return out;
}

std::string joined(std::span<const std::string> parts) {
  std::string out;
  for (const std::string& part : parts) out += part;
  return out;
}

class UploadStress : public ServerTest {
 protected:
  UploadStress() { config_.body_memory = 64; }
  // Sends everything at once and reads that number of replies meanwhile.
  std::vector<std::string> converse(std::string_view text, std::size_t replies) {
    LmtpClient client(port_);
    client.begin();
    std::vector<std::string> got;
    std::thread reading([&] {
      while (got.size() < replies) {
        got.push_back(client.reply().substr(0, 3));
        if (got.back().empty()) return;
      }
    });
    EXPECT_TRUE(client.try_send(text));
    reading.join();
    return got;
  }
  std::vector<std::string> texts() {
    std::vector<std::string> out;
    for (const Delivered& d : deliverer_.delivered()) out.push_back(d.text);
    return out;
  }
};

TEST_F(UploadStress, AMessageInSmallChunksIsStoredInOrder) {
  start();
  const std::string text = numbered_lines(200'000);
  std::size_t messages = 0;
  for (std::size_t chunk : {5, 14, 83, 1000, 30'000}) {
    std::vector<std::string> chunks = in_chunks(text, chunk);
    std::vector<std::string> expected(2 + chunks.size(), "250");
    ASSERT_EQ(converse(std::string(envelope_of_one) + joined(chunks), expected.size()), expected) << chunk;
    ASSERT_EQ(texts().size(), ++messages);
    EXPECT_TRUE(texts().back() == text) << "in chunks of " << chunk;
  }
}

TEST_F(UploadStress, EveryChunkSizeOfASmallMessage) {
  start();
  const std::string text = numbered_lines(300);
  std::size_t messages = 0;
  for (std::size_t chunk = 1; chunk <= text.size(); ++chunk) {
    std::vector<std::string> chunks = in_chunks(text, chunk);
    std::vector<std::string> expected(2 + chunks.size(), "250");
    ASSERT_EQ(converse(std::string(envelope_of_one) + joined(chunks), expected.size()), expected) << chunk;
    ASSERT_EQ(texts().size(), ++messages);
    ASSERT_EQ(texts().back(), text) << "in chunks of " << chunk;
  }
}

// Several clients at once share the workers that store.
TEST_F(UploadStress, ManyClientsAtOnce) {
  config_.io_threads = 2;
  start();
  const std::string text = numbered_lines(20'000);
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < 8; ++i)
    clients.emplace_back([this, i, &text] {
      for (std::size_t chunk : {std::size_t{7}, 60 + i, 900 + i}) {
        std::vector<std::string> chunks = in_chunks(text, chunk);
        std::vector<std::string> expected(2 + chunks.size(), "250");
        EXPECT_EQ(converse(std::string(envelope_of_one) + joined(chunks), expected.size()), expected);
      }
    });
  for (std::thread& client : clients) client.join();
  auto all = texts();
  ASSERT_EQ(all.size(), 24u);
  for (const std::string& one : all) EXPECT_TRUE(one == text);
}

// RSET after each chunk but the last, then another message, all sent at once. The second message is stored
// complete, the first not at all.
TEST_F(UploadStress, ResetBehindEveryChunk) {
  start();
  const std::string given_up = numbered_lines(400), text = numbered_lines(700);
  const std::vector<std::string> first = in_chunks(given_up, 23), second = in_chunks(text, 50);
  for (std::size_t kept = 0; kept < first.size(); ++kept) {
    std::string all = std::string(envelope_of_one) + joined(std::span(first).first(kept)) + "RSET\r\n" +
                      std::string(envelope_of_one) + joined(second) + "QUIT\r\n";
    std::vector<std::string> expected(2 + kept + 1 + 2 + second.size(), "250");
    expected.push_back("221");
    ASSERT_EQ(converse(all, expected.size()), expected) << kept;
    ASSERT_EQ(texts().size(), kept + 1);
    ASSERT_EQ(texts().back(), text) << kept;
  }
  stop();
  EXPECT_EQ(server_->connections(), 0u) << "no transaction is left";
}

TEST_F(UploadStress, QuitBehindEveryChunk) {
  start();
  const std::vector<std::string> chunks = in_chunks(numbered_lines(400), 23);
  for (std::size_t kept = 0; kept < chunks.size(); ++kept) {
    std::vector<std::string> expected(2 + kept, "250");
    expected.push_back("221");
    ASSERT_EQ(converse(std::string(envelope_of_one) + joined(std::span(chunks).first(kept)) + "QUIT\r\n",
                       expected.size()),
              expected)
        << kept;
  }
  stop();
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_TRUE(texts().empty());
}

// The client ends after every byte: it shuts down its side, or closes with unread replies.
TEST_F(UploadStress, TheClientEndsBehindEveryByte) {
  start();
  const std::string text = numbered_lines(150);
  const std::string all = std::string(envelope_of_one) + joined(in_chunks(text, 40));
  for (std::size_t bytes = 0; bytes < all.size(); ++bytes) {
    LmtpClient client(port_);
    client.begin();
    client.send(std::string_view(all).substr(0, bytes));
    if (bytes % 2 == 0) continue;  // the destructor closes the connection
    client.finish_sending();
    while (!client.at_end()) {
    }
  }
  const std::string dialogue = std::string(envelope_of_one) + "DATA\r\n" + text + ".\r\n";
  for (std::size_t bytes = 0; bytes < dialogue.size(); ++bytes) {
    LmtpClient client(port_);
    client.begin();
    client.send(std::string_view(dialogue).substr(0, bytes));
  }
  LmtpClient after(port_);
  after.begin();
  after.envelope({"ann@example.org"});
  EXPECT_EQ(after.ask(text + ".\r\n").substr(0, 3), "250");
  after.hang_up();
  stop();
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_EQ(texts(), std::vector{text}) << "no incomplete message is delivered";
}

// The server stops while clients send: every message has its reply, or was not delivered.
TEST_F(UploadStress, TheServerEndsAtAnyMoment) {
  const std::string text = numbered_lines(20'000);
  const std::string all = std::string(envelope_of_one) + joined(in_chunks(text, 700));
  for (int round = 0; round < 20; ++round) {
    start();
    std::atomic<std::size_t> acknowledged{0};
    std::vector<std::unique_ptr<LmtpClient>> clients;
    for (int i = 0; i < 3; ++i) {
      clients.push_back(std::make_unique<LmtpClient>(port_));
      clients.back()->begin();
    }
    const std::size_t replies = 2 + in_chunks(text, 700).size();
    std::vector<std::thread> talking;
    for (const auto& client : clients)
      talking.emplace_back([&, c = client.get()] {
        if (!c->try_send(all)) return c->hang_up();
        std::vector<std::string> got;
        for (std::string one = c->reply(); !one.empty(); one = c->reply()) got.push_back(one.substr(0, 3));
        if (got.size() >= replies && got[replies - 1] == "250") ++acknowledged;
        c->hang_up();
      });
    deliverer_.wait_for_delivered(static_cast<std::size_t>(round) % 3);
    stop();
    for (std::thread& one : talking) one.join();
    EXPECT_GE(texts().size(), acknowledged);
    for (const std::string& one : texts()) EXPECT_TRUE(one == text);
    deliverer_.forget();
    server_.reset();
  }
}

}  // namespace
}  // namespace twinloft::lmtpd
