#include <fmt/format.h>

#include "nbd_client.h"

namespace twinloft::repl::nbd {
namespace {

constexpr std::uint64_t size = 100 << 20;
constexpr std::uint32_t mib = 1 << 20;

Request make(Command command, std::uint64_t offset, std::uint32_t length, std::uint16_t flags = 0) {
  return {flags, static_cast<std::uint16_t>(command), 1, offset, length};
}

TEST(NbdCodec, golden_request) {
  Request r{command_fua, 1, 0x0102030405060708, 0x1112131415161718, 0x21222324};
  std::array<std::byte, request_bytes> out;
  encode_request(r, out);
  EXPECT_EQ(
      Bytes(out.begin(), out.end()),
      text(std::string_view("\x25\x60\x95\x13\x00\x01\x00\x01\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14"
                            "\x15\x16\x17\x18\x21\x22\x23\x24",
                            28)));
  auto back = decode_request(out);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->cookie, r.cookie);
  EXPECT_EQ(back->offset, r.offset);
  EXPECT_EQ(back->length, r.length);
  EXPECT_TRUE(back->is(Command::write));
  EXPECT_TRUE(back->fua());
  out[0] = std::byte{0};
  EXPECT_FALSE(decode_request(out));
}

TEST(NbdCodec, golden_replies) {
  auto bytes = [](const ReplyHeader& h) { return Bytes(h.bytes.begin(), h.bytes.begin() + h.size); };
  Request read = make(Command::read, 0x10, 0x20);
  read.cookie = 0x0102030405060708;
  EXPECT_EQ(bytes(encode_reply(read, WireError::none, false)),
            be(simple_reply_magic) + be(std::uint32_t{0}) + be(read.cookie));
  EXPECT_EQ(bytes(encode_reply(read, WireError::eio, false)),
            be(simple_reply_magic) + be(std::uint32_t{5}) + be(read.cookie));
  EXPECT_EQ(bytes(encode_reply(read, WireError::none, true)),
            be(structured_reply_magic) + be(std::uint16_t{1}) + be(std::uint16_t{1}) + be(read.cookie) +
                be(std::uint32_t{0x28}) + be(std::uint64_t{0x10}));
  EXPECT_EQ(bytes(encode_reply(read, WireError::einval, true)),
            be(structured_reply_magic) + be(std::uint16_t{1}) + be(std::uint16_t{0x8001}) + be(read.cookie) +
                be(std::uint32_t{6}) + be(std::uint32_t{22}) + be(std::uint16_t{0}));
  Request write = make(Command::write, 0, 1);
  EXPECT_EQ(encode_reply(write, WireError::none, true).size, 16);
}

TEST(NbdCodec, errors_that_the_protocol_lacks_become_eio) {
  EXPECT_EQ(to_wire_error(0), WireError::none);
  EXPECT_EQ(to_wire_error(EROFS), WireError::eperm);
  EXPECT_EQ(to_wire_error(ENOSPC), WireError::enospc);
  EXPECT_EQ(to_wire_error(ESHUTDOWN), WireError::eshutdown);
  EXPECT_EQ(to_wire_error(ETIMEDOUT), WireError::eio);
}

TEST(NbdCheck, ranges) {
  for (auto command : {Command::read, Command::trim, Command::cache}) {
    EXPECT_EQ(check_request(make(command, size - 1, 1), size), WireError::none);
    EXPECT_EQ(check_request(make(command, size, 1), size), WireError::einval);
    EXPECT_EQ(check_request(make(command, size - 1, 2), size), WireError::einval);
    EXPECT_EQ(check_request(make(command, ~0ULL, 2), size), WireError::einval);
    EXPECT_EQ(check_request(make(command, 0, 0), size), WireError::einval);
  }
  for (auto command : {Command::write, Command::write_zeroes}) {
    EXPECT_EQ(check_request(make(command, size - 1, 1), size), WireError::none);
    EXPECT_EQ(check_request(make(command, size - 1, 2), size), WireError::enospc);
    EXPECT_EQ(check_request(make(command, ~0ULL, ~0U), size),
              command == Command::write ? WireError::einval : WireError::enospc);
    EXPECT_EQ(check_request(make(command, 0, 0), size), WireError::einval);
  }
}

TEST(NbdCheck, lengths) {
  for (auto command : {Command::read, Command::write}) {
    EXPECT_EQ(check_request(make(command, 0, 32 * mib), size), WireError::none);
    EXPECT_EQ(check_request(make(command, 0, 32 * mib + 1), size), WireError::einval);
  }
  for (auto command : {Command::trim, Command::write_zeroes})
    EXPECT_EQ(check_request(make(command, 0, 100 * mib), size), WireError::none);
  EXPECT_EQ(check_request(make(Command::flush, 0, 0), size), WireError::none);
  EXPECT_EQ(check_request(make(Command::flush, 0, 1), size), WireError::einval);
  EXPECT_EQ(check_request(make(Command::flush, 1, 0), size), WireError::einval);
}

TEST(NbdCheck, flags_and_commands) {
  EXPECT_EQ(check_request(make(Command::write, 0, 1, command_fua), size), WireError::none);
  EXPECT_EQ(check_request(make(Command::write, 0, 1, command_no_hole), size), WireError::einval);
  EXPECT_EQ(check_request(
                make(Command::write_zeroes, 0, 1, command_no_hole | command_fua | command_fast_zero), size),
            WireError::none);
  EXPECT_EQ(check_request(make(Command::read, 0, 1, command_df), size), WireError::none);
  EXPECT_EQ(check_request(make(Command::trim, 0, 1, command_df), size), WireError::einval);
  EXPECT_EQ(check_request(make(Command::read, 0, 1, 1 << 15), size), WireError::einval);
  for (std::uint16_t command : {7, 8, 255, 65535}) {
    Request r = make(Command::read, 0, 1);
    r.command = command;
    EXPECT_EQ(check_request(r, size), WireError::einval);
  }
}

class NbdReader : public testing::TestWithParam<std::size_t> {
 protected:
  // Returns one line for each event, with its payload in one piece.
  std::string read(const Bytes& all) {
    std::string log, payload;
    RequestReader reader;
    std::size_t step = GetParam() == 0 ? all.size() : GetParam();
    for (std::size_t at = 0; at < all.size(); at += step) {
      ByteSpan in = ByteSpan(all).subspan(at, std::min(step, all.size() - at)), piece;
      for (;;) {
        auto event = reader.next(in, piece);
        if (event == RequestReader::Event::need_input) break;
        if (event == RequestReader::Event::bad_magic) return log + "bad";
        if (event == RequestReader::Event::request)
          log += fmt::format("{}@{}+{} ", reader.request().command, reader.request().offset,
                             reader.request().length);
        if (event == RequestReader::Event::payload) payload += as_text(piece);
        if (event == RequestReader::Event::payload && reader.payload_left() == 0)
          log += "'" + std::exchange(payload, "") + "' ";
      }
    }
    return log;
  }
};
INSTANTIATE_TEST_SUITE_P(Splits, NbdReader, testing::Values(0, 1, 2, 3, 27, 29), split_name);

TEST_P(NbdReader, cuts_requests_and_payloads) {
  EXPECT_EQ(read(request(Command::write, 1, 5, 7) + text("payload") + request(Command::read, 2, 9, 100) +
                 request(Command::write, 3, 6, 1) + text("x") + request(Command::flush, 4)),
            "1@5+7 'payload' 0@9+100 1@6+1 'x' 3@0+0 ");
}

TEST_P(NbdReader, an_empty_write_has_no_payload) {
  EXPECT_EQ(read(request(Command::write, 1, 5, 0) + request(Command::read, 2, 0, 1)), "1@5+0 0@0+1 ");
}

TEST_P(NbdReader, wrong_magic_is_seen_after_its_four_bytes) {
  EXPECT_EQ(read(request(Command::read, 2, 9, 100) + text("GET ")), "0@9+100 bad");
}

TEST(NbdReaderDirect, payload_received_elsewhere_is_left_out) {
  RequestReader reader;
  Bytes head = request(Command::write, 1, 0, 10) + text("ab");
  ByteSpan in(head), piece;
  EXPECT_EQ(reader.next(in, piece), RequestReader::Event::request);
  EXPECT_EQ(reader.next(in, piece), RequestReader::Event::payload);
  reader.payload_received(8);
  EXPECT_EQ(reader.payload_left(), 0u);
  Bytes next = request(Command::flush, 2);
  in = next;
  EXPECT_EQ(reader.next(in, piece), RequestReader::Event::request);
  EXPECT_TRUE(reader.request().is(Command::flush));
}

}  // namespace
}  // namespace twinloft::repl::nbd
