// Looks whether a script runs for a user: one fstatat(2) for each path of the rule.
#pragma once

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/policy/user.h"
#include "twinloft/lmtpd/sieve/script_rule.h"
#include "twinloft/lmtpd/spool/file_ops.h"
#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

// Whatever has the script's name counts, except a directory: also a link that leads nowhere, or out of the
// home. Dovecot then decides what runs. A name that is no part of a path counts too, and so does a row with
// fields about Sieve. May block.
//
// Errors, with errno: "no script" is certain only if the place of the scripts was reached. In the spool,
// whose marker was read, a missing home is certain. Outside of it the home (or the path's constant part) must
// exist: Errc::unavailable. If the file's directory is missing there, the script counts, and Dovecot decides.
Result<bool> has_script(const ScriptRule& rule, const User& user, const SpoolHandle& handle,
                        const Spool& spool, FileOps& ops);

}  // namespace twinloft::lmtpd
