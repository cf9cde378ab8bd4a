// UserDb `static`: every address exists, and its paths come from templates.
//
// In `name`, `home` and `maildir`, %user% is the local part without detail, %domain% the domain, %name% (not
// in `name`) the expanded name, %% a percent sign. A local part or domain that would be more than one path
// component
// (".", "..", "/", control bytes) does not exist: 550, never a path. Local parts are folded to lower case.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

struct StaticDbConfig {
  std::string name = "%user%@%domain%";
  std::string home;     // "/srv/mail/%domain%/%user%"
  std::string maildir;  // "/srv/mail/%domain%/%user%/Maildir"; empty where the agent is external
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::string agent;
  std::vector<std::string> domains;  // lower case; empty: any domain, and addresses without one
  std::vector<std::string> users;    // local parts; empty: any
};

// Errors: an unknown %name%, a template that is not absolute, uid or gid 0.
Result<std::unique_ptr<UserDb>> make_static_db(StaticDbConfig config);

}  // namespace twinloft::lmtpd
