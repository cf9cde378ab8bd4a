// The grammar of templates. One pass over the bytes; a Parser is used once.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "twinloft/argv/argv.h"

namespace twinloft::argv {

class Parser {
 public:
  Parser(std::string_view text, const ParseOptions& options) : text_(text), options_(options) {}
  Outcome<Template, Diagnostic> run();

 private:
  // A step returns false if error_ is set. Parsing then ends.
  bool words();
  bool bracket();
  bool word();
  bool finish_word();
  bool check_program();
  bool single_quoted();
  bool double_quoted();
  bool escaped(std::string* out, bool in_double_quotes);
  bool macro(bool in_double_quotes);
  bool macro_modifiers(Part& part, std::size_t percent, bool in_double_quotes);
  bool default_text(Part& part, std::size_t percent, bool in_double_quotes);
  void close_group_warnings();

  void literal(char byte, std::size_t offset);
  void plain(char byte);
  void warn_unexpanded(std::string_view quoted, std::size_t offset);
  void warn_joined_bracket(const Word& word, bool quoted);
  bool fail(std::size_t offset, std::string message);
  void warn(std::size_t offset, std::string message);

  bool more() const { return at_ < text_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool blank_at(std::size_t at) const;
  // The bytes of the line end at `at`: 1, or 2 for CR LF. 0: not a line end.
  std::size_t newline_at(std::size_t at) const;
  std::size_t continuation_at(std::size_t at) const;  // of backslash and line end, which are removed
  bool word_ends_at(std::size_t at) const;
  std::string_view name_at(std::size_t at) const;
  const MacroName* find(std::string_view name) const;
  std::string known_names() const;

  std::string_view text_;
  const ParseOptions& options_;
  std::size_t at_ = 0;
  Template result_;
  std::optional<Diagnostic> error_;

  Word word_;
  bool word_quoted_ = false;       // a byte of the word was quoted: the word is not a bracket, and not shell
                                   // syntax
  std::size_t shell_run_end_ = 0;  // one warning for a run such as ">>" or "&&"
  std::size_t group_ = 0;          // 0 outside
  std::size_t groups_ = 0;
  std::size_t group_offset_ = 0;
  bool options_ended_ = false;  // a literal "--" was seen
};

}  // namespace twinloft::argv
