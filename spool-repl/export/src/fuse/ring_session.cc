#include "ring_session.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "twinloft/base/check.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/log.h"

namespace twinloft::repl::fuse {

using State = RingExport::State;

namespace {

constexpr unsigned completions_per_turn = 256;  // before other descriptors get their turn
constexpr unsigned messages_per_turn = 64;
constexpr std::size_t page = 4096;
constexpr std::chrono::milliseconds commit_again_after{10};
constexpr std::chrono::milliseconds submit_again_after{1};
constexpr unsigned submits_max = 1000;
constexpr int first_request_ms = 1000;
constexpr unsigned entries_in_total = 128, entries_of_queue_min = 4, entries_of_queue_max = 64;
constexpr std::chrono::milliseconds wait_slice{20};
constexpr unsigned wait_slices = 100;

template <class Structure>
Structure structure_at(const std::byte* bytes) {
  Structure out;
  std::memcpy(&out, bytes, sizeof out);
  return out;
}

}  // namespace

unsigned ring_entries_per_queue(unsigned queues) {
  return std::clamp(entries_in_total / std::max(queues, 1u), entries_of_queue_min, entries_of_queue_max);
}

Status ring_is_switched_on() {
  auto value = read_file(ring_parameter, 64);
  if (!value) return fail(Errc::unavailable, "this kernel has no FUSE over io_uring (Linux 6.14)");
  if (value->starts_with('Y')) return {};
  return fail(Errc::unavailable, "FUSE over io_uring is switched off: `echo Y > {}` switches it on",
              ring_parameter);
}

State::State(ports::Loop& the_loop, ports::BlockTarget& the_target, FuseOptions the_options,
             std::unique_ptr<RingKernel> the_kernel)
    : loop(the_loop),
      target(the_target),
      options(std::move(the_options)),
      kernel(std::move(the_kernel)),
      pool(0),
      message(ring_io_bytes_max + page),
      ender(std::make_unique<exports::SideThread>(the_loop)) {
  file.max_bytes = ring_io_bytes_max;
  file.size_bytes = target.size_bytes();
}

State::~State() {
  TL_CHECK_MSG(in_target == 0, "a FUSE export is destroyed with requests at the target");
  unwatch();
  if (timer != 0) loop.cancel(timer);
  if (submit_timer != 0) loop.cancel(submit_timer);
  bool returned = await_entries();
  ender.reset();
  if (!returned) returned = await_entries();
  if (!returned)
    log_error("fuse: {}: the kernel has not returned {} entries of the ring; their memory is kept",
              options.mount_point, at_kernel());
  kernel.reset();
  // The kernel may still copy a request into an entry that it has not returned.
  if (memory != nullptr && returned) ::munmap(memory, memory_bytes);
}

Status State::mount() {
  const std::string& path = options.mount_point;
  TL_TRY(make_entries());
  TL_TRY(kernel->mount(path, ring_io_bytes_max, file.underlying));
  mounted = true;
  TL_TRY(greet());
  TL_TRY(register_entries());
  watch();
  return {};
}

// The kernel has queued FUSE_INIT before mount(2) returned.
Status State::greet() {
  pollfd first{kernel->connection_fd(), POLLIN, 0};
  if (::poll(&first, 1, first_request_ms) <= 0)
    return fail(Errc::unavailable, "fuse: {}: the kernel sends no first request", options.mount_point);
  ssize_t got = kernel->read(message);
  if (got < static_cast<ssize_t>(sizeof(fuse_in_header)))
    return fail(Errc::unavailable, "fuse: {}: the kernel's first request cannot be read: {}",
                options.mount_point, std::strerror(got < 0 ? static_cast<int>(-got) : EPROTO));
  auto header = structure_at<fuse_in_header>(message.data());
  auto arguments = std::span<const std::byte>(message).first(static_cast<std::size_t>(got));
  arguments = arguments.subspan(sizeof header);
  auto reply = header.opcode == FUSE_INIT
                   ? answer_init(arguments, {ring_io_bytes_max, options.max_background})
                   : std::unexpected(EPROTO);
  if (!reply) {
    answer_direct(header.unique, reply.error(), {});
    return fail(Errc::unavailable, "fuse: {}: the kernel offers no ring: {}", options.mount_point,
                std::strerror(reply.error()));
  }
  answer_direct(header.unique, 0, std::as_bytes(std::span(&*reply, 1)));
  return {};
}

Status State::make_entries() {
  TL_TRY_ASSIGN(unsigned queues, kernel->queues());
  if (queues == 0 || queues > ring_queues_max)
    return fail(Errc::unavailable, "fuse: a ring for {} processors would take too much memory (at most {})",
                queues, ring_queues_max);
  std::size_t count = std::size_t{queues} * ring_entries_per_queue(queues);
  std::size_t each = page + ring_io_bytes_max;
  TL_TRY(kernel->open_ring(static_cast<unsigned>(count)));
  memory_bytes = count * each;
  void* made = ::mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (made == MAP_FAILED) return fail_errno(errno, "fuse: memory of the ring");
  memory = static_cast<std::byte*>(made);
  for (std::size_t i = 0; i < count; ++i) {
    Entry& entry = entries.emplace_back();
    entry.state = this;
    entry.tag = i;
    entry.queue = static_cast<unsigned>(i % queues);
    entry.header = reinterpret_cast<uapi::RequestHeader*>(memory + i * each);
    entry.payload = memory + i * each + page;
    entry.buffers[0] = {entry.header, sizeof(uapi::RequestHeader)};
    entry.buffers[1] = {entry.payload, ring_io_bytes_max};
  }
  return {};
}

// The kernel holds every request back until each queue has an entry. So a refused entry is not tried again:
// the caller ends the mount.
Status State::register_entries() {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = entries[i];
    entry.flow.give(uapi::command_register);
    uapi::CommandArea area{};
    area.qid = static_cast<std::uint16_t>(entry.queue);
    kernel->push(uapi::command_register, i, area, entry.buffers);
  }
  int outcome = -EAGAIN;
  for (unsigned i = 0; i < submits_max && (outcome == -EAGAIN || outcome == -EINTR); ++i)
    outcome = kernel->submit();
  if (outcome != 0)
    return fail(Errc::unavailable, "fuse: {}: io_uring refuses the ring's entries: {}", options.mount_point,
                std::strerror(-outcome));
  std::array<RingCompletion, 64> done;
  int refused = 0;
  while (std::size_t n = kernel->reap(done))
    for (std::size_t i = 0; i < n; ++i) {
      if (done[i].result == 0) {
        on_completion(done[i]);
        continue;
      }
      (void)entries.at(done[i].tag).flow.complete(done[i].result);
      if (refused == 0) refused = -done[i].result;
    }
  if (refused == 0) return {};
  return fail(Errc::unavailable, "fuse: {}: the kernel refuses an entry of the ring: {}", options.mount_point,
              std::strerror(refused));
}

