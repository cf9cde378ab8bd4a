// The manifest as text: docs/formats/salvage.md.
#include <algorithm>
#include <functional>
#include <set>

#include "beneath.h"
#include "fields.h"
#include "twinloft/spool-repl/salvage/bundle.h"

namespace twinloft::repl::salvage {

namespace {

constexpr std::string_view first_line = "#twinloft-salvage-bundle 1";
using Fields = std::vector<std::string>;

std::string text_of(FileTime t) {
  return fmt::format("{}.{:09}", t.seconds, t.ns);
}

Sha256 digest_of(std::string_view text) {
  Sha256Hasher hasher;
  hasher.update(as_bytes(text));
  return hasher.digest();
}

std::string end_line(std::size_t messages, std::string_view before) {
  return fmt::format("#end messages={} sha256={}\n", messages, digest_of(before).hex());
}

std::string encode(const Message& m) {
  return encode_fields({"message", std::to_string(m.number), m.kind == Kind::after ? "after" : "uncertain",
                        m.user, m.maildir, m.folder, m.in_new ? "new" : "cur", m.name,
                        std::to_string(m.bytes), m.file.hex(), m.content.hex(), text_of(m.modified),
                        text_of(m.changed), text_of(m.born)});
}

// A path below the spool's root, or a part of it, without "..".
bool leads_below(std::string_view path) {
  for (std::size_t at = 0; at <= path.size();) {
    std::size_t slash = std::min(path.find('/', at), path.size());
    std::string_view part = path.substr(at, slash - at);
    if (part.empty() || part == "." || part == ".." || part.find('\0') != part.npos) return false;
    at = slash + 1;
  }
  return true;
}

bool is_name(std::string_view text) {
  return leads_below(text) && text.find('/') == text.npos;
}

std::optional<FileTime> parse_time(std::string_view text) {
  std::size_t dot = text.find('.');
  if (dot == text.npos || text.size() != dot + 10) return std::nullopt;
  auto seconds = parse_number<std::int64_t>(text.substr(0, dot));
  auto ns = parse_number<std::uint32_t>(text.substr(dot + 1));
  if (!seconds || !ns) return std::nullopt;
  return FileTime{*seconds, *ns};
}

std::optional<Message> decode_message(const Fields& f) {
  if (f.size() != 14) return std::nullopt;
  auto number = parse_number<std::uint64_t>(f[1]);
  auto bytes = parse_number<std::uint64_t>(f[8]);
  auto file = Sha256::parse(f[9]), content = Sha256::parse(f[10]);
  auto modified = parse_time(f[11]), changed = parse_time(f[12]), born = parse_time(f[13]);
  bool good = number && bytes && file && content && modified && changed && born &&
              (f[2] == "after" || f[2] == "uncertain") && (f[6] == "new" || f[6] == "cur") && !f[3].empty() &&
              leads_below(f[4]) && is_name(f[7]) &&
              (f[5].empty() || (is_name(f[5]) && f[5].starts_with('.')));
  if (!good) return std::nullopt;
  return Message{*number,   f[2] == "after" ? Kind::after : Kind::uncertain,
                 f[3],      f[4],
                 f[5],      f[6] == "new",
                 f[7],      *bytes,
                 *file,     *content,
                 *modified, *changed,
                 *born};
}

bool take_parting(const Fields& f, Manifest& out) {
  auto loser = parse_number<std::uint32_t>(f[1]);
  auto lsn = parse_number<std::uint64_t>(f[2]), epoch = parse_number<std::uint64_t>(f[3]);
  auto id = Uuid::parse(f[4]);
  if (!loser || !lsn || !epoch || !id) return false;
  out.parting = {*loser, *lsn, *epoch, *id};
  return true;
}

bool take_line(const Fields& f, Manifest& out) {
  if (f[0] == "message") {
    auto message = decode_message(f);
    if (message) out.messages.push_back(std::move(*message));
    return message.has_value();
  }
  if (f[0] == "layout" && f.size() == 2) {
    out.layouts.push_back(f[1]);
    return true;
  }
  if (f[0] == "problem" && f.size() == 3) {
    out.problems.push_back({f[1], f[2]});
    return true;
  }
  if (f[0] == "parting" && f.size() == 5) return take_parting(f, out);
  if (f[0] == "window" && f.size() == 2) {
    auto seconds = parse_number<std::uint64_t>(f[1]);
    out.window_s = seconds.value_or(0);
    return seconds.has_value();
  }
  if (f[0] != "volume" || f.size() != 2) return false;
  auto volume = Uuid::parse(f[1]);
  if (volume) out.volume = *volume;
  return volume.has_value();
}

}  // namespace

std::string encode_manifest(const Manifest& m) {
  std::string out = std::string(first_line) + "\n";
  auto line = [&](const Fields& fields) { out += encode_fields(fields) + "\n"; };
  line({"volume", m.volume.text()});
  line({"parting", std::to_string(m.parting.loser), std::to_string(m.parting.lsn),
        std::to_string(m.parting.epoch), m.parting.epoch_id.text()});
  line({"window", std::to_string(m.window_s)});
  for (const std::string& layout : m.layouts) line({"layout", layout});
  for (const Message& message : m.messages) out += encode(message) + "\n";
  for (const ExtractProblem& p : m.problems) line({"problem", p.path, p.what});
  return out + end_line(m.messages.size(), out);
}

Result<Manifest> decode_manifest(std::string_view text) {
  constexpr const char* again = "extract the bundle again, or copy it again";
  if (!text.starts_with("#twinloft-salvage-bundle "))
    return fail(Errc::corrupt, "this is not a manifest of a salvage bundle");
  if (std::string_view first = text.substr(0, text.find('\n')); first != first_line)
    return fail(Errc::invalid,
                "\"{}\": a bundle of another version of spool-repl; this release reads version 1",
                printable(first.substr(0, 60)));
  std::size_t end = text.rfind("\n#end ");
  if (end == text.npos) return fail(Errc::corrupt, "the manifest has no end: {}", again);
  std::string_view before = text.substr(0, end + 1);
  Manifest out;
  std::set<std::uint64_t> numbers;
  std::size_t number = 2;
  for (std::size_t at = first_line.size() + 1; at < before.size(); ++number) {
    std::size_t lf = before.find('\n', at);
    auto fields = decode_fields(before.substr(at, lf - at));
    std::size_t known = out.messages.size();
    if (!fields || !take_line(*fields, out))
      return fail(Errc::corrupt, "line {} of the manifest is damaged: {}", number, again);
    if (out.messages.size() > known && !numbers.insert(out.messages.back().number).second)
      return fail(Errc::corrupt, "line {} of the manifest names message {} again: {}", number,
                  out.messages.back().number, again);
    at = lf + 1;
  }
  if (text.substr(end + 1) != end_line(out.messages.size(), before))
    return fail(Errc::corrupt, "the manifest does not match its checksum: {}", again);
  return out;
}

}  // namespace twinloft::repl::salvage
