#include "twinloft/argv/argv_c.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "twinloft/argv/argv.h"

using twinloft::argv::Diagnostic;
using twinloft::argv::ExpandError;
using twinloft::argv::MacroName;
using twinloft::argv::ParseOptions;
using twinloft::argv::Template;
using twinloft::argv::Values;

struct tl_argv_template {
  Template command;
  std::vector<std::string> warnings;
};

namespace {

template <std::size_t N>
void copy_text(char (&out)[N], const std::string& text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
}

tl_argv_status report(tl_argv_error* error, tl_argv_status status, const char* message) {
  if (error != nullptr) {
    *error = tl_argv_error{};
    error->status = status;
    std::strncpy(error->message, message, sizeof error->message - 1);
    std::strncpy(error->rendered, message, sizeof error->rendered - 1);
  }
  return status;
}

tl_argv_status report(tl_argv_error* error, const Diagnostic& d) {
  if (error != nullptr) {
    *error = tl_argv_error{};
    error->status = TL_ARGV_BAD_TEMPLATE;
    error->line = d.line;
    error->column = d.column;
    copy_text(error->message, d.message);
    copy_text(error->rendered, d.rendered());
  }
  return TL_ARGV_BAD_TEMPLATE;
}

tl_argv_status status_of(ExpandError::Code code) {
  switch (code) {
    case ExpandError::Code::missing_value:
      return TL_ARGV_MISSING_VALUE;
    case ExpandError::Code::forbidden_byte:
      return TL_ARGV_FORBIDDEN_BYTE;
    case ExpandError::Code::leading_dash:
      return TL_ARGV_LEADING_DASH;
    case ExpandError::Code::limit:
      return TL_ARGV_LIMIT;
    case ExpandError::Code::recipients:
      return TL_ARGV_RECIPIENTS;
  }
  return TL_ARGV_BAD_CALL;
}

tl_argv_status report(tl_argv_error* error, const ExpandError& e) {
  const tl_argv_status status = status_of(e.code);
  report(error, status, e.message.c_str());
  if (error != nullptr) error->word = e.word;
  return status;
}

// False: the caller passed a null pointer that is not allowed.
bool to_values(tl_argv_values in, Values& out) {
  if (in.values == nullptr && in.count > 0) return false;
  for (std::size_t i = 0; i < in.count; ++i) {
    const tl_argv_value& v = in.values[i];
    if (v.name == nullptr || (v.value == nullptr && v.length != 0)) return false;
    const std::size_t length = v.length == TL_ARGV_LENGTH ? std::strlen(v.value) : v.length;
    out.insert_or_assign(v.name, length == 0 ? std::string() : std::string(v.value, length));
  }
  return true;
}

// The pointers, then the strings they point to, in one block.
char** to_vector(const Template::Arguments& arguments) {
  std::size_t bytes = (arguments.size() + 1) * sizeof(char*);
  for (const std::string& a : arguments) bytes += a.size() + 1;
  auto** vector = static_cast<char**>(std::malloc(bytes));
  if (vector == nullptr) return nullptr;
  char* at = reinterpret_cast<char*>(vector + arguments.size() + 1);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    vector[i] = at;
    std::memcpy(at, arguments[i].c_str(), arguments[i].size() + 1);
    at += arguments[i].size() + 1;
  }
  vector[arguments.size()] = nullptr;
  return vector;
}

constexpr const char* kNoMemory = "out of memory";
constexpr const char* kNullPointer = "a null pointer was passed where none is allowed";

ParseOptions to_options(const tl_argv_macro* macros, std::size_t count) {
  ParseOptions options;
  if (macros == nullptr) return options;
  options.macros.clear();
  for (std::size_t i = 0; i < count; ++i)
    options.macros.push_back({macros[i].name, macros[i].per_recipient != 0});
  return options;
}

