// Options of dovecot-lda as getopt(3) reads them (Dovecot 2.x; checked against 2.3.19).
#include "twinloft/argv/advice.h"

#include <algorithm>
#include <iterator>

#include "known_options.h"

namespace twinloft::argv {
namespace {

constexpr std::string_view kWithArgument = dovecot_lda_with_argument;
constexpr std::string_view kWithout = dovecot_lda_without;

// Whether the word has a macro whose value is not the user's name in the user database.
bool names_another(const std::vector<Part>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const Part& p) { return p.kind == Part::Kind::macro && p.name != "user"; });
}

class DovecotLda {
 public:
  DovecotLda(const Template& command, std::string program)
      : command_(command), program_(std::move(program)) {}

  std::vector<Diagnostic> run(const AdviceOptions& options) {
    const std::vector<Word>& words = command_.words();
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (!options_ended_ && words[i].is_literal("--"))
        options_ended_ = true;
      else if (!options_ended_ && is_option(words[i]))
        i += option_word(i);
      else
        operand(words[i], options);
    }
    if (options.all_recipients) one_recipient();
    return std::move(found_);
  }

 private:
  static bool is_option(const Word& word) {
    if (word.parts.empty() || word.parts.front().kind != Part::Kind::literal) return false;
    const std::string& text = word.parts.front().text;
    return text.starts_with('-') && (text.size() > 1 || word.parts.size() > 1);
  }

  // Returns how many of the next words belong to this word: 0 or 1.
  std::size_t option_word(std::size_t index) {
    const Word& word = command_.words()[index];
    const std::string& letters = word.parts.front().text;
    for (std::size_t at = 1; at < letters.size(); ++at) {
      const char letter = letters[at];
      if (kWithout.find(letter) != std::string_view::npos) continue;
      if (kWithArgument.find(letter) == std::string_view::npos) {
        unknown(word, letters, at);
        return 0;
      }
      if (letter == 'd') destination(word);
      if (at + 1 < letters.size()) return 0;
      return word.parts.size() > 1 ? joined_value(word, letter) : next_word(index, letter);
    }
    if (word.parts.size() > 1)
      warn(word, "a macro chooses options of " + program_ + " here: its value decides what the program does");
    return 0;
  }

  void unknown(const Word& word, const std::string& letters, std::size_t at) {
    const char letter = letters[at];
    if (letters.starts_with("--")) {
      warn(word, program_ + " has no long options: it ends with 64 (EX_USAGE), and no mail is delivered");
    } else if (letter == 'n' || letter == 's') {
      const char* setting = letter == 'n' ? "lda_mailbox_autocreate" : "lda_mailbox_autosubscribe";
      warn(word, std::string("option -") + letter + " ended with Dovecot 1.x; since 2.0 " + program_ +
                     " ends with 64 (EX_USAGE), and no mail is delivered: use the setting " + setting);
    } else {
      warn(word,
           program_ + " has no option -" + letter + ": it ends with 64 (EX_USAGE), and no mail is delivered");
    }
  }

  // getopt(3) takes the next word if this word ends with the option.
  std::size_t joined_value(const Word& word, char letter) {
    for (std::size_t i = 1; i < word.parts.size(); ++i) {
      const Part& part = word.parts[i];
      if (part.kind == Part::Kind::literal || !part.text.empty()) return 0;
    }
    const std::string option = std::string("-") + letter;
    warn(word, "with an empty value " + program_ + " takes the next argument as the value of " + option +
                   ": write " + option + " and the macro as two words");
    return 0;
  }

  std::size_t next_word(std::size_t index, char letter) {
    const std::vector<Word>& words = command_.words();
    const Word& word = words[index];
    const std::string option = std::string("option -") + letter;
    if (index + 1 == words.size()) {
      warn(word, option + " of " + program_ +
                     " needs a value: it ends with 64 (EX_USAGE), and no mail is delivered");
      return 0;
    }
    if (letter == 'd') destination(words[index + 1]);
    if (words[index + 1].group != word.group)
      warn(word, option + " and its value must be in the same group: where one is left out, " + program_ +
                     " takes the next argument");
    else if ((letter == 'a' || letter == 'r') && may_be_empty(words[index + 1]))
      warn(words[index + 1], option + " of " + program_ +
                                 " ends with 64 (EX_USAGE) for an empty value: put both words "
                                 "into a group, [ -" +
                                 letter + " ... ]");
    return 1;
  }

  void destination(const Word& word) {
    if (!names_another(word.parts)) return;
    warn(word, "option -d of " + program_ +
                   " needs the name that the user database has found, %user%: for an alias or user+detail@ "
                   "it ends with 67 "
                   "(EX_NOUSER), and mail is deferred. Write -a %to% -d %user%");
  }

  // Outside of a group, and only of macros that are empty for some messages.
  static bool may_be_empty(const Word& word) {
    if (word.group != 0) return false;
    for (const Part& part : word.parts) {
      constexpr std::string_view empty_for_some[] = {"original_to", "from",  "detail",
                                                     "ret",         "envid", "notify"};
      const bool sometimes = std::find(std::begin(empty_for_some), std::end(empty_for_some), part.name) !=
                             std::end(empty_for_some);
      if (part.kind == Part::Kind::literal || !part.text.empty() || !sometimes) return false;
    }
    return true;
  }

  void operand(const Word& word, const AdviceOptions& options) {
    if (options.all_recipients && word.per_recipient()) return;  // one_recipient() warns with more detail
    warn(word,
         program_ +
             " takes options only: with this argument it ends with 64 (EX_USAGE), and no mail is delivered");
  }

  void one_recipient() {
    for (const Word& word : command_.words()) {
      if (!word.per_recipient()) continue;
      warn(word, program_ + " takes one recipient: do not use recipients = \"all\" with it");
      return;
    }
  }

  void warn(const Word& word, std::string message) {
    found_.push_back(make_diagnostic(command_.text(), word.offset, std::move(message)));
  }

  const Template& command_;
  std::string program_;
  bool options_ended_ = false;
  std::vector<Diagnostic> found_;
};

}  // namespace

std::vector<Diagnostic> check_agent_options(const Template& command, const AdviceOptions& options) {
  std::string program = program_name(command.words().front());
  if (!is_dovecot_lda(program)) return {};
  return DovecotLda(command, std::move(program)).run(options);
}

}  // namespace twinloft::argv
