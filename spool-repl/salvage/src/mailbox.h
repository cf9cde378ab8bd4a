// Searches the mailbox of a user on the winner.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/salvage/digest.h"

namespace twinloft::repl::salvage {

// Which of these contents are in new/ or cur/ of any folder of the Maildir. The Maildir is in use meanwhile,
// so a message that moves is searched again. Without a Maildir: none. Errors: a part of the Maildir cannot
// be read, so that the result is unknown.
Result<std::set<Sha256>> find_contents(int root, const std::string& maildir,
                                       const std::vector<ContentDigest>& wanted);

// The file in a folder's new/ or cur/ with this base name and content, as a path below the root. Empty:
// none, or unknown.
std::string find_file(int root, const std::string& maildir, const std::string& folder,
                      const std::string& base, const Sha256& content);

// Whether a folder's dovecot-uidlist names the file. Dovecot has then seen the file here, and if it is
// missing, it was deleted here.
Result<bool> was_seen(int root, const std::string& maildir, const std::string& base);

}  // namespace twinloft::repl::salvage
