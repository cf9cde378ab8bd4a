// Expansion: one pass over the parsed words. Values are appended to arguments, and are not parsed.
#include <algorithm>
#include <optional>

#include "twinloft/argv/argv.h"

namespace twinloft::argv {
namespace {

using Code = ExpandError::Code;

constexpr std::string_view kForbidden{"\0\r\n", 3};

// The values of one recipient, for the macros of recipients, then the values of the message.
struct Scope {
  const Values* recipient = nullptr;
  const Values& shared;

  const std::string* find(const Part& macro) const {
    if (macro.per_recipient && recipient != nullptr) {
      if (const auto it = recipient->find(macro.name); it != recipient->end()) return &it->second;
    }
    const auto it = shared.find(macro.name);
    return it == shared.end() ? nullptr : &it->second;
  }
};

char folded(char c, Fold fold) {
  if (fold == Fold::lower && c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  if (fold == Fold::upper && c >= 'a' && c <= 'z') return static_cast<char>(c - 'a' + 'A');
  return c;
}

class Expansion {
 public:
  Expansion(const std::vector<Word>& words, const ExpandOptions& options)
      : words_(words), options_(options) {}

  bool append(std::size_t index, const Scope& scope);
  // Whether all macros of the words [first, last) have values that are not empty. Nothing: a value is bad.
  std::optional<bool> complete(std::size_t first, std::size_t last, const Scope& scope);
  bool fail(Code code, std::size_t index, std::string macro, const std::string& what);

  Template::Arguments take() { return std::move(arguments_); }
  const ExpandError& error() const { return error_; }

 private:
  const std::string* value(std::size_t index, const Part& macro, const Scope& scope);
  bool append_part(std::size_t index, const Part& part, const Scope& scope, std::string& out);

  const std::vector<Word>& words_;
  const ExpandOptions& options_;
  Template::Arguments arguments_;
  std::size_t total_bytes_ = 0;
  bool options_ended_ = false;  // a literal "--" is among the arguments
  std::size_t appended_ = 0;    // one more than the word of the last argument
  ExpandError error_;
};

bool Expansion::fail(Code code, std::size_t index, std::string macro, const std::string& what) {
  const std::string subject = macro.empty() ? "" : ": %" + macro + "%";
  error_ = {code, "word " + std::to_string(index + 1) + " of the command template" + subject + " " + what,
            std::move(macro), index + 1};
  return false;
}

const std::string* Expansion::value(std::size_t index, const Part& macro, const Scope& scope) {
  const std::string* found = scope.find(macro);
  if (found == nullptr) {
    fail(Code::missing_value, index, macro.name, "has no value; an empty value is allowed");
    return nullptr;
  }
  const std::size_t bad = found->find_first_of(kForbidden);
  if (bad == std::string::npos) return found;
  const char* name = (*found)[bad] == '\0' ? "NUL" : (*found)[bad] == '\r' ? "CR" : "LF";
  fail(Code::forbidden_byte, index, macro.name,
       std::string("has a value that holds ") + name + ", which is refused");
  return nullptr;
}

std::optional<bool> Expansion::complete(std::size_t first, std::size_t last, const Scope& scope) {
  bool full = true;
  for (std::size_t i = first; i < last; ++i) {
    for (const Part& part : words_[i].parts) {
      if (part.kind != Part::Kind::macro) continue;
      const std::string* found = value(i, part, scope);
      if (found == nullptr) return std::nullopt;
      full = full && !(found->empty() && part.text.empty());
    }
  }
  return full;
}

bool Expansion::append_part(std::size_t index, const Part& part, const Scope& scope, std::string& out) {
  const std::string* bytes = &part.text;
  Fold fold = Fold::none;
  if (part.kind == Part::Kind::macro) {
    const std::string* found = value(index, part, scope);
    if (found == nullptr) return false;
    if (!found->empty()) {
      bytes = found;
      fold = part.fold;
    }
  }
  // Checked before the bytes are copied, so that a huge value takes no memory here.
  if (bytes->size() > options_.argument_bytes_max - std::min(out.size(), options_.argument_bytes_max))
    return fail(Code::limit, index, part.name,
                "makes an argument longer than " + std::to_string(options_.argument_bytes_max) + " bytes");
  if (bytes->size() + out.size() + 1 >
      options_.total_bytes_max - std::min(total_bytes_, options_.total_bytes_max))
    return fail(
        Code::limit, index, part.name,
        "makes the arguments longer than " + std::to_string(options_.total_bytes_max) + " bytes in all");
  const std::size_t start = out.size();
  out += *bytes;
  if (fold != Fold::none)
    std::transform(out.begin() + static_cast<std::ptrdiff_t>(start), out.end(),
                   out.begin() + static_cast<std::ptrdiff_t>(start), [&](char c) { return folded(c, fold); });
  return true;
}

bool Expansion::append(std::size_t index, const Scope& scope) {
  const Word& word = words_[index];
  if (arguments_.size() >= options_.arguments_max)
    return fail(Code::limit, index, "",
                "makes more than " + std::to_string(options_.arguments_max) + " arguments");
  std::string argument;
  const Part* first = nullptr;  // the part of the first byte
  for (const Part& part : word.parts) {
    if (!append_part(index, part, scope, argument)) return false;
    if (first == nullptr && !argument.empty()) first = &part;
  }
  if (word.parts.empty() && total_bytes_ >= options_.total_bytes_max)
    return fail(
        Code::limit, index, "",
        "makes the arguments longer than " + std::to_string(options_.total_bytes_max) + " bytes in all");

  // The check is of the complete argument. In `%user%%detail%` or `%detail%-x`, an empty first value makes
  // another part the first, and the sender of its value would choose an option.
  const bool starts_with_macro = !word.parts.empty() && word.parts.front().kind == Part::Kind::macro;
  const bool behind_its_option = word.option_argument && appended_ == index;
  if (starts_with_macro && !options_ended_ && !behind_its_option && argument.starts_with('-'))
    return fail(Code::leading_dash, index, first->name.empty() ? word.parts.front().name : first->name,
                "starts with '-' here, so the program would read it as an option; refused, unless a word -- "
                "comes before it in the template");
  if (!arguments_.empty() && word.is_literal("--")) options_ended_ = true;
  total_bytes_ += argument.size() + 1;
  arguments_.push_back(std::move(argument));
  appended_ = index + 1;
  return true;
}

// Words [first, last) that are expanded together: one word, or all words of a group.
struct Run {
  std::size_t first;
  std::size_t last;
};

Run run_at(const std::vector<Word>& words, std::size_t first) {
  std::size_t last = first + 1;
  while (words[first].group != 0 && last < words.size() && words[last].group == words[first].group) ++last;
  return {first, last};
}

bool append_run(Expansion& expansion, const std::vector<Word>& words, Run run, const Scope& scope) {
  if (words[run.first].group != 0) {
    const std::optional<bool> complete = expansion.complete(run.first, run.last, scope);
    if (!complete) return false;
    if (!*complete) return true;
  }
  for (std::size_t i = run.first; i < run.last; ++i)
    if (!expansion.append(i, scope)) return false;
  return true;
}

bool expand_runs(Expansion& expansion, const std::vector<Word>& words, const Values& shared,
                 const std::vector<Values>* recipients) {
  for (std::size_t first = 0; first < words.size();) {
    const Run run = run_at(words, first);
    const bool repeated = recipients != nullptr &&
                          std::any_of(words.begin() + static_cast<std::ptrdiff_t>(run.first),
                                      words.begin() + static_cast<std::ptrdiff_t>(run.last),
                                      [](const Word& w) { return w.per_recipient(); });
    if (!repeated) {
      if (!append_run(expansion, words, run, {nullptr, shared})) return false;
    } else {
      if (first == 0 && recipients->size() > 1)
        return expansion.fail(
            Code::recipients, 0, "",
            "names the program by a recipient's value, which several recipients cannot share");
      for (const Values& recipient : *recipients)
        if (!append_run(expansion, words, run, {&recipient, shared})) return false;
    }
    first = run.last;
  }
  return true;
}

}  // namespace

Outcome<Template::Arguments, ExpandError> Template::expand(const Values& values,
                                                           const ExpandOptions& options) const {
  Expansion expansion(words_, options);
  if (!expand_runs(expansion, words_, values, nullptr)) return expansion.error();
  return expansion.take();
}

Outcome<Template::Arguments, ExpandError> Template::expand_all(const Values& shared,
                                                               const std::vector<Values>& recipients,
                                                               const ExpandOptions& options) const {
  if (recipients.empty())
    return ExpandError{ExpandError::Code::recipients,
                       "a command for all recipients needs at least one recipient", "", 0};
  Expansion expansion(words_, options);
  if (!expand_runs(expansion, words_, shared, &recipients)) return expansion.error();
  return expansion.take();
}

}  // namespace twinloft::argv
