#include "twinloft/lmtpd/process/lane_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <thread>

#include "twinloft/base/passed_fds.h"

namespace twinloft::lmtpd {

namespace {

// Between two checks for late answers, while no lane is free.
constexpr auto late_pause = std::chrono::milliseconds(100);

// nullopt: the other end is gone.
std::optional<LaneAnswer> receive(int lane) {
  std::byte packet[lane_packet_bytes_max];  // not cleared, because that would cost 64 KiB of writes
  auto got = receive_packet(lane, packet, 1);
  if (!got || got->bytes == 0) return std::nullopt;
  LaneAnswer out{std::vector<std::byte>(packet, packet + got->bytes), std::move(got->fds[0])};
  out.lost_descriptor = got->fds_lost && !out.fd;
  return out;
}

// End of file counts as input.
bool has_input(int lane, std::chrono::milliseconds time) {
  using std::chrono::steady_clock;
  const auto deadline = steady_clock::now() + time;
  pollfd wait{lane, POLLIN, 0};
  for (;;) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    int ready = ::poll(&wait, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX)));
    if (ready >= 0) return ready > 0;
    if (errno != EINTR) return true;  // receive() then reports the error
  }
}

bool send(int lane, const std::vector<std::byte>& packet, int descriptor = -1) {
  std::span<const int> one(&descriptor, descriptor >= 0 ? 1 : 0);
  return send_packet(lane, packet, one) == 0;
}

// ---- the first packet: whether the process is ready

std::vector<std::byte> encode_opened(const Status& opened) {
  constexpr std::size_t message_bytes_max = 8192;
  std::vector<std::byte> packet;
  Writer out(packet);
  out.put(static_cast<std::uint8_t>(opened ? 1 : 0));
  if (opened) return packet;
  out.put(static_cast<std::uint8_t>(opened.error().code));
  out.put_text(std::string_view(opened.error().message).substr(0, message_bytes_max));
  return packet;
}

Status decode_opened(ByteSpan packet) {
  Reader in(packet);
  auto opened = in.get<std::uint8_t>();
  if (in.ok() && opened == 1) return {};
  auto code = in.get<std::uint8_t>();
  auto message = in.get_text(lane_packet_bytes_max);
  if (!message || code > static_cast<std::uint8_t>(Errc::internal))
    return fail(Errc::invalid, "the first message of the new process is invalid");
  return std::unexpected(Error{static_cast<Errc>(code), std::string(*message), 0});
}

// ---- in the new process

// Keeps 0 to 2 and `kept`.
void close_all_but(const std::vector<Fd>& kept) {
  std::vector<int> numbers;
  for (const Fd& fd : kept) numbers.push_back(fd.get());
  std::sort(numbers.begin(), numbers.end());
  unsigned from = 3;
  for (int number : numbers) {
    if (static_cast<unsigned>(number) > from) (void)::close_range(from, static_cast<unsigned>(number) - 1, 0);
    from = static_cast<unsigned>(number) + 1;
  }
  (void)::close_range(from, ~0u, 0);
}

// An exception, for example of a client library, ends this lane and not the process.
void serve_lane(const LaneProcess::Serve& serve, int lane) {
  try {
    while (auto request = receive(lane)) {
      LaneAnswer answer = serve(request->packet);
      if (!send(lane, answer.packet, answer.fd.get())) break;
    }
  } catch (const std::exception&) {
  }
  (void)::shutdown(lane, SHUT_RDWR);  // so that no caller waits for an answer
}

template <class Make>
auto made_safely(Make make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::exception& e) {
    return fail(Errc::internal, "unexpectedly: {}", e.what());
  }
}

