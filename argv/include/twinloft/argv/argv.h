// Command templates: `/usr/lib/dovecot/dovecot-lda -f %from% -d %user%` becomes an array for execv().
//
// A template is parsed once and expanded per run. No shell is involved, and one template word is one
// argument, whatever the values are: a value is never split, never dropped, and never expanded again.
// docs/argv.md describes the language for administrators; twinloft/argv.h is the same library for C.
//
//   auto parsed = Template::parse("/usr/bin/agent -f %from% [ -a %original_to% ] -- %to%");
//   if (!parsed) die(parsed.error().rendered());
//   auto args = parsed->expand({{"from", "a@example.org"}, {"original_to", ""}, {"to", "b@example.org"}});
//   if (!args) defer(args.error().message);
//
// A Template is immutable once parsed: any number of threads may expand it at once. Nothing here reads the
// environment or the clock. Exceptions: std::bad_alloc only.
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
  bool per_recipient = false;  // expand_all() repeats a word or group that holds it
};

// from client lhlo id size ret envid, and per recipient: to user detail domain original_to home uid gid
// maildir notify.
const std::vector<MacroName>& mail_macros();

struct ParseOptions {
  std::vector<MacroName> macros = mail_macros();
  std::size_t template_bytes_max = 65536;
  std::size_t template_words_max = 1024;
};

// The defaults stay inside what Linux accepts: 128 KiB for one argument with its NUL, and 2 MiB with the
// environment under the usual stack limit of 8 MiB (execve(2)).
struct ExpandOptions {
  std::size_t arguments_max = 4096;
  std::size_t argument_bytes_max = 131071;
  std::size_t total_bytes_max = 1048576;  // every argument counted with its NUL
};

enum class Fold { none, lower, upper };  // ASCII letters only; every other byte stays

struct Part {
  enum class Kind { literal, macro };
  Kind kind = Kind::literal;
  std::string text;  // a literal's bytes, or a macro's default text
  std::string name;  // of a macro
  Fold fold = Fold::none;
  bool has_default = false;
  bool per_recipient = false;
  std::size_t offset = 0;  // in the template
};

struct Word {
  std::vector<Part> parts;       // none: an empty argument. Two literals never follow one another
  std::size_t group = 0;         // 0: always there; else the number, from 1, of the optional group it is in
  std::size_t offset = 0;        // in the template
  bool option_argument = false;  // behind an option that takes it, whatever it starts with (dovecot-lda's -f,
                                 // for one)

  bool is_literal() const;  // holds no macro
  bool is_literal(std::string_view bytes) const;
  bool per_recipient() const;
};

struct ExpandError {
  enum class Code {
    missing_value,   // the caller gave no value for a macro that the template uses
    forbidden_byte,  // a value holds NUL, CR or LF
    leading_dash,    // a value would become an option of the program
    limit,           // an ExpandOptions limit
    recipients,      // expand_all() without recipients, or a program word that would have to be repeated
  };
  Code code = Code::missing_value;
  std::string message;   // never holds bytes of a value: fit for a log line
  std::string macro;     // whose value is wrong; empty where the error is not about one
  std::size_t word = 0;  // 1-based word of the template, 0 where the error is not about one
};

// Every macro that the template uses must be there; an empty string is a value.
using Values = std::map<std::string, std::string, std::less<>>;

class Template {
 public:
  using Arguments = std::vector<std::string>;

  // Fails on: an empty template, NUL, unbalanced quotes, a backslash at the end, a lone '%', unknown macros
  // and modifiers, unbalanced, nested or empty groups, an optional or empty program, limits.
  static Outcome<Template, Diagnostic> parse(std::string_view text, const ParseOptions& options = {});

  // One argument per word; a group is left out where a macro in it comes out empty (after its default).
  Outcome<Arguments, ExpandError> expand(const Values& values, const ExpandOptions& options = {}) const;

  // For `recipients = "all"`. A word that holds a per-recipient macro is repeated for each recipient, in
  // their order; a group that holds one is repeated as a whole, and left out for those recipients where a
  // macro in it is empty. Per-recipient macros are looked up in the recipient's values, then in `shared`.
  Outcome<Arguments, ExpandError> expand_all(const Values& shared, const std::vector<Values>& recipients,
                                             const ExpandOptions& options = {}) const;

  const std::string& text() const& { return text_; }
  const std::vector<Word>& words() const& { return words_; }
  const std::vector<Diagnostic>& warnings() const& { return warnings_; }  // at most 32
  const std::vector<std::string>& macros() const& { return macros_; }  // used ones, each once, by first use
  // Of a temporary they would dangle.
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
