// Command templates: `/usr/lib/dovecot/dovecot-lda -f %from% -d %user%` becomes an array for execv().
//
// A template is parsed once and expanded for each run, without a shell. A word of the template is one
// argument for all values: a value is not split, not dropped, and not expanded again. docs/argv.md describes
// the language for administrators. twinloft/argv.h is the same library for C.
//
//   auto parsed = Template::parse("/usr/bin/agent -f %from% [ -a %original_to% ] -- %to%");
//   if (!parsed) die(parsed.error().rendered());
//   auto args = parsed->expand({{"from", "a@example.org"}, {"original_to", ""}, {"to", "b@example.org"}});
//   if (!args) defer(args.error().message);
//
// A Template is immutable, so several threads may expand it at once. The result depends on the arguments
// alone, not on the environment or the time. Exceptions: std::bad_alloc only.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/argv/diagnostic.h"
#include "twinloft/argv/outcome.h"

namespace twinloft::argv {

// A macro that templates may use. Names are letters, digits and '_', and do not start with a digit.
struct MacroName {
  std::string name;
  bool per_recipient = false;  // expand_all() repeats a word or group with this macro
};

// The macros of mail delivery. Of the message: from client lhlo id size ret envid. Of each recipient: to user
// detail domain original_to home uid gid maildir notify.
const std::vector<MacroName>& mail_macros();

struct ParseOptions {
  std::vector<MacroName> macros = mail_macros();
  std::size_t template_bytes_max = 65536;
  std::size_t template_words_max = 1024;
};

// The defaults are within the limits of execve(2) on Linux: 128 KiB for an argument with its NUL, and 2 MiB
// for all arguments and the environment with the usual stack limit of 8 MiB.
struct ExpandOptions {
  std::size_t arguments_max = 4096;
  std::size_t argument_bytes_max = 131071;
  std::size_t total_bytes_max = 1048576;  // of all arguments with their NULs
};

enum class Fold { none, lower, upper };  // of ASCII letters; every other byte is kept

struct Part {
  enum class Kind { literal, macro };
  Kind kind = Kind::literal;
  std::string text;  // the bytes of a literal, or the default text of a macro
  std::string name;  // of a macro; empty for a literal
  Fold fold = Fold::none;
  bool has_default = false;
  bool per_recipient = false;
  std::size_t offset = 0;  // in the template
};

struct Word {
  std::vector<Part> parts;       // empty: an empty argument. No literal follows another literal
  std::size_t group = 0;         // the number, from 1, of the optional group of the word. 0: of no group
  std::size_t offset = 0;        // in the template
  bool option_argument = false;  // the word is the argument of an option, also if it begins with "-", such as
                                 // the word after dovecot-lda's -f

  bool is_literal() const;  // no macro is part of the word
  bool is_literal(std::string_view bytes) const;
  bool per_recipient() const;
};

struct ExpandError {
  enum class Code {
    missing_value,   // the caller gave no value for a macro that the template uses
    forbidden_byte,  // a value holds NUL, CR or LF
    leading_dash,    // a value would become an option of the program
    limit,           // an ExpandOptions limit
    recipients,      // expand_all() without recipients, or the program's word differs for each recipient
  };
  Code code = Code::missing_value;
  std::string message;   // without bytes of any value, so that it can be logged
  std::string macro;     // the macro with the wrong value, if the error is about one
  std::size_t word = 0;  // the word of the template, from 1. 0: the error is not about a word
};

// The value of each macro that the template uses, by name. An empty string is a value.
using Values = std::map<std::string, std::string, std::less<>>;

class Template {
 public:
  using Arguments = std::vector<std::string>;

  // Errors: an empty template, NUL, unbalanced quotes, a backslash at the end, a lone '%', an unknown macro
  // or modifier, unbalanced, nested or empty groups, an optional or empty program, a limit of ParseOptions.
  static Outcome<Template, Diagnostic> parse(std::string_view text, const ParseOptions& options = {});

  // Returns one argument for each word. A group is left out if one of its macros is empty after its default.
  Outcome<Arguments, ExpandError> expand(const Values& values, const ExpandOptions& options = {}) const;

  // Expands for several recipients, as for `recipients = "all"`. A word with a macro of each recipient is
  // repeated for each of them, in their order. A group with such a macro is repeated as a whole, and left out
  // for each recipient with an empty macro in it. The values of such macros come from the recipient's values,
  // then from `shared`.
  Outcome<Arguments, ExpandError> expand_all(const Values& shared, const std::vector<Values>& recipients,
                                             const ExpandOptions& options = {}) const;

  const std::string& text() const& { return text_; }
  const std::vector<Word>& words() const& { return words_; }
  const std::vector<Diagnostic>& warnings() const& { return warnings_; }  // at most 32
  // The names of the macros that the template uses, each once, in the order of their first use.
  const std::vector<std::string>& macros() const& { return macros_; }
  // The references would outlive a temporary.
  void text() && = delete;
  void words() && = delete;
  void warnings() && = delete;
  void macros() && = delete;
  bool uses(std::string_view macro) const;

 private:
  friend class Parser;
  Template() = default;

  std::string text_;
  std::vector<Word> words_;
  std::vector<Diagnostic> warnings_;
  std::vector<std::string> macros_;
};

}  // namespace twinloft::argv