void State::watch() {
  loop.watch(kernel->connection_fd(), ports::Loop::readable, [this](unsigned) { on_connection(); });
  loop.watch(kernel->ring_fd(), ports::Loop::readable, [this](unsigned) { on_ring(); });
  watching = true;
  submit();
}

void State::unwatch() {
  if (!std::exchange(watching, false)) return;
  if (!ended) loop.unwatch(kernel->connection_fd());
  loop.unwatch(kernel->ring_fd());
}

void State::on_ring() {
  std::array<RingCompletion, 64> done;
  std::size_t total = 0;
  while (total < completions_per_turn) {
    std::size_t n = kernel->reap(done);
    if (n == 0) break;
    for (std::size_t i = 0; i < n; ++i) on_completion(done[i]);
    total += n;
  }
  submit();
}

void State::on_completion(const RingCompletion& done) {
  TL_CHECK_MSG(done.tag < entries.size(), "fuse: a completion of no entry");
  Entry& entry = entries[done.tag];
  switch (entry.flow.complete(done.result)) {
    case EntryFlow::Next::serve:
      return ended ? entry.flow.drop() : serve(entry);
    case EntryFlow::Next::again:
      if (timer == 0) timer = loop.after(commit_again_after, [this] { commit_again(); });
      return;
    case EntryFlow::Next::ended:
      return;  // /dev/fuse reports it too
    case EntryFlow::Next::broken:
      return break_connection(
          fmt::format("the kernel refuses an entry of the ring: {}", std::strerror(-done.result)));
  }
}

