// The stop of the NBD server.
#include "nbd_server_fixture.h"

namespace twinloft::repl::nbd {
namespace {

class NbdStop : public NbdServerTest {
 protected:
  void stop() {
    server->stop([this] { ++stopped; });
  }
  int stopped = 0;
};

TEST_F(NbdStop, without_clients_it_is_over_on_a_later_turn) {
  start();
  stop();
  EXPECT_EQ(stopped, 0);
  run_until([&] { return stopped > 0; });
  settle();
  EXPECT_EQ(stopped, 1);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(NbdStop, what_the_target_has_is_finished_and_answered_what_comes_later_is_refused) {
  options.max_requests = 2;
  start();
  Fd client = connect_client();
  send(client, request(Command::write, 1, 0, 4) + text("data"));
  run_until([&] { return target.waiting.size() == 1; });
  Bytes late = request(Command::write, 2, 0, 4) + text("late");
  ASSERT_EQ(::send(client.get(), late.data(), late.size(), 0), static_cast<ssize_t>(late.size()));
  stop();
  EXPECT_EQ(reply(client), Reply(108, 2));
  EXPECT_EQ(stopped, 0);
  target.complete_first();
  EXPECT_EQ(reply(client), Reply(0, 1));
  EXPECT_TRUE(at_end(client));
  EXPECT_EQ(stopped, 0);  // the client may still be reading
  client.reset();
  run_until([&] { return stopped > 0; });
  EXPECT_EQ(as_text(ByteSpan(target.bytes).first(4)), "data");
}

TEST_F(NbdStop, idle_and_negotiating_clients_are_let_go) {
  start();
  Fd idle = connect_client(), negotiating = connect_raw();
  receive(negotiating, 18);
  stop();
  EXPECT_TRUE(at_end(idle));
  EXPECT_TRUE(at_end(negotiating));
  idle.reset();
  run_until([&] { return stopped > 0; });
}

TEST_F(NbdStop, a_client_that_does_not_read_is_given_a_time_only) {
  target.immediate = true;
  options.stop_timeout = std::chrono::milliseconds(1);
  start();
  Fd client = connect_client();
  send(client, request(Command::read, 1, 0, 16 << 20));
  settle();
  stop();
  run_until([&] { return stopped > 0; });
}

TEST_F(NbdStop, time_out_or_not_the_target_is_waited_for) {
  options.stop_timeout = std::chrono::milliseconds(1);
  start();
  Fd client = connect_client();
  send(client, request(Command::write, 1, 0, 4) + text("data"));
  run_until([&] { return target.waiting.size() == 1; });
  stop();
  EXPECT_TRUE(at_end(client));
  settle();
  EXPECT_EQ(stopped, 0);
  target.complete_first();
  run_until([&] { return stopped > 0; });
}

TEST_F(NbdStop, a_write_half_received_is_dropped) {
  start();
  Fd client = connect_client();
  send(client, request(Command::write, 1, 0, 100000) + pattern(50000));
  settle();
  stop();
  client.reset();
  run_until([&] { return stopped > 0; });
  EXPECT_EQ(target.seen.size(), 0u);
}

TEST_F(NbdStop, server_may_go_with_clients_connected_and_calls_posted) {
  target.immediate = true;
  start();
  Fd client = connect_client();
  send(client, request(Command::read, 1, 0, 4096));
  server.reset();
  settle();
  Bytes rest = receive(client, 8192);
  EXPECT_LE(rest.size(), 16u + 4096);
}

}  // namespace
}  // namespace twinloft::repl::nbd
