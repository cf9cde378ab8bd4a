#include "twinloft/spool-state/spool_state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "twinloft/base/json.h"

namespace twinloft::spool_state {

namespace {

constexpr std::uint64_t format = 1;
constexpr std::int64_t ns_per_ms = 1'000'000;

Result<std::string> text_of(const json::object& o, const char* name) {
  const json::value* v = o.if_contains(name);
  if (!v || !v->is_string()) return fail(Errc::corrupt, "the member \"{}\" is missing, or is no text", name);
  return std::string(v->get_string());
}

Result<std::uint64_t> number_of(const json::object& o, const char* name) {
  const json::value* v = o.if_contains(name);
  if (auto number = v ? unsigned_of(*v) : std::nullopt) return *number;
  return fail(Errc::corrupt, "the member \"{}\" is missing, or is no number", name);
}

// At most file_bytes_max bytes.
Result<std::string> read_whole(int fd) {
  std::string text(file_bytes_max + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    ssize_t n = ::read(fd, text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read");
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  if (size > file_bytes_max) return fail(Errc::corrupt, "more than {} bytes", file_bytes_max);
  text.resize(size);
  return text;
}

struct flock whole_file(short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Whether another process holds the writer's lock. Takes no lock.
Result<bool> has_writer(int fd) {
  struct flock lock = whole_file(F_RDLCK);
  if (::fcntl(fd, F_OFD_GETLK, &lock) != 0) return fail_errno(errno, "F_OFD_GETLK");
  return lock.l_type == F_WRLCK;
}

// The writer may have replaced the file since it was opened, and released the lock of the old one.
bool is_replaced(int fd, const std::string& path) {
  struct stat opened{}, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         (opened.st_ino != named.st_ino || opened.st_dev != named.st_dev);
}

}  // namespace

std::string encode(const SpoolState& s) {
  json::object o{
      {"format", format},     {"volume", s.volume},
      {"uuid", s.uuid},       {"state", s.state},
      {"role", s.role},       {"reason", s.reason},
      {"since", s.time},      {"since_boottime_ms", s.since.ns / ns_per_ms},
      {"number", s.number},   {"pid", s.pid},
      {"boot_id", s.boot_id},
  };
  return indented_json(o);
}

Result<SpoolState> decode(std::string_view text) {
  TL_TRY_ASSIGN(json::object o, parse_object(text));
  TL_TRY_ASSIGN(std::uint64_t version, number_of(o, "format"));
  if (version != format) return fail(Errc::corrupt, "format {} is not supported", version);
  SpoolState s;
  TL_TRY_ASSIGN(s.volume, text_of(o, "volume"));
  TL_TRY_ASSIGN(s.uuid, text_of(o, "uuid"));
  TL_TRY_ASSIGN(s.state, text_of(o, "state"));
  TL_TRY_ASSIGN(s.role, text_of(o, "role"));
  TL_TRY_ASSIGN(s.reason, text_of(o, "reason"));
  TL_TRY_ASSIGN(s.time, text_of(o, "since"));
  TL_TRY_ASSIGN(std::uint64_t since_ms, number_of(o, "since_boottime_ms"));
  if (since_ms > static_cast<std::uint64_t>(INT64_MAX / ns_per_ms))
    return fail(Errc::corrupt, "\"since_boottime_ms\" is too large");
  s.since.ns = static_cast<std::int64_t>(since_ms) * ns_per_ms;
  TL_TRY_ASSIGN(s.number, number_of(o, "number"));
  TL_TRY_ASSIGN(s.pid, number_of(o, "pid"));
  TL_TRY_ASSIGN(s.boot_id, text_of(o, "boot_id"));
  return s;
}

Result<std::string> this_boot_id() {
  TL_TRY_ASSIGN(std::string id, read_file("/proc/sys/kernel/random/boot_id", 64));
  while (id.ends_with('\n')) id.pop_back();
  return id;
}

// A later writer may have replaced the file.
StateFile::~StateFile() {
  if (current_ && !is_replaced(current_.get(), path_)) (void)::unlink(path_.c_str());
}

// The new file is locked before it gets its name, so a reader finds no file of a living writer without a
// lock.
Status StateFile::write(SpoolState state) {
  if (boot_id_.empty()) {
    TL_TRY_ASSIGN(boot_id_, this_boot_id());
  }
  state.number = number_ + 1;
  state.pid = static_cast<std::uint64_t>(::getpid());
  state.boot_id = boot_id_;
  const std::string fresh = path_ + ".new";
  (void)::unlink(fresh.c_str());
  Fd fd(::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode_));
  if (!fd) return fail_errno(errno, "{}", fresh);
  struct flock lock = whole_file(F_WRLCK);
  if (::fchmod(fd.get(), mode_) != 0 || ::fcntl(fd.get(), F_OFD_SETLK, &lock) != 0)
    return fail_errno(errno, "{}", fresh);
  if (auto written = write_all(fd.get(), as_bytes(encode(state))); !written)
    return fail(written.error().code, "{}: {}", fresh, written.error().message);
  if (::rename(fresh.c_str(), path_.c_str()) != 0) return fail_errno(errno, "{}", path_);
  ++number_;
  current_ = std::move(fd);
  return {};
}

namespace {

Result<std::optional<SpoolState>> state_in(int fd) {
  TL_TRY_ASSIGN(std::string text, read_whole(fd));
  TL_TRY_ASSIGN(SpoolState state, decode(text));
  TL_TRY_ASSIGN(std::string boot, this_boot_id());
  if (state.boot_id != boot) return std::nullopt;
  return state;
}

}  // namespace

Result<std::optional<SpoolState>> read_state(const std::string& path) {
  for (;;) {
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd && errno == ENOENT) return std::nullopt;
    if (!fd) return fail_errno(errno, "{}", path);
    auto alive = has_writer(fd.get());
    if (alive && !*alive && is_replaced(fd.get(), path)) continue;
    if (alive && !*alive) return std::nullopt;
    auto state = alive ? state_in(fd.get()) : std::unexpected(alive.error());
    if (!state) return fail(state.error().code, "{}: {}", path, state.error().message);
    return state;
  }
}

}  // namespace twinloft::spool_state
