#include "twinloft/spool-repl/export/nbd_handshake.h"

#include "nbd_client.h"

namespace twinloft::repl::nbd {
namespace {

class NbdHandshake : public testing::TestWithParam<std::size_t> {
 protected:
  NbdHandshake() {
    exports.find = [](std::string_view name) -> std::optional<std::uint64_t> {
      if (name == "spool") return 1 << 20;
      return std::nullopt;
    };
    exports.list = [] { return std::vector<std::string>{"spool"}; };
  }
  // Returns the server's output after its greeting. Unused input stays in `rest`.
  Bytes talk(const Bytes& all) {
    handshake.emplace(exports, tls);
    Bytes out;
    std::size_t step = GetParam() == 0 ? all.size() : GetParam();
    rest.clear();
    for (std::size_t at = 0; at < all.size(); at += step) {
      ByteSpan in = ByteSpan(all).subspan(at, std::min(step, all.size() - at));
      handshake->consume(in, out);
      rest.insert(rest.end(), in.begin(), in.end());
    }
    return out;
  }
  Handshake::State state() const { return handshake->state(); }

  Exports exports;
  Handshake::Tls tls = Handshake::Tls::none;
  std::optional<Handshake> handshake;
  Bytes rest;
};
INSTANTIATE_TEST_SUITE_P(Splits, NbdHandshake, testing::Values(0, 1, 3, 17), split_name);

using State = Handshake::State;

TEST_P(NbdHandshake, greeting_is_newstyle_fixed) {
  Bytes out;
  Handshake(exports).greet(out);
  EXPECT_EQ(out, text("NBDMAGICIHAVEOPT") + be(std::uint16_t{3}));
}

TEST_P(NbdHandshake, go_tells_size_flags_and_block_sizes_and_leaves_the_rest) {
  auto answers = option_answers(talk(client_flags() + option(Option::structured_reply) +
                                     option(Option::go, named("spool")) + text("first request")));
  ASSERT_EQ(state(), State::transmission);
  EXPECT_EQ(rest, text("first request"));
  EXPECT_TRUE(handshake->structured_replies());
  EXPECT_EQ(handshake->export_name(), "spool");
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_TRUE(answers[0].is(OptionReply::ack));
  EXPECT_TRUE(answers[1].is(OptionReply::info));
  std::uint16_t flags = 0x0001 | 0x0004 | 0x0008 | 0x0020 | 0x0040 | 0x0080 | 0x0100 | 0x0400 | 0x0800;
  EXPECT_EQ(answers[1].data, be(std::uint16_t{0}) + be(std::uint64_t{1 << 20}) + be(flags));
  EXPECT_EQ(answers[2].data, be(std::uint16_t{3}) + be(1u) + be(4096u) + be(32u << 20));
  EXPECT_TRUE(answers[3].is(OptionReply::ack));
}

TEST_P(NbdHandshake, info_answers_and_goes_on_negotiating) {
  Bytes asks = be(5u) + text("spool") + be(std::uint16_t{2}) + be(std::uint16_t{3}) + be(std::uint16_t{1});
  auto answers = option_answers(talk(client_flags() + option(Option::info, asks)));
  EXPECT_EQ(state(), State::negotiating);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_TRUE(answers[2].is(OptionReply::ack));
  // The flag requires structured replies.
  EXPECT_EQ(load_be<std::uint16_t>(answers[0].data.data() + 10) & flag_send_df, 0);
}

TEST_P(NbdHandshake, export_name_ends_with_zeroes_only_for_old_clients) {
  Bytes brief = talk(client_flags(3) + option(Option::export_name, text("spool")) + text("more"));
  EXPECT_EQ(state(), State::transmission);
  EXPECT_EQ(brief.size(), 10u);
  EXPECT_EQ(rest, text("more"));
  Bytes padded = talk(client_flags(0) + option(Option::export_name, text("spool")));
  EXPECT_EQ(state(), State::transmission);
  EXPECT_EQ(padded, brief + Bytes(124));
}

TEST_P(NbdHandshake, unknown_export_names_are_refused) {
  for (std::string name : {"", "spoo", "spool2", "Spool"}) {
    auto answers = option_answers(talk(client_flags() + option(Option::go, named(name))));
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_TRUE(answers[0].is(OptionReply::err_unknown));
    EXPECT_EQ(state(), State::negotiating);
    talk(client_flags() + option(Option::export_name, text(name)));
    EXPECT_EQ(state(), State::broken);
  }
}

TEST_P(NbdHandshake, list_names_the_exports) {
  auto answers = option_answers(talk(client_flags() + option(Option::list)));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(answers[0].is(OptionReply::server));
  EXPECT_EQ(answers[0].data, be(5u) + text("spool"));
  EXPECT_TRUE(answers[1].is(OptionReply::ack));
  exports.list = nullptr;
  answers = option_answers(talk(client_flags() + option(Option::list)));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].is(OptionReply::err_policy));
}

TEST_P(NbdHandshake, abort_is_acknowledged_and_ends) {
  auto answers = option_answers(talk(client_flags() + option(Option::abort)));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].is(OptionReply::ack));
  EXPECT_EQ(state(), State::finished);
}

