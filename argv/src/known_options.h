// The options of programs that are known here, as getopt(3) reads them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "twinloft/argv/argv.h"

namespace twinloft::argv {

inline constexpr std::string_view dovecot_lda_with_argument = "adfmprcio";
inline constexpr std::string_view dovecot_lda_without = "ekOL";

// The last component of the first word; empty where that holds a macro.
std::string program_name(const Word& program);
bool is_dovecot_lda(std::string_view program);

// Marks the words that the program takes as an option's argument, whatever they start with: those directly
// behind such an option, in the same group. Nothing where the program is not known.
void mark_option_arguments(std::vector<Word>& words);

}  // namespace twinloft::argv