[[noreturn]] void child_main(const LaneConfig& config, std::vector<Fd> lanes,
                             const std::function<Status()>& become, const LaneProcess::Open& open) {
  (void)::prctl(PR_SET_NAME, config.process_name);
  close_all_but(lanes);
  // Signals are ignored: the process ends when its parent closes the lanes.
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) (void)::signal(number, SIG_IGN);
  int first = lanes.front().get();
  Status became = made_safely(become);
  Result<LaneProcess::Serve> serve = became ? made_safely(open) : std::unexpected(became.error());
  if (!serve) {
    (void)send(first, encode_opened(std::unexpected(serve.error())));
    ::_exit(78);
  }
  if (!send(first, encode_opened({}))) ::_exit(71);
  // The last lane is for signs of life.
  const LaneProcess::Serve sign = [](ByteSpan) { return LaneAnswer{{std::byte{1}}, Fd()}; };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < lanes.size(); ++i)
    threads.emplace_back(serve_lane, std::cref(i + 1 < lanes.size() ? *serve : sign), lanes[i].get());
  for (std::thread& t : threads) t.join();
  *serve = nullptr;  // closes the connections in order, so that servers notice
  ::_exit(0);
}

}  // namespace

// ---- in the parent process

Result<std::unique_ptr<LaneProcess>> LaneProcess::start(const LaneConfig& config,
                                                        const std::function<Status()>& become,
                                                        const Open& open) {
  std::unique_ptr<LaneProcess> out(new LaneProcess(config));
  std::vector<Fd> theirs;
  for (Group& group : out->groups_) {
    group.left = std::max<std::size_t>(config.lanes, 1);
    group.late.reserve(group.left);
    for (std::size_t i = 0; i < group.left; ++i) {
      TL_TRY_ASSIGN(SocketPair lane, make_socket_pair());
      group.lanes.push_back(std::move(lane.ours));
      theirs.push_back(std::move(lane.theirs));
    }
  }
  TL_TRY_ASSIGN(SocketPair beat, make_socket_pair());
  out->beat_ = std::move(beat.ours);
  theirs.push_back(std::move(beat.theirs));
  out->pid_ = ::fork();
  if (out->pid_ < 0) return fail_errno(errno, "fork of {}", config.what);
  if (out->pid_ == 0) {
    out->groups_.clear();
    out->beat_.reset();
    child_main(config, std::move(theirs), become, open);
  }
  theirs.clear();
  int first = out->groups_.front().lanes.front().get();
  if (!has_input(first, config.start_wait)) {
    (void)::kill(out->pid_, SIGKILL);
    return fail(Errc::timeout, "{} was not ready after {} s", config.what,
                std::chrono::ceil<std::chrono::seconds>(config.start_wait).count());
  }
  auto ready = receive(first);
  if (!ready) return fail(Errc::unavailable, "{} ended before it was ready", config.what);
  TL_TRY(decode_opened(ready->packet));
  out->alive_.reset(::fcntl(first, F_DUPFD_CLOEXEC, 3));
  if (!out->alive_) return fail_errno(errno, "dup");
  return out;
}

// The lanes are shut down, not only closed: a copy of a descriptor in another process must not keep the
// process alive. It may still be serving a request, but no caller waits for this.
LaneProcess::~LaneProcess() {
  for (const Group& group : groups_)
    for (const std::vector<Fd>* all : {&group.lanes, &group.late})
      for (const Fd& lane : *all) (void)::shutdown(lane.get(), SHUT_RDWR);
  if (beat_) (void)::shutdown(beat_.get(), SHUT_RDWR);
  if (pid_ > 0) (void)::waitpid(pid_, nullptr, WNOHANG);
}

std::unexpected<Error> LaneProcess::gone() const {
  return fail(Errc::unavailable, "{} is gone", what_);
}

// The caller holds mutex_. Also notices the end of the process on lanes whose answer never comes.
void LaneProcess::take_late_answers(Group& group) {
  for (std::size_t i = 0; i < group.late.size();) {
    if (!has_input(group.late[i].get(), std::chrono::milliseconds(0))) {
      ++i;
      continue;
    }
    bool usable = receive(group.late[i].get()).has_value();
    std::swap(group.late[i], group.late.back());
    if (usable)
      group.lanes.push_back(std::move(group.late.back()));  // its capacity suffices: the lane was there
                                                            // before
    else
      --group.left;
    group.late.pop_back();
  }
}