void State::serve(Entry& entry) {
  auto header = structure_at<fuse_in_header>(entry.header->in_out);
  entry.unique = header.unique;
  entry.commit_id = entry.header->entry.commit_id;
  RequestBody body{header.opcode, entry.header->op_in, entry.header->entry.payload_sz};
  file.size_bytes = target.size_bytes();
  Decision wanted = decide(file, body, std::span(entry.payload, reply_bytes_max));
  if (wanted.kind == Decision::Kind::target)
    return submit_io(entry, wanted, entry.payload, [](ports::IoRequest& io) {
      auto& done = *static_cast<Entry*>(static_cast<Request*>(io.owner));
      State& state = *done.state;
      if (state.continues(done)) return;
      state.count(io);
      std::size_t bytes = 0;
      if (io.error == 0 && io.op == ports::IoOp::read) bytes = io.length;
      if (io.error == 0 && io.op == ports::IoOp::write)
        bytes = encode_written(io.length, std::span(done.payload, reply_bytes_max));
      state.answer(done, io.error, bytes);
    });
  ++counters.requests;
  // Without an answer, the kernel would never get the entry back.
  answer(entry, wanted.kind == Decision::Kind::silence ? ENOSYS : wanted.error, wanted.reply_bytes);
  if (wanted.released) tell_changed();
}

void State::answer(Entry& entry, int error, std::size_t bytes) {
  fuse_out_header out{};
  out.len = static_cast<std::uint32_t>(sizeof out + bytes);
  out.error = -error;
  out.unique = entry.unique;
  std::memcpy(entry.header->in_out, &out, sizeof out);
  entry.header->entry.payload_sz = error == 0 ? static_cast<std::uint32_t>(bytes) : 0;
  commit(entry);
}

void State::commit(Entry& entry) {
  if (ended) return entry.flow.drop();
  entry.flow.give(uapi::command_commit_and_fetch);
  uapi::CommandArea area{};
  area.commit_id = entry.commit_id;
  area.qid = static_cast<std::uint16_t>(entry.queue);
  kernel->push(uapi::command_commit_and_fetch, entry.tag, area, entry.buffers);
  to_submit = true;
  wants_flush();
}

void State::commit_again() {
  timer = 0;
  for (Entry& entry : entries)
    if (entry.flow.place() == EntryFlow::Place::waiting) commit(entry);
  submit();
}

void State::submit_io(Request& request, const Decision& wanted, std::byte* data,
                      void (*done)(ports::IoRequest&)) {
  request.range_left = wanted.range_left;
  request.io = ports::IoRequest{};
  request.io.op = wanted.op;
  request.io.fua = wanted.fua;
  request.io.offset = wanted.offset;
  request.io.length = wanted.length;
  request.io.data = data;
  request.io.owner = &request;
  request.io.done = done;
  counters.most_in_flight = std::max(counters.most_in_flight, ++in_target);
  target.submit(request.io);
}

bool State::continues(Request& request) {
  ports::IoRequest& io = request.io;
  if (io.error != 0 || request.range_left == 0) return false;
  io.offset += io.length;
  io.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(request.range_left, range_piece_bytes));
  request.range_left -= io.length;
  target.submit(io);
  return true;
}

void State::count(const ports::IoRequest& io) {
  --in_target;
  ++counters.requests;
  if (io.error == 0) return;
  ++counters.errors;
  if (io.op == ports::IoOp::write) note_lost_write(io.error);
}

// The kernel splits a large write into requests, and acknowledges a partial write of a loop device as
// complete.
void State::note_lost_write(int error) {
  if (std::exchange(file.write_lost, true)) return;
  log_error("fuse: {}: a write failed ({}): every later flush fails until the device is attached again",
            options.mount_point, std::strerror(error));
}

void State::on_connection() {
  for (unsigned i = 0; i < messages_per_turn && !ended; ++i) {
    ssize_t got = kernel->read(message);
    if (got == -EINTR || got == -ENOENT) continue;  // ENOENT: the request was withdrawn while it was read
    if (got == -EAGAIN) return;
    if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) return connection_ended();
    serve_direct(std::span<const std::byte>(message).first(static_cast<std::size_t>(got)));
  }
}

