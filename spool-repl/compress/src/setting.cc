#include "twinloft/spool-repl/compress/setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace twinloft::repl::compress {

namespace {

struct Levels {
  int first, last, usual;
};
// zstd above 19 needs more memory than frames of 256 KiB have use for.
constexpr Levels levels_of(Codec codec) {
  switch (codec) {
    case Codec::zstd:
      return {1, 19, 3};
    case Codec::zlib:
      return {1, 9, 6};
    case Codec::xz:
      return {1, 9, 6};
    case Codec::none:
    case Codec::lz4:
      break;
  }
  return {0, 0, 0};
}

}  // namespace

const char* name_of(Codec codec) {
  constexpr std::array names{"none", "lz4", "zstd", "zlib", "xz"};
  return names[static_cast<std::size_t>(codec)];
}

int default_level(Codec codec) {
  return levels_of(codec).usual;
}

Result<Setting> parse_setting(std::string_view text) {
  if (text == "adaptive") return Adaptive{};
  std::string_view name = text.substr(0, text.find(':'));
  auto codec = std::find_if(all_codecs.begin(), all_codecs.end(),
                            [&](Codec c) { return name == name_of(c); });
  if (codec == all_codecs.end())
    return fail(Errc::invalid,
                "\"{}\" is no codec: expected \"none\", \"lz4\", \"zstd\", \"zlib\", \"xz\", or \"adaptive\"",
                name);
  if (name.size() == text.size()) return Method{*codec, 0};
  Levels levels = levels_of(*codec);
  if (levels.last == 0) return fail(Errc::invalid, "{} has no levels: remove \":\"", name);
  std::string_view digits = text.substr(name.size() + 1);
  int level = 0;
  auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), level);
  if (ec != std::errc() || end != digits.data() + digits.size() || level < levels.first ||
      level > levels.last)
    return fail(Errc::invalid, "\"{}\" is no level of {}: expected a number from {} to {}", digits, name,
                levels.first, levels.last);
  return Method{*codec, level};
}

std::string text_of(const Setting& setting) {
  const auto* method = std::get_if<Method>(&setting);
  if (!method) return "adaptive";
  return method->level == 0 ? std::string(name_of(method->codec))
                            : fmt::format("{}:{}", name_of(method->codec), method->level);
}

}  // namespace twinloft::repl::compress
