#include "twinloft/spool-repl/salvage/layout.h"

#include <algorithm>
#include <utility>

namespace twinloft::repl::salvage {

namespace {

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0;;) {
    std::size_t slash = path.find('/', at);
    out.push_back(path.substr(at, slash - at));
    if (slash == std::string_view::npos) return out;
    at = slash + 1;
  }
}

// Whether the text can be a path component.
bool fits_path(std::string_view text) {
  if (text.empty() || text == "." || text == "..") return false;
  return std::none_of(text.begin(), text.end(),
                      [](unsigned char c) { return c == '/' || c < 0x20 || c == 0x7f; });
}

struct Name {
  std::string_view long_name;
  char variable;
};
constexpr Name long_names[] = {{"%user%", 'n'}, {"%domain%", 'd'}, {"%address%", 'u'}};

struct Address {
  std::string local, domain;
};

Address parse_address(std::string_view text) {
  std::size_t at = text.rfind('@');
  if (at == std::string_view::npos) return {std::string(text), ""};
  return {std::string(text.substr(0, at)), std::string(text.substr(at + 1))};
}

}  // namespace

Result<Layout::Part> Layout::parse_part(std::string_view whole, std::string_view part) {
  Part out;
  auto literal = [&](std::string_view text) {
    if (out.empty() || out.back().variable != 0) out.emplace_back();
    out.back().literal += text;
  };
  for (std::size_t at = 0; at < part.size();) {
    std::string_view rest = part.substr(at);
    if (rest[0] != '%' || rest.starts_with("%%")) {
      literal(rest.substr(0, 1));
      at += rest[0] == '%' ? 2 : 1;
      continue;
    }
    auto named = std::find_if(std::begin(long_names), std::end(long_names),
                              [&](const Name& n) { return rest.starts_with(n.long_name); });
    Piece piece;
    std::size_t length = 1;
    if (named != std::end(long_names)) {
      piece.variable = named->variable;
      length = named->long_name.size();
    } else {
      if (rest.size() > 2 && rest[1] >= '1' && rest[1] <= '9')
        piece.width = static_cast<std::size_t>(rest[length++] - '0');
      if (length < rest.size() && std::string_view("und").find(rest[length]) != std::string_view::npos)
        piece.variable = rest[length++];
    }
    if (piece.variable == 0)
      return fail(Errc::invalid,
                  "\"{}\": \"{}\" is not a variable; the variables are %u (address), %n (local part), %d "
                  "(domain), %1n to %9d (their first characters), and %%",
                  whole, rest.substr(0, 8));
    out.push_back(std::move(piece));
    at += length;
  }
  return out;
}

Result<Layout> Layout::parse(std::string_view text) {
  Layout out;
  if (text.starts_with('/'))
    return fail(Errc::invalid, "\"{}\": a path below the spool's root is expected, such as %d/%n/Maildir",
                text);
  bool local_part = false;
  for (std::string_view part : split(text)) {
    if (!fits_path(part)) return fail(Errc::invalid, "\"{}\": \"{}\" cannot be a part of a path", text, part);
    TL_TRY_ASSIGN(Part parsed, parse_part(text, part));
    for (const Piece& p : parsed) local_part |= p.width == 0 && (p.variable == 'u' || p.variable == 'n');
    out.parts_.push_back(std::move(parsed));
  }
  if (!local_part) return fail(Errc::invalid, "\"{}\": names no user: %u or %n is missing", text);
  return out;
}

// Takes the values of a component's variables out of a name. A variable takes as many characters as
// possible, so that "%n@%d" is split at the last "@". user_of() detects a wrong attempt.
bool Layout::match(const Part& part, std::string_view rest, Values& values) {
  for (std::size_t k = 0; k < part.size(); ++k) {
    const Piece& piece = part[k];
    if (piece.variable == 0) {
      if (!rest.starts_with(piece.literal)) return false;
      rest.remove_prefix(piece.literal.size());
      continue;
    }
    std::size_t end = rest.size();
    if (piece.width != 0)
      end = std::min(piece.width, end);
    else if (k + 1 < part.size() && part[k + 1].variable == 0)
      end = rest.rfind(part[k + 1].literal);
    if (end == std::string_view::npos || end == 0) return false;
    std::string_view value = rest.substr(0, end);
    rest.remove_prefix(end);
    if (piece.width == 0)
      (piece.variable == 'u' ? values.address : piece.variable == 'n' ? values.local : values.domain) = value;
  }
  return rest.empty();
}

std::optional<std::string> Layout::user_of(std::string_view path) const {
  std::vector<std::string_view> names = split(path);
  if (names.size() != parts_.size()) return std::nullopt;
  Values values;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!fits_path(names[i]) || !match(parts_[i], names[i], values)) return std::nullopt;
  std::string address = values.address;
  if (address.empty()) address = values.domain.empty() ? values.local : values.local + "@" + values.domain;
  // The path of the user must be the same path: so shortened and repeated variables agree.
  if (path_of(address) != path) return std::nullopt;
  return address;
}

bool Layout::may_lead_to_maildir(std::string_view path) const {
  std::vector<std::string_view> names = split(path);
  if (names.size() > parts_.size()) return false;
  Values values;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!match(parts_[i], names[i], values)) return false;
  return true;
}

std::size_t Layout::user_depth() const {
  std::size_t depth = parts_.size();
  auto has_variable = [](const Part& part) {
    return std::any_of(part.begin(), part.end(), [](const Piece& p) { return p.variable != 0; });
  };
  while (depth > 1 && !has_variable(parts_[depth - 1])) --depth;
  return depth;
}

std::string Layout::path_of(std::string_view address) const {
  Address parsed = parse_address(address);
  std::string out;
  for (const Part& part : parts_) {
    std::string name;
    for (const Piece& piece : part) {
      if (piece.variable == 0) {
        name += piece.literal;
        continue;
      }
      std::string value = piece.variable == 'u'   ? std::string(address)
                          : piece.variable == 'n' ? parsed.local
                                                  : parsed.domain;
      if (!fits_path(value)) return "";
      name += piece.width == 0 ? value : value.substr(0, piece.width);
    }
    if (!fits_path(name)) return "";
    if (!out.empty()) out += '/';
    out += name;
  }
  return out;
}

}  // namespace twinloft::repl::salvage