// The kernel sends few requests by /dev/fuse once the ring is ready: forgotten files and interrupts.
void State::serve_direct(std::span<const std::byte> text) {
  auto header = structure_at<fuse_in_header>(text.data());
  RequestBody body{header.opcode, text.subspan(sizeof header), 0};
  std::span<const std::byte> data;
  if (header.opcode == FUSE_WRITE && body.arguments.size() >= sizeof(fuse_write_in)) {
    data = body.arguments.subspan(sizeof(fuse_write_in));
    body.payload_bytes = data.size();
  }
  std::array<std::byte, reply_bytes_max> reply{};
  file.size_bytes = target.size_bytes();
  Decision wanted = decide(file, body, reply);
  if (wanted.kind == Decision::Kind::silence) return;
  if (wanted.kind == Decision::Kind::answer) {
    ++counters.requests;
    answer_direct(header.unique, wanted.error, std::span(reply).first(wanted.reply_bytes));
    if (wanted.released) tell_changed();
    return;
  }
  auto request = std::make_unique<Direct>();
  request->state = this;
  request->unique = header.unique;
  if (wanted.op == ports::IoOp::read || wanted.op == ports::IoOp::write) {
    request->buffer = pool.take(wanted.length);
    if (!request->buffer) {
      if (wanted.op == ports::IoOp::write) note_lost_write(ENOMEM);
      return answer_direct(header.unique, ENOMEM, {});
    }
  }
  if (wanted.op == ports::IoOp::write) std::memcpy(request->buffer.data(), data.data(), wanted.length);
  Direct& held = *direct.emplace_back(std::move(request));
  submit_io(held, wanted, held.buffer.data(), [](ports::IoRequest& io) {
    auto& done = *static_cast<Direct*>(static_cast<Request*>(io.owner));
    State& state = *done.state;
    if (state.continues(done)) return;
    state.count(io);
    std::array<std::byte, reply_bytes_max> written{};
    std::span<const std::byte> body_out;
    if (io.op == ports::IoOp::read) body_out = std::span(done.buffer.data(), io.length);
    if (io.op == ports::IoOp::write) body_out = std::span(written).first(encode_written(io.length, written));
    state.answer_direct(done.unique, io.error, io.error == 0 ? body_out : std::span<const std::byte>{});
    std::erase_if(state.direct, [&](const auto& one) { return one.get() == &done; });
  });
}

// An error means that the kernel no longer needs the answer.
void State::answer_direct(std::uint64_t unique, int error, std::span<const std::byte> reply) {
  fuse_out_header out{};
  out.len = static_cast<std::uint32_t>(sizeof out + reply.size());
  out.error = -error;
  out.unique = unique;
  iovec parts[2] = {{&out, sizeof out}, {const_cast<std::byte*>(reply.data()), reply.size()}};
  (void)kernel->write(std::span<const iovec>(parts, reply.empty() ? 1 : 2));
}

void State::wants_flush() {
  if ((options.owner_flushes && mounted) || std::exchange(flush_posted, true)) return;
  loop.post([this, watched = std::weak_ptr(alive)] {
    if (watched.expired()) return;
    flush_posted = false;
    submit();
  });
}

void State::submit() {
  if (!to_submit) return;
  to_submit = false;
  int outcome = kernel->submit();
  if (outcome == 0) {
    failed_submits = 0;
    return;
  }
  to_submit = true;
  if (++failed_submits == submits_max)
    break_connection(fmt::format("io_uring refuses replies: {}", std::strerror(-outcome)));
  if (failed_submits >= submits_max || submit_timer != 0) return;
  submit_timer = loop.after(submit_again_after, [this] {
    submit_timer = 0;
    submit();
  });
}

// The file was unmounted, by this process or another program, or the connection was aborted.
void State::connection_ended() {
  if (ended) return;
  if (watching) loop.unwatch(kernel->connection_fd());
  ended = true;
  for (Entry& entry : entries)
    if (entry.flow.place() == EntryFlow::Place::waiting) entry.flow.drop();
  tell_changed();
}

// The request would never be answered. Without the connection, all requests fail.
void State::break_connection(const std::string& why) {
  if (ended || !mounted) return;
  log_error("fuse: {}: the connection is ended: {}", options.mount_point, why);
  ender->run([this] { kernel->abort(options.mount_point, true); }, [] {});
}

