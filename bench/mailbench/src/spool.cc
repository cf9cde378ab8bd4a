#include "twinloft/mailbench/spool.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>

#include "twinloft/mailbench/account.h"
#include "twinloft/mailbench/message.h"

namespace twinloft::mailbench {

std::string_view next_line(std::string_view& rest) {
  std::size_t lf = rest.find('\n');
  std::string_view line = rest.substr(0, lf);
  rest.remove_prefix(lf == rest.npos ? rest.size() : lf + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

namespace {

enum class Role { plain, messages, temporary };

struct Listing {
  std::vector<std::pair<ino_t, std::string>> files;
  std::vector<std::string> directories;
};

Result<Listing> list_directory(const std::string& path) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), &::closedir);
  if (!dir) return fail_errno(errno, "spool directory {}", path);
  Listing out;
  for (;;) {
    errno = 0;
    dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) break;
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    unsigned char type = entry->d_type;
    if (type == DT_UNKNOWN) {
      struct stat st{};
      if (::fstatat(::dirfd(dir.get()), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return fail_errno(errno, "spool file {}/{}", path, name);
      type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_LNK;
    }
    if (type == DT_DIR)
      out.directories.push_back(std::move(name));
    else if (type == DT_REG)
      out.files.emplace_back(entry->d_ino, std::move(name));
  }
  if (errno != 0) return fail_errno(errno, "spool directory {}", path);
  return out;
}

Role role_of(const std::string& name, const std::vector<std::string>& siblings) {
  auto has = [&](std::string_view wanted) { return std::ranges::find(siblings, wanted) != siblings.end(); };
  if (!has("tmp") || !(has("new") || has("cur"))) return Role::plain;
  if (name == "new" || name == "cur") return Role::messages;
  return name == "tmp" ? Role::temporary : Role::plain;
}

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string_view trimmed(std::string_view text) {
  auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// The first field of each name counts. Later fields are older, or forged.
void take_field(std::string_view name, std::string_view raw, StoredMessage& out) {
  if (raw.starts_with(' ')) raw.remove_prefix(1);
  auto take = [&](std::string_view wanted, std::string_view& at, std::string_view value) {
    if (at.data() == nullptr && same_name(name, wanted)) at = value;
  };
  take("X-Mailbench-Id", out.id, trimmed(raw));
  take("X-Mailbench-Digest", out.digest, trimmed(raw));
  take("X-Mailbench-Head", out.head, trimmed(raw));
  take("Delivered-To", out.delivered_to, trimmed(raw));
  for (std::size_t i = 0; i < std::size(kHeadFields); ++i) take(kHeadFields[i], out.fields[i], raw);
}

std::string without_cr(std::string_view text) {
  std::string out(text);
  for (std::size_t at = 0; (at = out.find("\r\n", at)) != out.npos;) out.erase(at, 1);
  return out;
}

}  // namespace

Result<SpoolFiles> walk_spool(const std::string& root) {
  SpoolFiles out;
  struct Pending {
    std::string path;  // relative
    Role role;
  };
  std::vector<Pending> stack{{"", Role::plain}};
  while (!stack.empty()) {
    Pending here = std::move(stack.back());
    stack.pop_back();
    TL_TRY_ASSIGN(Listing listing, list_directory(here.path.empty() ? root : root + "/" + here.path));
    for (const std::string& name : listing.directories)
      stack.push_back(
          {here.path.empty() ? name : here.path + "/" + name, role_of(name, listing.directories)});
    if (here.role == Role::temporary) out.left_in_tmp += listing.files.size();
    if (here.role != Role::messages) continue;
    auto index = static_cast<std::uint32_t>(out.directories.size());
    out.directories.push_back(here.path);
    std::ranges::sort(listing.files);
    for (auto& [inode, name] : listing.files) out.files.push_back({index, std::move(name)});
  }
  return out;
}

StoredMessage parse_stored(std::string_view text) {
  StoredMessage out;
  std::string_view rest = text;
  std::string_view name;
  const char* value = nullptr;  // of the present field, which ends before a line without a leading
                                // blank
  while (!rest.empty()) {
    const char* line_start = rest.data();
    std::string_view line = next_line(rest);
    if (!line.empty() && (line.front() == ' ' || line.front() == '\t')) continue;
    if (value != nullptr) {
      std::string_view raw(value, static_cast<std::size_t>(line_start - value));
      if (raw.ends_with('\n')) raw.remove_suffix(1);
      if (raw.ends_with('\r')) raw.remove_suffix(1);
      take_field(name, raw, out);
      value = nullptr;
    }
    if (line.empty()) {
      out.body = rest;
      return out;
    }
    std::size_t colon = line.find(':');
    if (colon == line.npos) continue;  // an mbox "From " line, or a malformed line
    name = trimmed(line.substr(0, colon));
    value = line.data() + colon + 1;
  }
  // A file that ends within its header: complete fields count, and the body is empty.
  if (value != nullptr)
    take_field(name, {value, static_cast<std::size_t>(text.data() + text.size() - value)}, out);
  return out;
}

std::string find_damage(const StoredMessage& message, const Hash128& expected, bool check_head,
                        Hasher128& hasher) {
  auto digest = parse_digest(message.digest);
  if (!digest || *digest != expected) return "its X-Mailbench-Digest is not the account's";
  Hash128 found = digest_of_body(message.body, hasher);
  if (found != expected)
    return fmt::format("its body ({} bytes) has the digest {}, not {}", message.body.size(), found.hex(),
                       expected.hex());
  if (!check_head) return {};
  auto head_digest = parse_digest(message.head);
  HeadDigest head(hasher);
  for (std::size_t i = 0; i < std::size(kHeadFields); ++i)
    head.add(kHeadFields[i], without_cr(message.fields[i]));
  if (!head_digest || head.digest() != *head_digest)
    return "its From, To, Date, Message-ID or Subject was changed";
  return {};
}

namespace {

// The letters of lmtpd's macros.
std::string with_letters(std::string_view format) {
  constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"%name%", "%u"}, {"%user%", "%n"}, {"%domain%", "%d"}};
  std::string out;
  while (!format.empty()) {
    auto named = std::ranges::find_if(names, [&](const auto& n) { return format.starts_with(n.first); });
    if (named != std::end(names)) {
      out += named->second;
      format.remove_prefix(named->first.size());
      continue;
    }
    std::size_t plain = format.starts_with("%%") ? 2 : 1;
    out += format.substr(0, plain);
    format.remove_prefix(plain);
  }
  return out;
}

}  // namespace

