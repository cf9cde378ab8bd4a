#include "session.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "twinloft/base/check.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/log.h"

namespace twinloft::repl::fuse {

using State = FuseExport::State;

namespace {
constexpr int requests_per_turn = 64;  // before other descriptors get their turn

// By default, libfuse writes to standard error, and waits for its reader.
[[gnu::format(printf, 2, 0)]] void log_for_libfuse(fuse_log_level level, const char* format,
                                                   va_list arguments) {
  char text[512];
  std::vsnprintf(text, sizeof text, format, arguments);
  std::string_view line(text);
  while (line.ends_with('\n')) line.remove_suffix(1);
  log_line(level <= FUSE_LOG_ERR       ? LogLevel::error
           : level == FUSE_LOG_WARNING ? LogLevel::warning
                                       : LogLevel::debug,
           line);
}

// Closes /dev/fuse, and leaves an open descriptor at the same number.
//
// The file is already unmounted. But fuse_session_unmount() unmounts the path again unless poll() reports
// POLLERR for its descriptor. A process that copied this mount namespace keeps the connection without an
// error. The path may have another program's mount by then. A pipe without a reader always reports POLLERR.
bool close_connection(int connection) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  Fd reader(ends[0]), writer(ends[1]);
  return ::dup3(writer.get(), connection, O_CLOEXEC) == connection;
}
}  // namespace

State::State(ports::Loop& the_loop, ports::BlockTarget& the_target, exports::SideThread& the_side,
             FuseOptions the_options)
    : loop(the_loop),
      target(the_target),
      side(the_side),
      options(std::move(the_options)),
      pool(options.retained_buffer_bytes) {}

State::~State() {
  TL_CHECK_MSG(in_target == 0, "a FUSE export is destroyed with requests at the target");
  unwatch();
  if (session != nullptr) {
    if (close_connection(fuse_session_fd(session))) fuse_session_unmount(session);
    fuse_session_destroy(session);
  }
  std::free(input.mem);
}

Status State::mount() {
  const std::string& path = options.mount_point;
  fuse_set_log_func(log_for_libfuse);
  TL_TRY(prepare_mount_point(path));
  if (::stat(path.c_str(), &underlying) != 0) return fail_errno(errno, "fuse: mount point {}", path);
  // noatime avoids an attribute change for each read. max_read must equal the value of the init operation.
  std::string mount_options = fmt::format("fsname=twinloft,subtype=twinloft,noatime,nosuid,nodev,max_read={}",
                                          ports::io_max_length);
  std::string words[] = {"spool-repl", "-o", mount_options};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, argv);
  session = fuse_session_new(&args, &operations(), sizeof(fuse_lowlevel_ops), this);
  fuse_opt_free_args(&args);
  if (session == nullptr) return fail(Errc::internal, "fuse: libfuse refuses the mount options");
  if (fuse_session_mount(session, path.c_str()) != 0)
    return fail(Errc::unavailable,
                "fuse: {}: mounting failed: the log lines above have the reason (root and /dev/fuse are "
                "needed)",
                path);
  mounted = true;
  TL_TRY_ASSIGN(auto top, topmost_mount(path));
  if (!top) return fail(Errc::unavailable, "fuse: {}: unmounted by another program", path);
  device = top->device;
  int fd = fuse_session_fd(session);
  if (int flags = ::fcntl(fd, F_GETFL); flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return fail_errno(errno, "fuse: /dev/fuse");
  loop.watch(fd, ports::Loop::readable, [this](unsigned) { on_ready(); });
  watching = true;
  return {};
}

void State::unwatch() {
  if (std::exchange(watching, false)) loop.unwatch(fuse_session_fd(session));
}

void State::on_ready() {
  for (int i = 0; i < requests_per_turn; ++i) {
    int rc = fuse_session_receive_buf(session, &input);
    if (rc == -EINTR || rc == -ENOENT) continue;  // ENOENT: the request was withdrawn while it was read
    if (rc == -EAGAIN) return;
    if (rc <= 0) return connection_ended();
    fuse_session_process_buf(session, &input);
    if (fuse_session_exited(session)) return connection_ended();
  }
}

// The file was unmounted, by this process or another program, or the connection was aborted.
void State::connection_ended() {
  unwatch();
  ended = true;
  if (!stopping && options.changed)
    loop.post([changed = options.changed, watched = std::weak_ptr(alive)] {
      if (!watched.expired()) changed();
    });
}

State::Pending& State::take_pending() {
  if (free_pending.empty()) {
    all_pending.push_back(std::make_unique<Pending>());
    free_pending.push_back(all_pending.back().get());
    free_pending.reserve(all_pending.size());
  }
  Pending& p = *free_pending.back();
  free_pending.pop_back();
  return p;
}

