#include "twinloft/lmtpd/milter/agreement.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd::milter {
namespace {

using namespace std::string_literals;

std::string answer(std::uint32_t version, std::uint32_t rights, std::uint32_t wishes,
                   std::string_view macros = {}) {
  std::string data;
  append_number(data, version);
  append_number(data, rights);
  append_number(data, wishes);
  return data += macros;
}
Result<Agreement> agreed(const std::string& data) {
  return parse_agreement({command::negotiate, data});
}

TEST(Agreement, TheOfferHasEverything) {
  EXPECT_EQ(offer(), "\0\0\0\x0dO\0\0\0\6\0\0\1\xff\0\x1f\xff\xff"s);
}

TEST(Agreement, OlderVersionsAreSpoken) {
  for (std::uint32_t version : {2u, 3u, 4u, 6u}) EXPECT_TRUE(agreed(answer(version, 0, 0))) << version;
  EXPECT_EQ(agreed(answer(1, 0, 0)).error().message,
            "version 1 of the milter protocol; 2 to 6 are supported");
  EXPECT_EQ(agreed(answer(7, 0, 0)).error().message,
            "version 7 of the milter protocol; 2 to 6 are supported");
}

TEST(Agreement, WhatWasNotOfferedIsRefused) {
  EXPECT_EQ(agreed(answer(6, 0x200, 0)).error().message, "the filter wants the unknown actions 0x200");
  EXPECT_EQ(agreed(answer(6, 0, 0x200000)).error().message,
            "the filter wants the unknown protocol steps 0x200000");
  EXPECT_EQ(agreed("\0\0\0\6\0"s).error().message, "the answer to the negotiation has 5 bytes");
  EXPECT_FALSE(parse_agreement({'c', answer(6, 0, 0)}));
}

TEST(Agreement, MacrosByStage) {
  auto a = agreed(answer(6, may::choose_macros, 0, "\0\0\0\2i {mail_addr},j\0\0\0\0\5\0"s));
  ASSERT_TRUE(a) << a.error().message;
  EXPECT_EQ(a->macros[2], (MacroNames{"i", "{mail_addr}", "j"}));
  EXPECT_EQ(a->macros[5], MacroNames{}) << "the filter wants none at the end of the message";
  EXPECT_EQ(a->macros[0], std::nullopt);
  EXPECT_FALSE(agreed(answer(6, 0, 0, "\0\0\0\7i\0"s))) << "there is no stage 7";
  EXPECT_FALSE(agreed(answer(6, 0, 0, "\0\0"s)));
  std::string many = "\0\0\0\2"s;
  for (int i = 0; i < 1000; ++i) many += "i ";
  EXPECT_EQ(agreed(answer(6, 0, 0, many))->macros[2]->size(), macros_chosen_max);
}

TEST(Agreement, EventsThatAFilterDoesNotGet) {
  const std::pair<Event, std::uint32_t> flags[] = {{Connect{}, wish::no_connect},
                                                   {Helo{}, wish::no_helo},
                                                   {Mail{}, wish::no_mail},
                                                   {Rcpt{}, wish::no_rcpt},
                                                   {Data{}, wish::no_data},
                                                   {Header{}, wish::no_headers},
                                                   {EndOfHeaders{}, wish::no_end_of_headers},
                                                   {BodyChunk{}, wish::no_body}};
  for (const auto& [event, flag] : flags) {
    EXPECT_TRUE(is_unwanted(*agreed(answer(6, 0, flag)), event)) << flag;
    EXPECT_FALSE(is_unwanted(*agreed(answer(6, 0, wish::all & ~flag)), event)) << flag;
  }
  EXPECT_FALSE(is_unwanted(*agreed(answer(6, 0, wish::all)), EndOfBody{}));
  EXPECT_TRUE(is_unwanted(*agreed(answer(3, 0, 0)), Data{})) << "version 4 brought this event";
  EXPECT_FALSE(is_unwanted(*agreed(answer(4, 0, 0)), Data{}));
}

TEST(Agreement, EventsThatAFilterDoesNotAnswer) {
  const std::pair<Event, std::uint32_t> flags[] = {{Connect{}, wish::silent_connect},
                                                   {Helo{}, wish::silent_helo},
                                                   {Mail{}, wish::silent_mail},
                                                   {Rcpt{}, wish::silent_rcpt},
                                                   {Data{}, wish::silent_data},
                                                   {Header{}, wish::silent_header},
                                                   {EndOfHeaders{}, wish::silent_end_of_headers},
                                                   {BodyChunk{}, wish::silent_body}};
  for (const auto& [event, flag] : flags) {
    EXPECT_TRUE(is_silent(*agreed(answer(6, 0, flag)), event)) << flag;
    EXPECT_FALSE(is_silent(*agreed(answer(6, 0, wish::all & ~flag)), event)) << flag;
    EXPECT_FALSE(is_silent(*agreed(answer(2, 0, flag)), event)) << "version 2 always answers";
  }
  EXPECT_FALSE(is_silent(*agreed(answer(6, 0, wish::all)), EndOfBody{}));
}

TEST(Agreement, RefusedRecipientsOnlyForThoseWhoAsk) {
  EXPECT_TRUE(is_unwanted(*agreed(answer(6, 0, 0)), Rcpt{"a", {}, true}));
  EXPECT_FALSE(is_unwanted(*agreed(answer(6, 0, wish::refused_recipients)), Rcpt{"a", {}, true}));
}

}  // namespace
}  // namespace twinloft::lmtpd::milter
