// The client's side of NBD for tests: encoded messages, and splits of them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "twinloft/spool-repl/export/nbd_protocol.h"

namespace twinloft::repl::nbd {

using Bytes = std::vector<std::byte>;

template <std::unsigned_integral T>
Bytes be(T value) {
  Bytes b(sizeof value);
  store_be(b.data(), value);
  return b;
}
inline Bytes text(std::string_view s) {
  auto b = as_bytes(s);
  return {b.begin(), b.end()};
}
inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Bytes client_flags(std::uint32_t flags = 3) {
  return be(flags);
}
inline Bytes option(std::uint32_t number, const Bytes& data = {}) {
  return be(option_magic) + be(number) + be(static_cast<std::uint32_t>(data.size())) + data;
}
inline Bytes option(Option number, const Bytes& data = {}) {
  return option(static_cast<std::uint32_t>(number), data);
}
inline Bytes named(std::string_view name) {  // the data of INFO and GO without information requests
  return be(static_cast<std::uint32_t>(name.size())) + text(name) + be(std::uint16_t{0});
}
inline Bytes request(Command command, std::uint64_t cookie, std::uint64_t offset = 0,
                     std::uint32_t length = 0, std::uint16_t flags = 0) {
  Bytes b(request_bytes);
  encode_request({flags, static_cast<std::uint16_t>(command), cookie, offset, length},
                 std::span<std::byte, request_bytes>(b.data(), request_bytes));
  return b;
}

// A server's reply to an option.
struct OptionAnswer {
  std::uint32_t option = 0, type = 0;
  Bytes data;
  bool is(OptionReply wanted) const { return type == static_cast<std::uint32_t>(wanted); }
};
inline std::vector<OptionAnswer> option_answers(ByteSpan in) {
  std::vector<OptionAnswer> out;
  while (!in.empty()) {
    EXPECT_GE(in.size(), 20u);
    EXPECT_EQ(load_be<std::uint64_t>(in.data()), option_reply_magic);
    OptionAnswer a{load_be<std::uint32_t>(in.data() + 8), load_be<std::uint32_t>(in.data() + 12), {}};
    auto size = load_be<std::uint32_t>(in.data() + 16);
    EXPECT_LE(size, in.size() - 20);
    a.data.assign(in.begin() + 20, in.begin() + 20 + size);
    in = in.subspan(20 + size);
    out.push_back(std::move(a));
  }
  return out;
}

// The parameter of tests: the number of bytes in a piece; 0: all at once.
inline std::string split_name(const testing::TestParamInfo<std::size_t>& split) {
  return split.param == 0 ? "whole" : "by_" + std::to_string(split.param);
}

}  // namespace twinloft::repl::nbd
