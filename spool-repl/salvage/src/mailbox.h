// What a user of the winner already has.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/salvage/digest.h"

namespace twinloft::repl::salvage {

// Which of these contents lie in new/ or cur/ of any folder of the Maildir. The Maildir is in use meanwhile:
// a message that moves is looked for again. Without a Maildir: none. Errors: something in it cannot be read,
// so that nobody can tell.
Result<std::set<Sha256>> find_contents(int root, const std::string& maildir,
                                       const std::vector<ContentDigest>& wanted);

// The file of a folder's new/ or cur/ that has that base name and that content, as a path below the root; ""
// where there is none, or it cannot be told.
std::string find_file(int root, const std::string& maildir, const std::string& folder,
                      const std::string& base, const Sha256& content);

// Whether a folder's dovecot-uidlist names that file: then Dovecot has seen it here, and where it is no
// longer there, it was deleted here.
Result<bool> was_seen(int root, const std::string& maildir, const std::string& base);

}  // namespace twinloft::repl::salvage