void State::submit(fuse_req_t request, ports::IoOp op, std::uint64_t offset, std::uint32_t length,
                   exports::Buffer buffer, std::uint64_t range_left, bool fua) {
  Pending& p = take_pending();
  p.state = this;
  p.request = request;
  p.buffer = std::move(buffer);
  p.range_left = range_left;
  p.io = ports::IoRequest{};
  p.io.op = op;
  p.io.fua = fua;
  p.io.offset = offset;
  p.io.length = length;
  p.io.data = p.buffer.data();
  p.io.owner = &p;
  p.io.done = &State::on_io_done;
  counters.most_in_flight = std::max(counters.most_in_flight, ++in_target);
  target.submit(p.io);
}

void State::on_io_done(ports::IoRequest& io) {
  Pending& p = *static_cast<Pending*>(io.owner);
  State& state = *p.state;
  if (io.error == 0 && p.range_left > 0) {
    io.offset += io.length;
    io.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(p.range_left, 1u << 30));
    p.range_left -= io.length;
    state.target.submit(io);
    return;
  }
  --state.in_target;
  state.answer(p);
  p.buffer.reset();
  state.free_pending.push_back(&p);
}

// libfuse frees the request, also if the kernel no longer needs the answer.
void State::answer(Pending& p) {
  ++counters.requests;
  if (p.io.error != 0) {
    ++counters.errors;
    if (p.io.op == ports::IoOp::write) return refuse_write(p.request, p.io.error);
    fuse_reply_err(p.request, p.io.error);
    return;
  }
  switch (p.io.op) {
    case ports::IoOp::read:
      fuse_reply_buf(p.request, reinterpret_cast<const char*>(p.buffer.data()), p.io.length);
      return;
    case ports::IoOp::write:
      fuse_reply_write(p.request, p.io.length);
      return;
    default:
      fuse_reply_err(p.request, 0);
  }
}

void State::refuse_write(fuse_req_t request, int error) {
  if (!std::exchange(write_lost, true))
    log_error("fuse: {}: a write failed ({}): every later flush fails until the device is attached again",
              options.mount_point, std::strerror(error));
  fuse_reply_err(request, error);
}

void State::fill_attributes(struct stat& out) const {
  out.st_ino = FUSE_ROOT_ID;
  out.st_mode = S_IFREG | 0600;
  out.st_nlink = 1;
  out.st_uid = underlying.st_uid;
  out.st_gid = underlying.st_gid;
  out.st_size = static_cast<off_t>(target.size_bytes());
  out.st_blksize = 4096;
  out.st_blocks = out.st_size / 512;
  out.st_atim = out.st_mtim = out.st_ctim = underlying.st_mtim;
}

void State::on_unmounted(Status outcome) {
  if (outcome) {
    mounted = false;
    unwatch();
  } else {
    stopping = false;
  }
  std::exchange(stopped, nullptr)(std::move(outcome));
}

FuseExport::FuseExport(std::unique_ptr<State> state) : state_(std::move(state)) {}

FuseExport::~FuseExport() {
  if (state_->mounted) abort({});
}

Result<std::unique_ptr<FuseExport>> FuseExport::start(ports::Loop& loop, ports::BlockTarget& target,
                                                      exports::SideThread& side, FuseOptions options) {
  std::unique_ptr<FuseExport> fuse(
      new FuseExport(std::make_unique<State>(loop, target, side, std::move(options))));
  TL_TRY(fuse->state_->mount());
  return fuse;
}

void FuseExport::stop(std::function<void(Status)> stopped) {
  State* state = state_.get();
  TL_CHECK_MSG(!state->stopping, "stop() is under way");
  state->stopping = true;
  state->stopped = std::move(stopped);
  auto outcome = std::make_shared<Status>();
  state->side.run([outcome, path = state->options.mount_point,
                   own = state->device] { *outcome = unmount_own(path, own); },
                  [state, alive = std::weak_ptr(state->alive), outcome] {
                    if (!alive.expired()) state->on_unmounted(std::move(*outcome));
                  });
}

void FuseExport::abort(std::function<void()> afterwards) {
  State& state = *state_;
  if (std::exchange(state.mounted, false)) {
    state.stopping = true;
    abort_mount(state.options.mount_point, state.device, !state.ended);
    state.unwatch();
  }
  if (afterwards) afterwards();
}

unsigned FuseExport::in_flight() const {
  return state_->in_target;
}
const FuseCounters& FuseExport::counters() const {
  return state_->counters;
}
dev_t FuseExport::mounted_device() const {
  return state_->device;
}
bool FuseExport::connected() const {
  return !state_->ended;
}
const std::string& FuseExport::mount_point() const {
  return state_->options.mount_point;
}

}  // namespace twinloft::repl::fuse