void State::end_mount(std::function<void()> afterwards) {
  bool was_mounted = std::exchange(mounted, false);
  stopping = true;
  ender->run(
      [this, was_mounted, connected = !ended, afterwards = std::move(afterwards)] {
        if (was_mounted) kernel->abort(options.mount_point, connected);
        if (afterwards) afterwards();
      },
      [] {});
}

void State::tell_changed() {
  if (!options.changed || stopping) return;
  loop.post([changed = options.changed, watched = std::weak_ptr(alive)] {
    if (!watched.expired()) changed();
  });
}

void State::on_unmounted(Status outcome) {
  if (outcome)
    mounted = false;
  else
    stopping = false;
  std::exchange(stopped, nullptr)(std::move(outcome));
}

unsigned State::at_kernel() const {
  return static_cast<unsigned>(std::count_if(entries.begin(), entries.end(), [](const Entry& entry) {
    return entry.flow.place() == EntryFlow::Place::kernel;
  }));
}

bool State::connection_lives() const {
  if (ended || at_kernel() == 0) return false;
  pollfd state{kernel->connection_fd(), POLLIN, 0};
  return ::poll(&state, 1, 0) >= 0 && (state.revents & (POLLERR | POLLHUP)) == 0;
}

bool State::await_entries() {
  std::array<RingCompletion, 64> done;
  ended = true;  // no more replies
  for (unsigned i = 0; i < wait_slices && at_kernel() > 0; ++i) {
    if (to_submit) to_submit = kernel->submit() != 0;
    while (std::size_t n = kernel->reap(done))
      for (std::size_t k = 0; k < n; ++k) {
        EntryFlow& flow = entries.at(done[k].tag).flow;
        if (flow.complete(done[k].result) != EntryFlow::Next::broken &&
            flow.place() != EntryFlow::Place::gone)
          flow.drop();
      }
    if (at_kernel() > 0) kernel->wait(wait_slice);
  }
  return at_kernel() == 0;
}

RingExport::RingExport(std::unique_ptr<State> state) : state_(std::move(state)) {}

RingExport::~RingExport() {
  State& state = *state_;
  if (state.counters.requests > 0)
    log_info("fuse: {}: {} requests were answered by the ring, at most {} at one time",
             state.options.mount_point, state.counters.requests, state.counters.most_in_flight);
  if (state.mounted)
    state.end_mount({});
  else if (state.connection_lives())
    // After stop(): another process has copied this mount namespace, and holds the connection.
    state.ender->run([&state] { state.kernel->abort(state.options.mount_point, true); }, [] {});
}

Result<std::unique_ptr<RingExport>> RingExport::start(ports::Loop& loop, ports::BlockTarget& target,
                                                      FuseOptions options,
                                                      std::unique_ptr<RingKernel> kernel) {
  std::unique_ptr<RingExport> ring(
      new RingExport(std::make_unique<State>(loop, target, std::move(options), std::move(kernel))));
  TL_TRY(ring->state_->mount());
  return ring;
}

void RingExport::stop(std::function<void(Status)> stopped) {
  State* state = state_.get();
  TL_CHECK_MSG(!state->stopping, "stop() is under way");
  state->stopping = true;
  state->stopped = std::move(stopped);
  auto outcome = std::make_shared<Status>();
  state->ender->run([state, outcome] { *outcome = state->kernel->unmount(state->options.mount_point); },
                    [state, alive = std::weak_ptr(state->alive), outcome] {
                      if (!alive.expired()) state->on_unmounted(std::move(*outcome));
                    });
}

void RingExport::abort(std::function<void()> afterwards) {
  state_->end_mount(std::move(afterwards));
}

void RingExport::flush() {
  state_->submit();
}

unsigned RingExport::in_flight() const {
  return state_->in_target;
}
const FuseCounters& RingExport::counters() const {
  return state_->counters;
}
dev_t RingExport::mounted_device() const {
  return state_->kernel->device();
}
bool RingExport::connected() const {
  return !state_->ended;
}
const std::string& RingExport::mount_point() const {
  return state_->options.mount_point;
}

}  // namespace twinloft::repl::fuse
