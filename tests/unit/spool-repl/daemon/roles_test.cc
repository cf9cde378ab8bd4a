#include "roles.h"

#include <gtest/gtest.h>

namespace twinloft::repl::daemon {
namespace {

using core::Role;
using Attempt = Roles::Attempt;

core::VolumeStatus status(Role role, bool other_is_primary = false) {
  core::VolumeStatus s;
  s.role = role;
  s.peers.resize(2);
  s.peers[1].primary = other_is_primary;
  return s;
}

TEST(RolesTest, WhenAPromotionIsTried) {
  struct Row {
    const char* what;
    bool wanted;
    Role role;
    bool other_is_primary, arbiter, stops;
    Attempt attempt;
    bool wanted_then;
  };
  for (const Row& r : std::initializer_list<Row>{
           {"not configured", false, Role::secondary, false, false, false, Attempt::never, false},
           {"not configured, arbiter", false, Role::secondary, false, true, false, Attempt::never, false},
           {"configured", true, Role::secondary, false, false, false, Attempt::now, true},
           {"configured, arbiter", true, Role::secondary, false, true, false, Attempt::now, true},
           {"is primary", true, Role::primary, false, false, false, Attempt::later, true},
           {"is primary, arbiter", true, Role::primary, false, true, false, Attempt::later, true},
           {"is being stopped", true, Role::secondary, false, false, true, Attempt::never, true},
           {"is being stopped, arbiter", true, Role::secondary, true, true, true, Attempt::never, true},
           // Without an arbiter, the other primary refuses until it is demoted.
           {"another is primary", true, Role::secondary, true, false, false, Attempt::now, true},
           {"another is primary, arbiter", true, Role::secondary, true, true, false, Attempt::never, false},
       }) {
    Roles roles;
    roles.begin(r.wanted);
    EXPECT_EQ(roles.attempt(status(r.role, r.other_is_primary), r.arbiter, r.stops), r.attempt) << r.what;
    EXPECT_EQ(roles.wants_primary(), r.wanted_then) << r.what;
    EXPECT_EQ(roles.stands_down(), r.wanted && !r.wanted_then) << r.what;
  }
}

TEST(RolesTest, StandsDownForGood) {
  Roles roles;
  roles.begin(true);
  EXPECT_FALSE(roles.stands_down());
  roles.stand_down();
  EXPECT_TRUE(roles.stands_down());
  EXPECT_EQ(roles.attempt(status(Role::secondary), false, false), Attempt::never);
}

TEST(RolesTest, LeavesAFailedDisk) {
  EXPECT_TRUE(Roles::leaves_failed_disk(status(Role::secondary), false));
  EXPECT_FALSE(Roles::leaves_failed_disk(status(Role::secondary), true)) << "a caller waits for an answer";
  EXPECT_FALSE(Roles::leaves_failed_disk(status(Role::primary), false)) << "its clients may still read";
}

}  // namespace
}  // namespace twinloft::repl::daemon
