// A server on a TCP port and a Unix socket, with a user database and a deliverer that tests control.
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "../../support/temporary_directory.h"
#include "fakes.h"
#include "lmtp_client.h"
#include "twinloft/lmtpd/net/server.h"

namespace twinloft::lmtpd {

inline constexpr std::string_view message = "Subject: x\r\n\r\nHello\r\n..dot\r\n.\r\n";
inline constexpr std::string_view message_stored = "Subject: x\r\n\r\nHello\r\n.dot\r\n";

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    std::signal(SIGPIPE, SIG_IGN);  // as in main()
    config_.session.hostname = "mx.example.org";
    config_.body_directory = "/tmp";
    config_.deliveries_max = 8;
    config_.mailboxes = &mailboxes_;
  }
  ~ServerTest() override { stop(); }

  void start() {
    std::vector<Listener> listeners;
    auto tcp = Listener::bind({"127.0.0.1:0", "127.0.0.1", 0, "", 0, {}, rules_});
    ASSERT_TRUE(tcp) << tcp.error().message;
    port_ = tcp->port();
    listeners.push_back(std::move(*tcp));
    auto local = Listener::bind({"unix", "", 0, path(), 0600, {}, rules_});
    ASSERT_TRUE(local) << local.error().message;
    listeners.push_back(std::move(*local));
    auto server = Server::create(config_, std::move(listeners), users_, deliverer_, clock_, random_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    thread_ = std::thread([this] { end_ = server_->run(); });
  }
  void stop() {
    deliverer_.release();
    mailboxes_.gate.release();
    users_.gate.release();
    if (server_) server_->stop();
    if (thread_.joinable()) thread_.join();
  }
  // The deliverer holds that number of deliveries of the client's message until release().
  void hold_deliveries(LmtpClient& client, std::initializer_list<std::string_view> recipients, int waiting) {
    deliverer_.hold();
    client.begin();
    client.envelope(recipients);
    client.send(message);
    deliverer_.wait_for_waiting(waiting);
  }
  // A client of a draining server with very long time limits.
  std::unique_ptr<LmtpClient> drain_for_ever() {
    config_.drain_time = config_.drain_idle = std::chrono::hours(1);
    start();
    auto client = std::make_unique<LmtpClient>(port_);
    client->begin();
    server_->drain();
    return client;
  }
  // Expects the server to end once these clients have left.
  void expect_end(std::initializer_list<LmtpClient*> clients) {
    for (LmtpClient* client : clients) client->hang_up();
    thread_.join();
    EXPECT_TRUE(end_.in_order());
  }
  std::string path() const { return dir_ / "lmtp"; }

  TemporaryDirectory dir_;
  OsClock clock_;
  OsRandom random_;
  FakeUsers users_;
  FakeMailboxes mailboxes_;
  FakeDeliverer deliverer_;
  ServerConfig config_;
  ListenRules rules_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  RunEnd end_;  // valid after the thread was joined
  std::uint16_t port_ = 0;
};

}  // namespace twinloft::lmtpd
