#include "answer.h"

#include <algorithm>
#include <array>

namespace twinloft::repl::control {

namespace {

constexpr std::string_view ok_line = "end ok\n", error_begin = "end error ";

// The codes as text. An unknown code of another release is read as Errc::internal, with its text.
constexpr std::array<std::pair<Errc, std::string_view>, 10> codes{{{Errc::invalid, "invalid"},
                                                                   {Errc::not_found, "not-found"},
                                                                   {Errc::io, "io"},
                                                                   {Errc::corrupt, "corrupt"},
                                                                   {Errc::unavailable, "unavailable"},
                                                                   {Errc::timeout, "timeout"},
                                                                   {Errc::denied, "denied"},
                                                                   {Errc::exhausted, "exhausted"},
                                                                   {Errc::conflict, "conflict"},
                                                                   {Errc::internal, "internal"}}};

}  // namespace

std::string encode_answer(const Result<std::string>& reply) {
  if (reply) {
    std::string out = *reply;
    if (!out.empty() && out.back() != '\n') out += '\n';
    return out += ok_line;
  }
  auto code = std::find_if(codes.begin(), codes.end(),
                           [&](const auto& c) { return c.first == reply.error().code; });
  std::string message = reply.error().message;
  std::replace(message.begin(), message.end(), '\n', ' ');
  return fmt::format("{}{} {}\n", error_begin, code->second, message);
}

Result<std::string> decode_answer(std::string text) {
  std::size_t newline = text.size() < 2 ? text.npos : text.rfind('\n', text.size() - 2);
  std::size_t begin = newline == text.npos ? 0 : newline + 1;
  std::string_view last = std::string_view(text).substr(begin);
  if (last == ok_line) {
    text.resize(begin);
    return text;
  }
  if (!last.starts_with(error_begin) || !last.ends_with('\n'))
    return fail(Errc::io,
                "the connection ended before the answer was complete: it is unknown whether the command was "
                "carried out (see `spool-repl status`)");
  last.remove_prefix(error_begin.size());
  last.remove_suffix(1);
  std::string_view word = last.substr(0, last.find(' '));
  auto code = std::find_if(codes.begin(), codes.end(), [&](const auto& c) { return c.second == word; });
  last.remove_prefix(std::min(last.size(), word.size() + 1));
  return fail(code == codes.end() ? Errc::internal : code->first, "{}", last);
}

}  // namespace twinloft::repl::control
