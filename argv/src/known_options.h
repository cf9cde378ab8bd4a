// The options of known programs, as getopt(3) reads them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "twinloft/argv/argv.h"

namespace twinloft::argv {

inline constexpr std::string_view dovecot_lda_with_argument = "adfmprcio";
inline constexpr std::string_view dovecot_lda_without = "ekOL";

// The last component of the first word. Empty: the first word has a macro.
std::string program_name(const Word& program);
bool is_dovecot_lda(std::string_view program);

// Marks the words that are arguments of an option also if they begin with "-": the word directly after such
// an option, in the same group. For an unknown program, no word is marked.
void mark_option_arguments(std::vector<Word>& words);

}  // namespace twinloft::argv
