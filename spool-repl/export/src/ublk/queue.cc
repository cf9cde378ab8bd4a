// Requests: from the driver to the target and back.
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "state.h"
#include "twinloft/base/check.h"
#include "twinloft/base/log.h"

namespace twinloft::repl::ublk {

using State = UblkExport::State;

namespace {

constexpr Duration submit_again{10'000'000};  // ns; the kernel was short of something
constexpr int poll_ms = 10;
constexpr int serve_polls_max = 60 * 1000 / poll_ms;

}  // namespace

Status State::open_queue() {
  memory_bytes = (static_cast<std::size_t>(control->depth) + 1) * options.max_io_bytes;
  void* mapped = ::mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (mapped == MAP_FAILED) return fail_errno(errno, "ublk: {} bytes of memory for requests", memory_bytes);
  memory = static_cast<std::byte*>(mapped);
  TL_TRY_ASSIGN(queue, driver->open_queue(std::move(control->char_device), control->depth));
  tags.resize(control->depth);
  loop.watch(queue->event_fd(), ports::Loop::readable, [this](unsigned) { on_ready(); });
  for (Tag& tag : tags) {
    tag.state = this;
    tag.number = static_cast<unsigned>(&tag - tags.data());
    give(tag, uapi::Io::fetch, 0);
  }
  submit();
  return {};
}

void State::close_queue() {
  if (queue) loop.unwatch(queue->event_fd());
  queue.reset();
}

void State::on_ready() {
  std::uint64_t count;
  (void)!::read(queue->event_fd(), &count, sizeof count);  // before the completions, so that a later
                                                           // completion makes it readable again
  reap();
}

void State::reap() {
  std::array<Completion, 64> completions;
  for (;;) {
    std::size_t n = queue->reap(completions);
    for (std::size_t i = 0; i < n; ++i) on_completion(completions[i]);
    if (n < completions.size()) return;
  }
}

void State::on_completion(const Completion& c) {
  if (c.tag >= tags.size() || tags[c.tag].place != Place::driver) {
    if (!std::exchange(nonsense_told, true))
      log_error("ublk: {}: the kernel completed tag {}, which was not submitted", options.link, c.tag);
    return;
  }
  Tag& tag = tags[c.tag];
  if (c.result < 0) return lose(tag, c.result);
  tag.place = Place::here;
  if (c.result == uapi::result_request) return serve(tag);
  if (!std::exchange(nonsense_told, true))
    log_error("ublk: {}: the kernel asks for {}, which was not offered", options.link, c.result);
  answer(tag, EIO, 0);
}

// The request slot was aborted, by this process or because another program stops the device; or it was
// refused.
void State::lose(Tag& tag, int result) {
  tag.place = Place::lost;
  if (result != uapi::result_abort && lost_error == 0) lost_error = -result;
  if (++lost == 1 && lost_error != 0)
    log_error(
        "{}",
        fail_errno(lost_error, "ublk: {}: the kernel refuses a request slot", options.link).error().message);
  if (device.empty())
    control->give_up = true;  // a start would wait for all of them
  else if (lost == tags.size() && !stopping && !aborted)
    lose_device();
}

// Another program has stopped the device. The link would lead nowhere. The kernel keeps the number until the
// queue is closed.
void State::lose_device() {
  trouble = fmt::format(
      "{} was stopped by another program. Unmount what is on it; then demote and promote this replica, or "
      "restart "
      "spool-repl",
      device);
  withdraw_link();
  if (options.tell) options.tell("the block device is lost: " + trouble, true);
}

void State::serve(Tag& tag) {
  if (aborted) return answer(tag, EIO, 0);
  ports::IoRequest& io = tag.io;
  io = ports::IoRequest{};
  if (int refused = prepare(queue->descriptor(tag.number), io); refused != 0) return answer(tag, refused, 0);
  bool data = io.op == ports::IoOp::read || io.op == ports::IoOp::write;
  io.data = data ? buffer(tag.number) : nullptr;
  io.owner = &tag;
  io.done = &State::on_io_done;
  tag.place = Place::target;
  tag.held = true;
  ++in_target;
  target.submit(io);
}

// Checks that the driver's request is within the volume and the buffer.
int State::prepare(const uapi::IoDescriptor& d, ports::IoRequest& io) const {
  switch (static_cast<uapi::Op>(d.op_flags & 0xff)) {
    case uapi::Op::read:
      io.op = ports::IoOp::read;
      break;
    case uapi::Op::write:
      io.op = ports::IoOp::write;
      break;
    case uapi::Op::flush:
      io.op = ports::IoOp::flush;
      return 0;
    case uapi::Op::discard:
      io.op = ports::IoOp::trim;
      break;
    case uapi::Op::write_zeroes:
      io.op = ports::IoOp::write_zeroes;
      break;
    default:
      return EOPNOTSUPP;
  }
  bool data = io.op == ports::IoOp::read || io.op == ports::IoOp::write;
  std::uint64_t length = static_cast<std::uint64_t>(d.sectors) << sector_shift;
  std::uint64_t size = target.size_bytes();
  if (length == 0 || length > (data ? options.max_io_bytes : UINT32_MAX)) return EINVAL;
  if (d.start_sector > size >> sector_shift || length > size - (d.start_sector << sector_shift)) return EIO;
  io.offset = d.start_sector << sector_shift;
  io.length = static_cast<std::uint32_t>(length);
  io.fua = (d.op_flags & uapi::flag_fua) != 0 && io.op != ports::IoOp::read;
  return 0;
}

void State::on_io_done(ports::IoRequest& io) {
  Tag& tag = *static_cast<Tag*>(io.owner);
  State& state = *tag.state;
  --state.in_target;
  tag.held = false;
  if (tag.place != Place::target) return;  // answered by abort()
  bool data = io.op == ports::IoOp::read || io.op == ports::IoOp::write;
  state.answer(tag, io.error, data ? io.length : 0);
}

void State::answer(Tag& tag, int error, std::uint32_t length) {
  ++counters.requests;
  if (error != 0) ++counters.errors;
  give(tag, uapi::Io::commit_and_fetch, error != 0 ? -error : static_cast<int>(length));
}

void State::give(Tag& tag, uapi::Io command, int result) {
  if (!queue) {
    tag.place = Place::lost;
    return;
  }
  uapi::IoCommand out;
  out.tag = static_cast<std::uint16_t>(tag.number);
  out.result = result;
  // After an abort, the target may still have the buffer of an answered request. The data of the next write
  // must not be put there.
  out.addr = reinterpret_cast<std::uint64_t>(
      buffer(aborted ? static_cast<unsigned>(tags.size()) : tag.number));
  tag.place = Place::driver;
  queue->push(control->opcode(command), out);
  to_submit = true;
  wants_flush();
}

void State::wants_flush() {
  // After an abort, the owner no longer calls flush().
  if ((options.owner_flushes && !aborted) || std::exchange(flush_posted, true)) return;
  loop.post([this, watched = std::weak_ptr(alive)] {
    if (watched.expired()) return;
    flush_posted = false;
    submit();
  });
}

void State::submit() {
  if (!queue || !to_submit) return;
  to_submit = false;
  int outcome = queue->submit();
  if (outcome == 0) return;
  to_submit = true;
  loop.after(submit_again, [this, watched = std::weak_ptr(alive)] {
    if (!watched.expired()) submit();
  });
}

// Answers the requests at the target now. Their later completion has no effect.
void State::fail_all() {
  for (Tag& tag : tags)
    if (tag.place == Place::target) answer(tag, EIO, 0);
}

// Serves the queue in place of the loop, if the loop is about to end.
void State::serve_until(const std::atomic<bool>& done) {
  for (int i = 0; !done; ++i) {
    if (i == serve_polls_max) {
      log_error("ublk: {}: the kernel's driver does not release the device", options.link);
      return;
    }
    pollfd event{queue ? queue->event_fd() : -1, POLLIN, 0};
    if (::poll(&event, 1, poll_ms) > 0 && (event.revents & POLLIN) != 0) {
      on_ready();
      i = -1;
    }
    submit();
  }
}

}  // namespace twinloft::repl::ublk
