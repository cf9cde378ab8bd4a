#include <gtest/gtest.h>

#include "twinloft/lmtpd/connect/target_health.h"

namespace twinloft::lmtpd {
namespace {

using std::chrono::seconds;

TEST(TargetHealth, WhatIsUpIsTriedByAll) {
  TargetHealth health;
  EXPECT_TRUE(health.may_try({}));
  EXPECT_TRUE(health.may_try({}));
  EXPECT_FALSE(health.down());
}

TEST(TargetHealth, WhatIsDownIsTriedByOneAfterEverLongerPauses) {
  TargetHealth health;
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

TEST(TargetHealth, SeveralFailuresAtOnceAreOne) {
  TargetHealth health;
  for (int i = 0; i < 10; ++i) health.failed({});
  EXPECT_TRUE(health.may_try(Instant{} + seconds(1)));
}

TEST(TargetHealth, OneSuccessEndsIt) {
  TargetHealth health;
  health.failed({});
  EXPECT_TRUE(health.may_try(Instant{} + seconds(1)));
  health.worked();
  EXPECT_TRUE(health.may_try(Instant{} + seconds(1)));
  EXPECT_TRUE(health.may_try(Instant{} + seconds(1)));
}

}  // namespace
}  // namespace twinloft::lmtpd