Status check_address_format(std::string_view what, std::string_view given) {
  const std::string format = with_letters(given);
  bool tells = false;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') continue;
    char c = ++i < format.size() ? format[i] : '\0';
    if (c != 'u' && c != 'n' && c != 'd' && c != '%')
      return fail(Errc::invalid,
                  "{} format '{}': known are %u or %name% (the address), %n or %user% (the local part), "
                  "%d or %domain%, and %%",
                  what, given);
    tells = tells || c == 'u' || c == 'n';
  }
  if (!tells)
    return fail(Errc::invalid,
                "{} format '{}' does not tell users apart: it needs %u (%name%) or %n (%user%)", what, given);
  return {};
}

std::string address_by_format(std::string_view given, std::string_view address) {
  const std::string format = with_letters(given);
  std::size_t at = address.rfind('@');
  std::string_view domain = at == address.npos ? "" : address.substr(at + 1);
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    switch (format[++i]) {
      case 'u':
        out += address;
        break;
      case 'n':
        out += address.substr(0, at);
        break;
      case 'd':
        out += domain;
        break;
      default:
        out += '%';
    }
  }
  return out;
}

Status DirectoryMap::check(std::string_view format) {
  return check_address_format("Maildir", format);
}

Status DirectoryMap::add(std::string_view format, std::string_view recipient, std::uint32_t index) {
  std::string path = address_by_format(format, recipient);
  while (path.starts_with('/')) path.erase(0, 1);
  while (path.ends_with('/')) path.pop_back();
  auto [owner, is_new] = owners_.emplace(path, index);
  if (!is_new && owner->second != index)
    return fail(Errc::conflict,
                "Maildir format '{}' gives {} the directory '{}', which is another recipient's", format,
                recipient, path);
  return {};
}

std::uint32_t DirectoryMap::find(std::string_view directory) const {
  for (;;) {
    if (auto it = owners_.find(std::string(directory)); it != owners_.end()) return it->second;
    std::size_t slash = directory.rfind('/');
    if (slash == directory.npos) return none;
    directory = directory.substr(0, slash);
  }
}

}  // namespace twinloft::mailbench