template <class Expand>
tl_argv_status run_expand(const tl_argv_template* command, char*** argv, std::size_t* argc,
                          tl_argv_error* error, Expand expand) {
  if (argv != nullptr) *argv = nullptr;
  if (argc != nullptr) *argc = 0;
  if (command == nullptr || argv == nullptr) return report(error, TL_ARGV_BAD_CALL, kNullPointer);
  try {
    return expand();
  } catch (const std::bad_alloc&) {
    return report(error, TL_ARGV_NO_MEMORY, kNoMemory);
  }
}

template <class Expanded>
tl_argv_status hand_out(const Expanded& expanded, char*** argv, std::size_t* argc, tl_argv_error* error) {
  if (!expanded) return report(error, expanded.error());
  *argv = to_vector(*expanded);
  if (*argv == nullptr) return report(error, TL_ARGV_NO_MEMORY, kNoMemory);
  if (argc != nullptr) *argc = expanded->size();
  return TL_ARGV_OK;
}

}  // namespace

extern "C" {

tl_argv_status tl_argv_parse(const char* text, size_t length, const tl_argv_macro* macros, size_t macro_count,
                             tl_argv_template** out, tl_argv_error* error) {
  if (out != nullptr) *out = nullptr;
  if (text == nullptr || out == nullptr || (macros == nullptr && macro_count > 0))
    return report(error, TL_ARGV_BAD_CALL, kNullPointer);
  for (size_t i = 0; i < macro_count; ++i)
    if (macros[i].name == nullptr) return report(error, TL_ARGV_BAD_CALL, kNullPointer);
  try {
    const std::string_view view(text, length == TL_ARGV_LENGTH ? std::strlen(text) : length);
    auto parsed = Template::parse(view, to_options(macros, macro_count));
    if (!parsed) return report(error, parsed.error());
    std::vector<std::string> warnings;
    for (const Diagnostic& d : parsed->warnings()) warnings.push_back(d.rendered());
    *out = new tl_argv_template{*std::move(parsed), std::move(warnings)};
    return TL_ARGV_OK;
  } catch (const std::bad_alloc&) {
    return report(error, TL_ARGV_NO_MEMORY, kNoMemory);
  }
}

void tl_argv_template_free(tl_argv_template* command) {
  delete command;
}

size_t tl_argv_word_count(const tl_argv_template* command) {
  return command == nullptr ? 0 : command->command.words().size();
}

int tl_argv_uses(const tl_argv_template* command, const char* macro) {
  return command != nullptr && macro != nullptr && command->command.uses(macro) ? 1 : 0;
}

size_t tl_argv_warning_count(const tl_argv_template* command) {
  return command == nullptr ? 0 : command->warnings.size();
}

const char* tl_argv_warning(const tl_argv_template* command, size_t index) {
  if (command == nullptr || index >= command->warnings.size()) return nullptr;
  return command->warnings[index].c_str();
}

tl_argv_status tl_argv_expand(const tl_argv_template* command, tl_argv_values values, char*** argv,
                              size_t* argc, tl_argv_error* error) {
  return run_expand(command, argv, argc, error, [&] {
    Values map;
    if (!to_values(values, map)) return report(error, TL_ARGV_BAD_CALL, kNullPointer);
    return hand_out(command->command.expand(map), argv, argc, error);
  });
}

tl_argv_status tl_argv_expand_all(const tl_argv_template* command, tl_argv_values shared,
                                  const tl_argv_values* recipients, size_t recipient_count, char*** argv,
                                  size_t* argc, tl_argv_error* error) {
  return run_expand(command, argv, argc, error, [&] {
    Values map;
    std::vector<Values> maps(recipients == nullptr ? 0 : recipient_count);
    bool valid = to_values(shared, map) && (recipients != nullptr || recipient_count == 0);
    for (std::size_t i = 0; valid && i < maps.size(); ++i) valid = to_values(recipients[i], maps[i]);
    if (!valid) return report(error, TL_ARGV_BAD_CALL, kNullPointer);
    return hand_out(command->command.expand_all(map, maps), argv, argc, error);
  });
}

void tl_argv_vector_free(char** argv) {
  std::free(argv);
}

}  // extern "C"
