#include "twinloft/lmtpd/milter/filter_spec.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd::milter {
namespace {

TEST(DefaultAction, NamesAreReadBack) {
  for (auto action :
       {DefaultAction::tempfail, DefaultAction::reject, DefaultAction::accept, DefaultAction::quarantine})
    EXPECT_EQ(parse_default_action(to_string(action)), action);
  EXPECT_EQ(parse_default_action("Accept").error().message,
            "\"Accept\" is none of \"tempfail\", \"reject\", \"accept\" and \"quarantine\"");
}

}  // namespace
}  // namespace twinloft::lmtpd::milter
