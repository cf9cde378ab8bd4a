#include <sys/stat.h>

#include "nbd_server_fixture.h"

namespace twinloft::repl::nbd {
namespace {

using NbdServer = NbdServerTest;

TEST_F(NbdServer, replies_come_in_the_order_of_completion) {
  start();
  Fd client = connect_client();
  send(client, request(Command::write, 1, 0, 4) + text("aaaa") + request(Command::write, 2, 4, 4) +
                   text("bbbb") + request(Command::flush, 3));
  run_until([&] { return target.waiting.size() == 3; });
  EXPECT_TRUE(silent(client));
  target.complete_last();
  EXPECT_EQ(reply(client), Reply(0, 3));
  target.complete_last();
  target.complete_last();
  EXPECT_EQ(reply(client), Reply(0, 2));
  EXPECT_EQ(reply(client), Reply(0, 1));
  EXPECT_EQ(as_text(ByteSpan(target.bytes).first(8)), "aaaabbbb");
}

TEST_F(NbdServer, reads_bring_their_data_plain_and_structured) {
  target.immediate = true;
  Bytes data = pattern(100000);
  std::copy(data.begin(), data.end(), target.bytes.begin() + 77);
  start();
  Fd plain = connect_client(), structured = connect_client(true);
  send(plain, request(Command::read, 5, 77, 100000));
  EXPECT_EQ(reply(plain), Reply(0, 5));
  EXPECT_EQ(receive(plain, data.size()), data);
  send(structured, request(Command::read, 6, 77, 100000));
  EXPECT_EQ(receive(structured, 28), be(structured_reply_magic) + be(std::uint16_t{1}) +
                                         be(std::uint16_t{1}) + be(std::uint64_t{6}) + be(100008u) +
                                         be(std::uint64_t{77}));
  EXPECT_EQ(receive(structured, data.size()), data);
}

TEST_F(NbdServer, everything_also_works_byte_by_byte) {
  target.immediate = true;
  start();
  Fd client = connect_raw();
  Bytes all = client_flags() + option(Option::go, named("spool")) + request(Command::write, 1, 3, 5) +
              text("hello") + request(Command::read, 2, 2, 7) + request(Command::disconnect, 3);
  receive(client, 18);
  for (auto b : all) send(client, {b});
  EXPECT_EQ(receive(client, 20 + 12 + 20 + 14 + 20).size(), 86u);
  EXPECT_EQ(reply(client), Reply(0, 1));
  EXPECT_EQ(reply(client), Reply(0, 2));
  EXPECT_EQ(receive(client, 7), Bytes(1) + text("hello") + Bytes(1));
  EXPECT_TRUE(at_end(client));
  run_until([&] { return server->connections() == 0; });
}

TEST_F(NbdServer, long_requests_are_cut_and_put_together_again) {
  start();
  Fd client = connect_client();
  Bytes data = pattern(5 * ports::io_max_length / 2 + 1);
  auto length = static_cast<std::uint32_t>(data.size());
  send(client, request(Command::write, 1, 4095, length) + data);
  run_until([&] { return target.waiting.size() == 3; });
  target.complete_last();
  target.complete_first();
  EXPECT_TRUE(silent(client));
  target.complete_first();
  EXPECT_EQ(reply(client), Reply(0, 1));
  send(client, request(Command::read, 2, 4095, length));
  run_until([&] { return target.waiting.size() == 3; });
  while (!target.waiting.empty()) target.complete_last();
  EXPECT_EQ(reply(client), Reply(0, 2));
  EXPECT_EQ(receive(client, length), data);
}

TEST_F(NbdServer, the_longest_request_passes) {
  target.immediate = true;
  start();
  Fd client = connect_client();
  Bytes data = pattern(max_payload_bytes);
  send(client, request(Command::write, 1, 0, max_payload_bytes) + data);
  EXPECT_EQ(reply(client), Reply(0, 1));
  send(client, request(Command::read, 2, 0, max_payload_bytes));
  EXPECT_EQ(reply(client), Reply(0, 2));
  EXPECT_EQ(receive(client, max_payload_bytes), data);
}

TEST_F(NbdServer, fua_goes_with_one_piece_and_becomes_one_flush_behind_several) {
  start();
  Fd client = connect_client();
  send(client, request(Command::write, 1, 0, 1, command_fua) + text("x"));
  run_until([&] { return target.waiting.size() == 1; });
  EXPECT_TRUE(target.waiting[0]->fua);
  target.complete_first();
  EXPECT_EQ(reply(client), Reply(0, 1));

  send(client, request(Command::write, 2, 0, 2 << 20, command_fua) + Bytes(2 << 20));
  run_until([&] { return target.waiting.size() == 2; });
  EXPECT_FALSE(target.waiting[0]->fua);
  target.complete_first();
  target.complete_first();
  ASSERT_EQ(target.waiting.size(), 1u);
  EXPECT_EQ(target.waiting[0]->op, ports::IoOp::flush);
  EXPECT_TRUE(silent(client));
  target.complete_first();
  EXPECT_EQ(reply(client), Reply(0, 2));

  send(client, request(Command::trim, 3, 0, 4096, command_fua) +
                   request(Command::write_zeroes, 4, 0, 9, command_fua));
  run_until([&] { return target.waiting.size() == 2; });
  EXPECT_EQ(target.waiting[0]->op, ports::IoOp::trim);
  EXPECT_EQ(target.waiting[1]->op, ports::IoOp::write_zeroes);
  EXPECT_TRUE(target.waiting[1]->fua);
  target.complete_first();
  ASSERT_EQ(target.waiting.size(), 2u);
  EXPECT_EQ(target.waiting[1]->op, ports::IoOp::flush);
}

TEST_F(NbdServer, an_error_of_any_piece_is_the_error_of_the_request_and_nothing_is_flushed_behind_it) {
  start();
  Fd client = connect_client(true);
  send(client, request(Command::write, 1, 0, 2 << 20, command_fua) + Bytes(2 << 20));
  run_until([&] { return target.waiting.size() == 2; });
  target.complete_first(EIO);
  target.complete_first();
  EXPECT_TRUE(target.waiting.empty());
  EXPECT_EQ(reply(client), Reply(5, 1));
  send(client, request(Command::read, 2, 0, 2 << 20));
  run_until([&] { return target.waiting.size() == 2; });
  target.complete_first();
  target.complete_first(EIO);
  Bytes chunk = receive(client, 26);
  EXPECT_EQ(load_be<std::uint16_t>(chunk.data() + 6), 0x8001);
  EXPECT_EQ(load_be<std::uint32_t>(chunk.data() + 20), 5u);
  EXPECT_TRUE(silent(client));
  EXPECT_EQ(server->counters().errors, 2u);
}

TEST_F(NbdServer, bad_requests_are_answered_without_the_target_and_keep_the_stream_in_place) {
  start();
  Fd client = connect_client();
  std::uint64_t end = target.size_bytes();
  send(client, request(Command::write, 1, end, 5) + text("magic") + request(Command::read, 2, end, 1) +
                   request(static_cast<Command>(9), 3) + request(Command::read, 4, 0, 0) +
                   request(Command::write, 5, 0, 3, 1 << 9) + text("abc") + request(Command::flush, 6, 0, 1) +
                   request(Command::write, 7, 0, 33 << 20) + Bytes(33 << 20) +
                   request(Command::cache, 8, 0, 4096));
  EXPECT_EQ(reply(client), Reply(28, 1));
  for (std::uint64_t cookie : {2, 3, 4, 5, 6, 7}) EXPECT_EQ(reply(client), Reply(22, cookie));
  EXPECT_EQ(reply(client), Reply(0, 8));
  EXPECT_EQ(target.seen.size(), 0u);
}

TEST_F(NbdServer, bad_magic_closes_the_connection) {
  start();
  Fd client = connect_client();
  send(client, text("GET / HTTP/1.1\r\n\r\n"));
  EXPECT_TRUE(at_end(client));
  EXPECT_EQ(server->counters().protocol_errors, 1u);
  Fd other = connect_raw();
  receive(other, 18);
  send(other, client_flags(0xffffffff));
  EXPECT_TRUE(at_end(other));
  run_until([&] { return server->connections() == 0; });
}

TEST_F(NbdServer, a_partly_received_write_never_reaches_the_target) {
  start();
  for (std::size_t sent : {1u, 4096u, 100000u, (1u << 20) + 5, (2u << 20) - 1}) {
    Fd client = connect_client();
    send(client, request(Command::write, 1, 0, 2 << 20, command_fua) + pattern(sent));
    settle();
    client.reset();
    run_until([&] { return server->connections() == 0; });
  }
  EXPECT_EQ(target.seen.size(), 0u);
}

TEST_F(NbdServer, a_lost_client_leaves_its_requests_to_the_target) {
  start();
  Fd client = connect_client();
  send(client, request(Command::write, 1, 0, 4) + text("data") + request(Command::read, 2, 0, 1 << 20) +
                   request(Command::write, 3, 8, 2 << 20, command_fua) + Bytes(2 << 20));
  run_until([&] { return target.waiting.size() == 4; });
  client.reset();
  settle();
  EXPECT_EQ(server->connections(), 1u);
  while (!target.waiting.empty()) target.complete_first();
  EXPECT_EQ(as_text(ByteSpan(target.bytes).first(4)), "data");
  run_until([&] { return server->connections() == 0; });
}

TEST_F(NbdServer, disconnect_lets_what_is_in_flight_finish) {
  start();
  Fd client = connect_client();
  send(client,
       request(Command::write, 1, 0, 4) + text("data") + request(Command::disconnect, 2) + text("garbage"));
  run_until([&] { return target.waiting.size() == 1; });
  EXPECT_TRUE(silent(client));
  target.complete_first();
  EXPECT_EQ(reply(client), Reply(0, 1));
  EXPECT_TRUE(at_end(client));
}

TEST_F(NbdServer, requests_beyond_the_bound_wait_their_turn) {
  options.max_requests = 4;
  start();
  Fd client = connect_client();
  Bytes all;
  for (std::uint64_t i = 0; i < 20; ++i)
    all = all + request(Command::write, i, i, 1) + Bytes{static_cast<std::byte>('a' + i)};
  send(client, all);
  run_until([&] { return target.waiting.size() == 4; });
  settle();
  EXPECT_EQ(target.seen.size(), 4u);
  for (std::uint64_t i = 0; i < 20; ++i) {
    run_until([&] { return !target.waiting.empty(); });
    target.complete_first();
    EXPECT_EQ(reply(client), Reply(0, i));
    EXPECT_LE(target.seen.size(), i + 5);
  }
  EXPECT_EQ(as_text(ByteSpan(target.bytes).first(20)), "abcdefghijklmnopqrst");
}

TEST_F(NbdServer, bytes_in_flight_are_bounded_too_but_one_request_always_passes) {
  options.max_bytes = 1 << 20;
  start();
  Fd client = connect_client();
  send(client, request(Command::read, 1, 0, 4 << 20) + request(Command::read, 2, 0, 1));
  run_until([&] { return target.waiting.size() == 4; });
  settle();
  EXPECT_EQ(target.seen.size(), 4u);
  while (!target.waiting.empty()) target.complete_first();
  EXPECT_EQ(reply(client), Reply(0, 1));
  EXPECT_EQ(receive(client, 4 << 20).size(), 4u << 20);
  run_until([&] { return target.waiting.size() == 1; });
  target.complete_first();
  EXPECT_EQ(reply(client), Reply(0, 2));
}

// Also if the target completes at once, and if the owner flushes from the turn hook.
TEST_F(NbdServer, a_client_that_does_not_read_is_not_read_from) {
  target.immediate = true;
  options.max_bytes = 1 << 20;
  options.owner_flushes = true;
  start();
  loop->set_turn_hook([this] { server->flush(); });
  Fd client = connect_client();
  Bytes all;
  constexpr std::uint64_t count = 64;
  for (std::uint64_t i = 0; i < count; ++i) all = all + request(Command::read, i, 0, 512 << 10);
  send(client, all);
  settle();
  EXPECT_LE(target.seen.size(), 10u);
  for (std::uint64_t i = 0; i < count; ++i) {
    EXPECT_EQ(reply(client), Reply(0, i));
    EXPECT_EQ(receive(client, 512 << 10).size(), 512u << 10);
  }
  EXPECT_EQ(target.seen.size(), count);
}

TEST_F(NbdServer, connections_beyond_the_limit_are_closed) {
  options.max_connections = 2;
  start();
  Fd one = connect_client(), two = connect_client(), three = connect_raw();
  EXPECT_TRUE(at_end(three));
  one.reset();
  run_until([&] { return server->connections() == 1; });
  Fd four = connect_client();
  EXPECT_EQ(server->connections(), 2u);
}

TEST_F(NbdServer, one_who_never_chooses_an_export_is_sent_away) {
  options.handshake_timeout = std::chrono::milliseconds(1);
  start();
  Fd idle = connect_raw();
  EXPECT_EQ(receive(idle, 18).size(), 18u);
  EXPECT_TRUE(at_end(idle));
}

TEST_F(NbdServer, abort_is_answered_before_the_end) {
  start();
  Fd client = connect_raw();
  receive(client, 18);
  send(client, client_flags() + option(Option::abort));
  EXPECT_EQ(receive(client, 20).size(), 20u);
  EXPECT_TRUE(at_end(client));
}

TEST_F(NbdServer, listening_errors_say_where) {
  start();
  struct stat st{};
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  Server other(*loop, target, options);
  auto taken = other.listen_unix(path);
  ASSERT_FALSE(taken);
  EXPECT_NE(taken.error().message.find(path), std::string::npos);
  EXPECT_EQ(taken.error().code, Errc::unavailable);
  auto port = server->listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(port) << port.error().message;
  auto in_use = other.listen_tcp("127.0.0.1", *port);
  ASSERT_FALSE(in_use);
  EXPECT_EQ(in_use.error().sys, EADDRINUSE);
  EXPECT_NE(in_use.error().message.find(std::to_string(*port)), std::string::npos);
  auto name = other.listen_tcp("localhost", 0);
  ASSERT_FALSE(name);
  EXPECT_EQ(name.error().code, Errc::invalid);
  EXPECT_FALSE(other.listen_unix(std::string(200, 'x')));
}

TEST_F(NbdServer, a_stale_socket_is_replaced_another_file_is_not) {
  {
    Fd dead(socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  start();
  connect_client();
  Server other(*loop, target, options);
  std::string file = where + "/file";
  ASSERT_EQ(mknod(file.c_str(), S_IFREG | 0600, 0), 0);
  auto refused = other.listen_unix(file);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::conflict) << "waiting does not help";
  EXPECT_TRUE(std::filesystem::is_regular_file(file));
}

}  // namespace
}  // namespace twinloft::repl::nbd
