#include "parser.h"

#include <algorithm>

#include "known_options.h"

namespace twinloft::argv {
namespace {

constexpr std::size_t kWarningsMax = 32;
constexpr std::string_view kShellBytes = "|><;&$*?`()";

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

}  // namespace

Outcome<Template, Diagnostic> Template::parse(std::string_view text, const ParseOptions& options) {
  return Parser(text, options).run();
}

Outcome<Template, Diagnostic> Parser::run() {
  if (text_.size() > options_.template_bytes_max) {
    fail(options_.template_bytes_max,
         "the template is longer than " + std::to_string(options_.template_bytes_max) + " bytes");
  } else if (const std::size_t nul = text_.find('\0'); nul != std::string_view::npos) {
    fail(nul, "a NUL byte cannot be part of an argument");
  } else {
    words();
  }
  if (error_) return *std::move(error_);
  mark_option_arguments(result_.words_);
  result_.text_ = text_;
  return std::move(result_);
}

bool Parser::words() {
  for (;;) {
    while (more() && (blank_at(at_) || continuation_at(at_) > 0))
      at_ += std::max<std::size_t>(continuation_at(at_), 1);
    if (!more()) break;
    const bool alone = (peek() == '[' || peek() == ']') && word_ends_at(at_ + 1);
    if (!(alone ? bracket() : word())) return false;
  }
  if (group_ != 0)
    return fail(group_offset_, "this group is not closed: ']' is missing as a word of its own");
  if (result_.words_.empty()) return fail(0, "the template is empty: it must name a program");
  return true;
}

bool Parser::bracket() {
  const bool opens = peek() == '[';
  if (opens && group_ != 0) return fail(at_, "groups do not nest; write \"[\" in quotes for an argument '['");
  if (!opens && group_ == 0) return fail(at_, "']' without '['; write \"]\" in quotes for an argument ']'");
  if (opens && result_.words_.empty())
    return fail(at_, "the program cannot be optional: a word must come before '['");
  if (opens) {
    group_ = ++groups_;
    group_offset_ = at_;
  } else {
    if (result_.words_.back().group != group_) return fail(group_offset_, "this group is empty");
    close_group_warnings();
    group_ = 0;
  }
  ++at_;
  return true;
}

// A group without a macro is never left out, and was meant for a shell, as in `[ -f /bin/agent ]`.
void Parser::close_group_warnings() {
  bool can_be_empty = false;
  for (const Word& w : result_.words_)
    for (const Part& p : w.parts)
      can_be_empty |= w.group == group_ && p.kind == Part::Kind::macro && (!p.has_default || p.text.empty());
  if (!can_be_empty) warn(group_offset_, "this group is never left out: no macro in it can be empty");
}

bool Parser::word() {
  word_ = Word{};
  word_.offset = at_;
  word_.group = group_;
  word_quoted_ = false;
  while (more() && !blank_at(at_)) {
    const char c = peek();
    bool ok = true;
    if (c == '\'')
      ok = single_quoted();
    else if (c == '"')
      ok = double_quoted();
    else if (c == '\\')
      ok = escaped(nullptr, false);
    else if (c == '%')
      ok = macro(false);
    else
      plain(c);
    if (!ok) return false;
  }
  return finish_word();
}

bool Parser::finish_word() {
  if (result_.words_.size() >= options_.template_words_max)
    return fail(word_.offset,
                "the template has more than " + std::to_string(options_.template_words_max) + " words");
  if (result_.words_.empty() && !check_program()) return false;
  // Without this, expand() would refuse each message with an empty value.
  if (!word_.parts.empty() && word_.parts.front().kind == Part::Kind::macro && !options_ended_) {
    const Part& first = word_.parts.front();
    if (first.has_default && first.text.starts_with('-'))
      return fail(first.offset,
                  "a word that starts with a macro never becomes an option, and this default starts "
                  "with '-': put the option into the template, or a word -- before this one");
  }
  warn_joined_bracket(word_, word_quoted_);
  if (!result_.words_.empty() && word_.is_literal("--")) options_ended_ = true;
  result_.words_.push_back(std::move(word_));
  return true;
}

bool Parser::check_program() {
  if (word_.is_literal("")) return fail(word_.offset, "the program's name is empty");
  if (!word_.is_literal()) {
    warn(word_.offset, "a macro chooses the program to run: its value decides what is run");
    return true;
  }
  const std::string& program = word_.parts.front().text;
  const std::size_t equals = program.find('=');
  if (equals != std::string::npos && program.find('/') > equals)
    warn(word_.offset, quoted(program) + " is taken as the program's name: no shell sets variables here");
  return true;
}

void Parser::warn_joined_bracket(const Word& word, bool quoted_word) {
  if (quoted_word || word.parts.empty()) return;
  const Part& first = word.parts.front();
  const Part& last = word.parts.back();
  const bool opens = first.kind == Part::Kind::literal && first.text.starts_with('[');
  const bool closes = last.kind == Part::Kind::literal && last.text.ends_with(']');
  if (opens != closes)
    warn(word.offset, std::string("'") + (opens ? '[' : ']') +
                          "' is a part of this argument: a group needs blanks around its brackets");
}

bool Parser::single_quoted() {
  const std::size_t open = at_;
  const std::size_t close = text_.find('\'', open + 1);
  if (close == std::string_view::npos) return fail(open, "this single quote is not closed");
  word_quoted_ = true;
  const std::string_view inside = text_.substr(open + 1, close - open - 1);
  for (std::size_t i = 0; i < inside.size(); ++i) literal(inside[i], open + 1 + i);
  warn_unexpanded(inside, open + 1);
  at_ = close + 1;
  return true;
}

void Parser::warn_unexpanded(std::string_view inside, std::size_t offset) {
  for (std::size_t i = inside.find('%'); i != std::string_view::npos; i = inside.find('%', i + 1)) {
    const std::string_view name = name_at(offset + i + 1);
    const std::size_t end = i + 1 + name.size();
    if (end < inside.size() && (inside[end] == '%' || inside[end] == ':') && find(name) != nullptr) {
      warn(offset + i, "%" + std::string(name) + "% is not expanded in single quotes");
      return;
    }
  }
}

bool Parser::double_quoted() {
  const std::size_t open = at_++;
  word_quoted_ = true;
  while (more() && peek() != '"') {
    const char c = peek();
    if (c == '%') {
      if (!macro(true)) return false;
    } else if (c == '\\') {
      if (!escaped(nullptr, true)) return false;
    } else {
      if (c == '$' || c == '`') warn(at_, quoted({&c, 1}) + " is not expanded: no shell runs");
      literal(c, at_);
      ++at_;
    }
  }
  if (!more()) return fail(open, "this double quote is not closed");
  ++at_;
  return true;
}

// POSIX.1-2017, Shell Command Language, 2.2.1 (outside quotes) and 2.2.3 (in double quotes). Appends the
// bytes to `out`, or to the word if `out` is null.
bool Parser::escaped(std::string* out, bool in_double_quotes) {
  const std::size_t backslash = at_;
  const auto put = [&](char byte, std::size_t offset) {
    if (out != nullptr)
      out->push_back(byte);
    else
      literal(byte, offset);
  };
  if (const std::size_t vanishing = continuation_at(at_); vanishing > 0) {
    at_ += vanishing;
    return true;
  }
  if (at_ + 1 == text_.size()) {
    if (in_double_quotes) {  // the caller reports the missing quote
      put('\\', at_++);
      return true;
    }
    return fail(backslash, "nothing follows this backslash");
  }
  const char next = peek(1);
  if (in_double_quotes && std::string_view("$`\"\\").find(next) == std::string_view::npos) {
    if (next == '%')
      warn(backslash, "in double quotes a backslash before '%' is a backslash: write %% for a percent sign");
    put('\\', backslash);
    ++at_;
    return true;
  }
  word_quoted_ = true;
  put(next, backslash);
  at_ += 2;
  return true;
}

void Parser::literal(char byte, std::size_t offset) {
  if (word_.parts.empty() || word_.parts.back().kind != Part::Kind::literal) {
    Part part;
    part.offset = offset;
    word_.parts.push_back(std::move(part));
  }
  word_.parts.back().text.push_back(byte);
}

// An unquoted byte without a special meaning.
void Parser::plain(char byte) {
  const bool at_start = at_ == word_.offset;
  if (kShellBytes.find(byte) != std::string_view::npos) {
    if (at_ != shell_run_end_ || at_ == 0)
      warn(at_,
           quoted({&byte, 1}) + " is passed on unchanged, since no shell runs; quote it if this is intended");
    shell_run_end_ = at_ + 1;
  } else if (at_start && byte == '~') {
    warn(at_, "'~' is not expanded: use %home% or an absolute path");
  } else if (at_start && byte == '#') {
    warn(at_, "'#' starts no comment: this and the following words are arguments");
  }
  literal(byte, at_);
  ++at_;
}

bool Parser::fail(std::size_t offset, std::string message) {
  if (!error_) error_ = make_diagnostic(text_, offset, std::move(message));
  return false;
}

void Parser::warn(std::size_t offset, std::string message) {
  if (result_.warnings_.size() < kWarningsMax)
    result_.warnings_.push_back(make_diagnostic(text_, offset, std::move(message)));
}

bool Parser::blank_at(std::size_t at) const {
  return at < text_.size() && std::string_view(" \t\r\n").find(text_[at]) != std::string_view::npos;
}

std::size_t Parser::newline_at(std::size_t at) const {
  if (text_.substr(std::min(at, text_.size())).starts_with("\r\n")) return 2;
  return at < text_.size() && text_[at] == '\n' ? 1 : 0;
}

std::size_t Parser::continuation_at(std::size_t at) const {
  if (at >= text_.size() || text_[at] != '\\') return 0;
  const std::size_t newline = newline_at(at + 1);
  return newline == 0 ? 0 : newline + 1;
}

bool Parser::word_ends_at(std::size_t at) const {
  while (continuation_at(at) > 0) at += continuation_at(at);
  return at >= text_.size() || blank_at(at);
}

}  // namespace twinloft::argv
