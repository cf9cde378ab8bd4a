#include "twinloft/spool-repl/format/agreement.h"

#include <gtest/gtest.h>

namespace twinloft::repl {
namespace {

std::string text(std::initializer_list<std::pair<const char*, std::string>> settings) {
  Agreement all;
  for (const auto& [key, value] : settings) all.add(key, value);
  return all.text();
}

TEST(Agreement, NamesEachSettingAndBothValues) {
  std::string here = text({{"protocol", "C"}, {"on_peer_loss", "suspend"}, {"min_in_sync", "1"}});
  EXPECT_EQ(disagreement(here, here), "");
  EXPECT_EQ(
      disagreement(here, text({{"protocol", "A"}, {"on_peer_loss", "continue"}, {"min_in_sync", "1"}})),
      "protocol is \"C\" here and \"A\" there, on_peer_loss is \"suspend\" here and \"continue\" there");
}

TEST(Agreement, WhatOnlyOneSideKnowsDiffers) {
  std::string here = text({{"min_in_sync", "1"}}),
              there = text({{"min_in_sync", "1"}, {"arbiter.prefix", "/x"}});
  EXPECT_EQ(disagreement(here, there), "arbiter.prefix is not known here and \"/x\" there");
  EXPECT_EQ(disagreement(there, here), "arbiter.prefix is \"/x\" here and not known there");
  EXPECT_NE(disagreement(here, ""), "");
  EXPECT_EQ(disagreement("", ""), "");
}

TEST(Agreement, TheArbiterIsItsKindAndItsPlace) {
  std::string etcd = text({{"protocol", "C"}, {"arbiter.kind", "etcd"}, {"arbiter.prefix", "/x"}});
  EXPECT_EQ(arbiter_lines(etcd), "arbiter.kind=etcd\narbiter.prefix=/x\n");
  EXPECT_EQ(arbiter_lines(etcd),
            arbiter_lines(text({{"protocol", "A"}, {"arbiter.kind", "etcd"}, {"arbiter.prefix", "/x"}})));
  EXPECT_EQ(arbiter_lines(text({{"protocol", "C"}})), "");
}

TEST(Agreement, LongValuesAreToldApart) {
  std::string a(5000, 'x'), b = a;
  b.back() = 'y';
  EXPECT_LE(text({{"arbiter.endpoints", a}}).size(), 400u);
  EXPECT_EQ(disagreement(text({{"arbiter.endpoints", a}}), text({{"arbiter.endpoints", a}})), "");
  EXPECT_NE(disagreement(text({{"arbiter.endpoints", a}}), text({{"arbiter.endpoints", b}})), "");
}

// The text goes to a log and to a terminal.
TEST(Agreement, WhatComesFromOutsideIsPrintableAndShort) {
  std::string hostile = "proto\x1b[2J=\x07\x01\n\n==\n" + std::string(2000, 'z');
  std::string told = disagreement(text({{"protocol", "C"}}), hostile);
  EXPECT_LE(told.size(), 700u);
  for (char c : told) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << told;
  EXPECT_NE(disagreement("a=1\nb=2\n", "b=2\na=1\n"), "") << "a different order is a different list";
  EXPECT_NE(disagreement("a=1\n", "a=1\na=2\n"), "");
}

}  // namespace
}  // namespace twinloft::repl