TEST_P(NbdHandshake, what_is_not_offered_is_refused_by_the_right_word) {
  auto answers = option_answers(talk(client_flags() + option(Option::starttls) +
                                     option(Option::set_meta_context) + option(Option::list_meta_context) +
                                     option(4) + option(77, text("data")) + option(Option::list, text("x")) +
                                     option(Option::structured_reply, text("x"))));
  ASSERT_EQ(answers.size(), 7u);
  EXPECT_TRUE(answers[0].is(OptionReply::err_policy));
  for (std::size_t i : {1u, 2u, 3u, 4u}) EXPECT_TRUE(answers[i].is(OptionReply::err_unsup));
  EXPECT_EQ(answers[4].option, 77u);
  for (std::size_t i : {5u, 6u}) EXPECT_TRUE(answers[i].is(OptionReply::err_invalid));
  EXPECT_FALSE(handshake->structured_replies());
  EXPECT_EQ(state(), State::negotiating);
}

TEST_P(NbdHandshake, where_tls_is_required_nothing_goes_on_before_it) {
  tls = Handshake::Tls::required;
  auto answers = option_answers(talk(client_flags() + option(Option::structured_reply) +
                                     option(Option::list) + option(Option::info, named("spool")) +
                                     option(Option::go, named("spool")) + option(77) +
                                     option(Option::starttls, text("x"))));
  ASSERT_EQ(answers.size(), 6u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_TRUE(answers[i].is(OptionReply::err_tls_reqd)) << i;
  EXPECT_TRUE(answers[5].is(OptionReply::err_invalid));
  EXPECT_EQ(state(), State::negotiating);
  talk(client_flags() + option(Option::export_name, text("spool")));
  EXPECT_EQ(state(), State::broken);
  answers = option_answers(talk(client_flags() + option(Option::abort)));
  EXPECT_TRUE(answers[0].is(OptionReply::ack));
  EXPECT_EQ(state(), State::finished);
}

TEST_P(NbdHandshake, tls_begins_after_its_reply_and_the_negotiation_begins_anew) {
  tls = Handshake::Tls::required;
  auto answers = option_answers(talk(client_flags() + option(Option::starttls) + text("in clear")));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].is(OptionReply::ack));
  ASSERT_EQ(state(), State::starting_tls);
  EXPECT_EQ(rest, text("in clear")) << "nothing behind it is consumed";
  handshake->secured();
  Bytes out,
      in = option(Option::starttls) + option(Option::structured_reply) + option(Option::go, named("spool"));
  ByteSpan left = in;
  handshake->consume(left, out);
  answers = option_answers(out);
  EXPECT_TRUE(answers[0].is(OptionReply::err_invalid)) << "twice";
  EXPECT_EQ(state(), State::transmission);
  EXPECT_TRUE(handshake->structured_replies());
}

TEST_P(NbdHandshake, lengths_that_lie_are_invalid) {
  const Bytes bad[] = {{},
                       be(0u),
                       be(std::uint32_t{5}) + text("spool"),
                       be(~0u) + text("spool") + be(std::uint16_t{0}),
                       be(4u) + text("spool") + be(std::uint16_t{0}),
                       be(5u) + text("spool") + be(std::uint16_t{1}),
                       be(5u) + text("spool") + be(std::uint16_t{0}) + text("x")};
  for (const auto& data : bad) {
    auto answers = option_answers(talk(client_flags() + option(Option::go, data)));
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_TRUE(answers[0].is(OptionReply::err_invalid));
    EXPECT_EQ(state(), State::negotiating);
  }
}

TEST_P(NbdHandshake, long_options_are_skipped_longer_ones_end_it) {
  auto answers = option_answers(talk(client_flags() +
                                     option(Option::info, Bytes(Handshake::max_option_bytes + 1)) +
                                     option(Option::go, named("spool"))));
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_TRUE(answers[0].is(OptionReply::err_too_big));
  EXPECT_EQ(state(), State::transmission);
  talk(client_flags() + be(option_magic) + be(6u) +
       be(static_cast<std::uint32_t>(Handshake::max_skipped_bytes + 1)));
  EXPECT_EQ(state(), State::broken);
  talk(client_flags() + be(option_magic) + be(1u) + be(4097u));
  EXPECT_EQ(state(), State::broken);
  answers = option_answers(talk(client_flags() + option(Option::go, named(std::string(4097, 'n')))));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].is(OptionReply::err_too_big));
}

TEST_P(NbdHandshake, broken_openings) {
  EXPECT_TRUE(talk(client_flags(4)).empty());
  EXPECT_EQ(state(), State::broken);
  talk(client_flags() + text("GET / HTTP/1.1\r\n"));
  EXPECT_EQ(state(), State::broken);
  EXPECT_NE(handshake->why(), "");
}

TEST_P(NbdHandshake, endless_negotiation_ends) {
  Bytes all = client_flags();
  for (unsigned i = 0; i < Handshake::max_options; ++i) all = all + option(Option::list);
  talk(all);
  EXPECT_EQ(state(), State::negotiating);
  talk(all + option(Option::list));
  EXPECT_EQ(state(), State::broken);
}

}  // namespace
}  // namespace twinloft::repl::nbd
