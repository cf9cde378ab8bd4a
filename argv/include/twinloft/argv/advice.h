// What is known about the options of particular programs. dovecot-lda (and its older name, deliver) answers a
// wrong option with EX_USAGE at every delivery, so a template is better checked before mail depends on it.
#pragma once

#include <vector>

#include "twinloft/argv/argv.h"

namespace twinloft::argv {

struct AdviceOptions {
  bool all_recipients = false;  // the template will be expanded with expand_all()
};

// Warnings only, none for programs that are not known here. The program is known by the last component of the
// first word. Options of Dovecot 2.x: a:d:ef:m:p:r: of its own and c:i:ko:OL of every Dovecot program.
std::vector<Diagnostic> check_agent_options(const Template& command, const AdviceOptions& options = {});

}  // namespace twinloft::argv
