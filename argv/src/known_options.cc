#include "known_options.h"

#include <cstddef>

namespace twinloft::argv {
namespace {

enum class Reads {
  this_word,  // this word alone, for all values of its macros
  next_word,  // the next word too, as the argument of the option
  unknown,    // depends on the values
};

// "-ef" ends in an option whose argument is the next word. "-f%from%" does so if the value is empty.
Reads reads(const Word& word) {
  if (word.parts.empty() || word.parts.front().kind != Part::Kind::literal) return Reads::this_word;
  const std::string& text = word.parts.front().text;
  if (text[0] != '-') return Reads::this_word;
  const std::size_t other = text.find_first_not_of(dovecot_lda_without, 1);
  const bool has_argument = other != std::string::npos &&
                            dovecot_lda_with_argument.find(text[other]) != std::string_view::npos;
  if (has_argument && other + 1 < text.size()) return Reads::this_word;
  if (!word.is_literal()) return Reads::unknown;
  return has_argument ? Reads::next_word : Reads::this_word;
}

}  // namespace

std::string program_name(const Word& program) {
  if (!program.is_literal() || program.parts.empty()) return {};
  const std::string& path = program.parts.front().text;
  return path.substr(path.rfind('/') + 1);
}

bool is_dovecot_lda(std::string_view program) {
  return program == "dovecot-lda" || program == "deliver";
}

void mark_option_arguments(std::vector<Word>& words) {
  if (!is_dovecot_lda(program_name(words.front()))) return;
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    if (words[i].is_literal("--")) return;
    const Reads what = reads(words[i]);
    if (what == Reads::unknown) return;
    if (what == Reads::this_word) continue;
    ++i;
    words[i].option_argument = words[i].group == words[i - 1].group;
  }
}

}  // namespace twinloft::argv
