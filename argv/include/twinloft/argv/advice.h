// Checks of templates for particular programs. dovecot-lda (and its older name, deliver) ends with EX_USAGE
// at every delivery if an option is wrong, so its options are checked before mail depends on the template.
#pragma once

#include <vector>

#include "twinloft/argv/argv.h"

namespace twinloft::argv {

struct AdviceOptions {
  bool all_recipients = false;  // the template will be expanded with expand_all()
};

// Returns warnings, and none for an unknown program. The last component of the first word names the program.
// Source: the options of Dovecot 2.x, a:d:ef:m:p:r: of dovecot-lda and c:i:ko:OL of every Dovecot program.
std::vector<Diagnostic> check_agent_options(const Template& command, const AdviceOptions& options = {});

}  // namespace twinloft::argv
