#include <gtest/gtest.h>

#include "hop.h"

namespace twinloft::lmtpd {
namespace {

using std::chrono::seconds;

TEST(HopHealth, WhatIsUpIsTriedByAll) {
  HopHealth health;
  EXPECT_TRUE(health.may_try({}));
  EXPECT_TRUE(health.may_try({}));
  EXPECT_FALSE(health.down());
}

TEST(HopHealth, WhatIsDownIsTriedByOneAfterEverLongerPauses) {
  HopHealth health;
  Instant now{};
  EXPECT_TRUE(health.may_try(now));
  health.failed(now);
  for (int pause : {1, 2, 4, 8, 16, 30, 30}) {
    EXPECT_TRUE(health.down());
    EXPECT_FALSE(health.may_try(now + (seconds(pause) - Duration(1))));
    now = now + seconds(pause);
    EXPECT_TRUE(health.may_try(now));
    EXPECT_FALSE(health.may_try(now)) << "by two at once";
    health.failed(now);
  }
}

TEST(HopHealth, SeveralFailuresAtOnceAreOne) {
  HopHealth health;
  for (int i = 0; i < 10; ++i) health.failed({});
  EXPECT_TRUE(health.may_try(Instant{} + seconds(1)));
}

TEST(HopHealth, OneSuccessEndsIt) {
  HopHealth health;
  health.failed({});
  EXPECT_TRUE(health.may_try(Instant{} + seconds(1)));
  health.worked();
  EXPECT_TRUE(health.may_try(Instant{} + seconds(1)));
  EXPECT_TRUE(health.may_try(Instant{} + seconds(1)));
}

}  // namespace
}  // namespace twinloft::lmtpd
