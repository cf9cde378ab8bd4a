#include "twinloft/mailbench/corpus.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "twinloft/base/fd.h"
#include "twinloft/mailbench/spool.h"

namespace twinloft::mailbench {

namespace {

constexpr std::size_t kLineMax = 998;  // without CRLF, RFC 5322 section 2.1.1
constexpr std::uint64_t kFileMax = 1u << 30;

// RFC 5322 section 2.2: printable characters except the colon, and a colon.
bool is_field(std::string_view line) {
  std::size_t colon = line.find(':');
  return colon != line.npos && colon > 0 &&
         std::ranges::all_of(line.substr(0, colon), [](unsigned char c) { return c > ' ' && c < 127; });
}

bool names(std::string_view line, std::string_view field) {
  return line.size() > field.size() && line[field.size()] == ':' &&
         std::ranges::equal(line.substr(0, field.size()), field, [](unsigned char a, unsigned char b) {
           return std::tolower(a) == std::tolower(b);
         });
}

// The form that is sent. `size` grows by the bytes before dot stuffing.
void append_line(std::string_view line, bool dot_stuffed, std::string& out, std::uint64_t& size) {
  if (dot_stuffed && line.starts_with('.')) out += '.';
  out.append(line).append("\r\n");
  size += line.size() + 2;
}

// Neither form may be sent: RFC 5321 section 2.3.8, RFC 5322 section 4.
bool has_bad_bytes(std::string_view text) {
  if (text.find('\0') != text.npos) return true;
  for (std::size_t at = 0; (at = text.find('\r', at)) != text.npos; ++at)
    if (at + 1 == text.size() || text[at + 1] != '\n') return true;
  return false;
}

std::string with_lf(std::string_view raw) {
  std::string out(raw);
  std::erase(out, '\r');
  return out;
}

}  // namespace

Result<Corpus> Corpus::load(const std::string& path, bool dot_stuffed) {
  Corpus out(dot_stuffed);
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return fail_errno(errno, "messages of {}", path);
  if (S_ISDIR(about.st_mode)) {
    TL_TRY(out.load_directory(path));
  } else {
    TL_TRY_ASSIGN(std::string text, read_file(path, kFileMax));
    out.take_file(text);
  }
  if (out.messages_.empty()) return fail(Errc::not_found, "{}: no message in it; {}", path, out.summary());
  return out;
}

// In the order of the names, so that a seed always gives the same run.
Status Corpus::load_directory(const std::string& path) {
  std::vector<std::string> files;
  std::error_code error;
  std::filesystem::recursive_directory_iterator at(path, error), end;
  for (; !error && at != end; at.increment(error))
    if (at->is_regular_file(error) && !error) files.push_back(at->path().string());
  if (error) return fail(Errc::io, "messages of {}: {}", path, error.message());
  std::ranges::sort(files);
  for (const std::string& file : files) {
    TL_TRY_ASSIGN(std::string text, read_file(file, kFileMax));
    take_file(text);
  }
  return {};
}

void Corpus::take_file(std::string_view text) {
  if (text.starts_with("From "))
    take_mbox(text);
  else
    take(text);
}

// A line "From " after an empty line begins a message (RFC 4155, appendix A). Quoted lines stay as they are.
void Corpus::take_mbox(std::string_view text) {
  next_line(text);
  std::string_view rest = text;
  bool after_empty = false;
  while (!rest.empty()) {
    const char* line_start = rest.data();
    std::string_view line = next_line(rest);
    if (after_empty && line.starts_with("From ")) {
      take(text.substr(0, static_cast<std::size_t>(line_start - text.data())));
      text = rest;
    }
    after_empty = line.empty();
  }
  take(text);
}

void Corpus::take(std::string_view text) {
  std::string_view first = text;
  if (!is_field(next_line(first))) return void(++without_header_);
  if (has_bad_bytes(text)) return void(++with_bad_bytes_);
  if (bytes_ + text.size() > kBytesMax) return void(++beyond_limit_);
  bytes_ += text.size();

  CorpusMessage out;
  StoredMessage parsed = parse_stored(text);
  for (std::size_t i = 0; i < std::size(kHeadFields); ++i)
    if (kHeadFields[i] != "Message-ID") out.fields[i] = with_lf(parsed.fields[i]);
  out.eight_bit = std::ranges::any_of(text, [](unsigned char c) { return c > 127; });
  bool long_lines = false, left_out = false;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view line = next_line(rest);
    long_lines = long_lines || line.size() > kLineMax;
    if (line.empty()) break;
    bool folded = line.front() == ' ' || line.front() == '\t';
    if (!folded) left_out = names(line, "Message-ID");
    if (!left_out) append_line(line, dot_stuffed_, out.header, out.header_size);
  }
  Hasher128 hasher;
  hasher.reset();
  while (!rest.empty()) {
    std::string_view line = next_line(rest);
    long_lines = long_lines || line.size() > kLineMax;
    append_line(line, dot_stuffed_, out.body, out.body_size);
    hasher.update(as_bytes(line));
    hasher.update(as_bytes("\n"));
  }
  out.digest = hasher.digest();
  long_lines_ += long_lines;
  messages_.push_back(std::move(out));
}

double Corpus::mean_size() const {
  std::uint64_t bytes = 0;
  for (const CorpusMessage& m : messages_) bytes += m.header_size + m.body_size;
  return messages_.empty() ? 0 : static_cast<double>(bytes) / static_cast<double>(messages_.size());
}

std::string Corpus::summary() const {
  std::string out = fmt::format("{} messages, {:.0f} bytes on average", messages_.size(), mean_size());
  auto tell = [&](std::uint64_t count, std::string_view what) {
    if (count > 0) out += fmt::format("; {} {}", count, what);
  };
  tell(without_header_, "files without a header left out");
  tell(with_bad_bytes_, "messages with NUL or a bare CR left out");
  tell(beyond_limit_, "messages beyond 1 GiB in all left out");
  tell(long_lines_, "messages with lines of more than 998 bytes, which a server may break");
  return out;
}

}  // namespace twinloft::mailbench