Result<Fd> LaneProcess::take_lane(Group& group, Deadline deadline) {
  std::unique_lock lock(mutex_);
  auto is_free = [&group] {
    take_late_answers(group);
    return !group.lanes.empty() || group.left == 0;
  };
  while (!is_free()) {
    // No notification comes for late answers, so they are polled.
    auto next = std::chrono::steady_clock::now() + late_pause;
    if (deadline && *deadline < next) next = *deadline;
    if (deadline && std::chrono::steady_clock::now() >= *deadline)
      return fail(Errc::timeout, "{} is busy", what_);
    if (group.late.empty() && !deadline)
      free_.wait(lock);
    else
      free_.wait_until(lock, next);
  }
  if (group.lanes.empty()) return gone();
  // The deadline may have passed during the wait. A request now would be answered for nobody.
  if (deadline && std::chrono::steady_clock::now() >= *deadline)
    return fail(Errc::timeout, "{} is busy", what_);
  Fd lane = std::move(group.lanes.back());
  group.lanes.pop_back();
  return lane;
}

// Detects a hang in every lane of a group. The process may still give signs of life.
Status LaneProcess::check_lanes() {
  std::lock_guard lock(mutex_);
  for (Group& group : groups_) {
    take_late_answers(group);
    const auto now = Steady::now();
    if (group.late.size() < group.left || group.left == 0) group.answered = now;
    if (now - group.answered > lanes_wait_)
      return fail(Errc::timeout, "{} has not answered for {} s", what_,
                  std::chrono::floor<std::chrono::seconds>(now - group.answered).count());
  }
  return {};
}

Status LaneProcess::beat() {
  constexpr auto pause = std::chrono::seconds(5);
  const auto now = Steady::now();
  if (asked_ && has_input(beat_.get(), std::chrono::milliseconds(0))) {
    if (!receive(beat_.get())) return {};  // the process has ended; its lifeline reports this
    asked_ = false;
  }
  if (asked_ && now - asked_at_ > answer_wait_)
    return fail(Errc::timeout, "{} has given no sign of life for {} s", what_,
                std::chrono::floor<std::chrono::seconds>(now - asked_at_).count());
  if (!asked_ && now - asked_at_ >= std::min<Steady::duration>(pause, answer_wait_)) {
    asked_ = send(beat_.get(), {std::byte{1}});
    asked_at_ = now;
  }
  return check_lanes();
}

// A lane in use. Its state at the end of the request decides whether the destructor keeps or closes it.
struct LaneProcess::Lane {
  enum class State { usable, late, useless };
  LaneProcess& owner;
  Group& group;
  Fd fd;
  State state = State::useless;
  ~Lane() {
    {
      std::lock_guard lock(owner.mutex_);
      if (state == State::usable)
        group.lanes.push_back(std::move(fd));  // its capacity suffices: the lane was there before
      else if (state == State::late)
        group.late.push_back(std::move(fd));  // its capacity is reserved
      else
        --group.left;
    }
    owner.free_.notify_all();
  }
};

Result<LaneAnswer> LaneProcess::ask(const std::vector<std::byte>& request,
                                    std::optional<std::chrono::milliseconds> time, std::size_t number) {
  using std::chrono::steady_clock;
  Group& group = groups_.at(number);
  Deadline deadline;
  if (time) deadline = steady_clock::now() + *time;
  TL_TRY_ASSIGN(Fd taken, take_lane(group, deadline));
  Lane lane{*this, group, std::move(taken)};
  std::optional<LaneAnswer> answer;
  bool asked = send(lane.fd.get(), request);
  if (asked && deadline &&
      !has_input(lane.fd.get(),
                 std::chrono::ceil<std::chrono::milliseconds>(*deadline - steady_clock::now()))) {
    lane.state = Lane::State::late;
    return fail(Errc::timeout, "{} has not answered in time", what_);
  }
  if (asked) answer = receive(lane.fd.get());
  if (!answer) return gone();
  lane.state = Lane::State::usable;
  if (answer->lost_descriptor)
    return fail_errno(
        EMFILE, "no free descriptor for the connection of {}: raise the limit of open files (LimitNOFILE)",
        what_);
  return std::move(*answer);
}

}  // namespace twinloft::lmtpd
