#include "twinloft/lmtpd/userdb/user_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <exception>
#include <thread>

#include "twinloft/base/log.h"
#include "user_wire.h"

namespace twinloft::lmtpd {

namespace {

// nullopt: the other end is gone.
std::optional<std::vector<std::byte>> receive(int lane) {
  std::byte packet[user_packet_bytes_max];  // on the stack, and not cleared
  ssize_t n;
  do {
    n = ::recv(lane, packet, sizeof packet, 0);
  } while (n < 0 && errno == EINTR);
  if (n <= 0) return std::nullopt;
  return std::vector<std::byte>(packet, packet + n);
}

bool send(int lane, const std::vector<std::byte>& packet) {
  ssize_t n;
  do {
    n = ::send(lane, packet.data(), packet.size(), MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(packet.size());
}

// ---- in the new process --------------------------------------------------------------------------------------------

// 0 to 2 stay; of the others only these.
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

FindResult find_safely(UserSource& source, ByteSpan packet) {
  auto key = decode_key(packet);
  if (!key) return std::unexpected(key.error());
  try {
    return source.find(*key);
  } catch (const std::exception& e) {
    return fail(Errc::internal, "unexpectedly: {}", e.what());
  }
}

void serve_lane(UserSource& source, int lane) {
  while (auto packet = receive(lane))
    if (!send(lane, encode_found(find_safely(source, *packet)))) break;
  (void)::shutdown(lane, SHUT_RDWR);  // nobody is to wait for it
}

template <class Make>
auto made_safely(Make make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::exception& e) {
    return fail(Errc::internal, "unexpectedly: {}", e.what());
  }
}

[[noreturn]] void users_main(std::vector<Fd> lanes, const std::function<Status()>& become, const UserProcess::Open& open) {
  (void)::prctl(PR_SET_NAME, "lmtpd-users");
  close_all_but(lanes);
  // The end of the process that asks is seen by the lanes.
  for (int number : {SIGTERM, SIGINT, SIGHUP}) (void)::signal(number, SIG_IGN);
  int first = lanes.front().get();
  Status became = made_safely(become);
  auto source = became ? made_safely(open) : std::unexpected(became.error());
  if (!source) {
    (void)send(first, encode_found(std::unexpected(source.error())));
    ::_exit(78);
  }
  if (!send(first, encode_found(std::nullopt))) ::_exit(71);  // ready
  std::vector<std::thread> threads;
  for (const Fd& lane : lanes) threads.emplace_back(serve_lane, std::ref(**source), lane.get());
  for (std::thread& t : threads) t.join();
  source->reset();  // servers are told
  ::_exit(0);
}

}  // namespace

// ---- in the process that asks --------------------------------------------------------------------------------------

Result<std::unique_ptr<UserProcess>> UserProcess::start(std::size_t lanes, const std::function<Status()>& become, const Open& open) {
  std::unique_ptr<UserProcess> out(new UserProcess);
  std::vector<Fd> theirs;
  for (std::size_t i = 0; i < std::max<std::size_t>(lanes, 1); ++i) {
    TL_TRY_ASSIGN(SocketPair lane, make_socket_pair());
    out->lanes_.push_back(std::move(lane.ours));
    theirs.push_back(std::move(lane.theirs));
  }
  out->lanes_left_ = out->lanes_.size();
  out->pid_ = ::fork();
  if (out->pid_ < 0) return fail_errno(errno, "fork of the process that asks the user database");
  if (out->pid_ == 0) {
    out->lanes_.clear();
    users_main(std::move(theirs), become, open);
  }
  theirs.clear();
  auto ready = receive(out->lanes_.front().get());
  if (!ready) return fail(Errc::unavailable, "the process that asks the user database ended before it was ready");
  TL_TRY_ASSIGN(FindResult opened, decode_found(*ready));
  if (!opened) return std::unexpected(opened.error());
  out->alive_.reset(::fcntl(out->lanes_.front().get(), F_DUPFD_CLOEXEC, 3));
  if (!out->alive_) return fail_errno(errno, "dup");
  return out;
}

// Ends are told, and not only closed: whoever has got a copy of a descriptor must not keep the process alive. It may still stand in a look-up, which
// nobody waits for any more.
UserProcess::~UserProcess() {
  for (const Fd& lane : lanes_) (void)::shutdown(lane.get(), SHUT_RDWR);
  if (pid_ > 0) (void)::waitpid(pid_, nullptr, WNOHANG);
}

Result<Fd> UserProcess::take_lane() {
  std::unique_lock lock(mutex_);
  free_.wait(lock, [this] { return !lanes_.empty() || lanes_left_ == 0; });
  if (lanes_.empty()) return fail(Errc::unavailable, "the process that asks the user database is gone");
  Fd lane = std::move(lanes_.back());
  lanes_.pop_back();
  return lane;
}

// What it is given back as: closed, where it is of no use any more.
struct UserProcess::Lane {
  UserProcess& owner;
  Fd fd;
  bool usable = false;
  ~Lane() {
    {
      std::lock_guard lock(owner.mutex_);
      if (usable) owner.lanes_.push_back(std::move(fd));  // which had room for it before
      else --owner.lanes_left_;
    }
    owner.free_.notify_all();
  }
};

Result<FindResult> UserProcess::ask(int lane, const std::vector<std::byte>& request) {
  std::optional<std::vector<std::byte>> answer;
  if (send(lane, request)) answer = receive(lane);
  if (!answer) return fail(Errc::unavailable, "the process that asks the user database is gone");
  return decode_found(*answer);
}

FindResult UserProcess::find(const UserKey& key) {
  TL_TRY_ASSIGN(std::vector<std::byte> request, encode_key(key));
  TL_TRY_ASSIGN(Fd taken, take_lane());
  Lane lane{*this, std::move(taken)};
  Result<FindResult> found = ask(lane.fd.get(), request);
  // What cannot be read is no answer of the database.
  if (!found) return fail(Errc::unavailable, "{}", found.error().message);
  lane.usable = true;
  return std::move(*found);
}

}  // namespace twinloft::lmtpd
