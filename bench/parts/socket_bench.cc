// What it would save to have clients' sockets in the ring. A server thread serves N clients. Each client
// writes 4 KiB and then flushes, as over NBD: a request of 4,124 bytes, an answer of 16, a request of 28, an
// answer of 16. The server does nothing else.
//
//   socket_bench [--seconds S] [--rounds N] [--clients 1,12,32]
//
//   polled      the ring reports readable sockets; recv() and send() are system calls (as in io/ and export/)
//   ring sends  the same, but the answers of a turn are sent by its single io_uring_enter()
//   ring        recv is a permanent request of the ring too, with memory from a ring of buffers (Linux 6.0)
//
// The three ways alternate within a round. CPU is that of the server thread. The clients are another process.
#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "figures.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace {

using namespace twinloft;
using bench::numbers;
using bench::spread;
namespace po = boost::program_options;

constexpr std::array<std::size_t, 2> request_bytes = {28 + 4096, 28};
constexpr std::size_t answer_bytes = 16;
constexpr unsigned entries = 256, buffers = 256, buffer_bytes = 8192, group = 1;
enum class Way { polled, ring_sends, ring };
constexpr std::pair<Way, const char*> ways[] = {
    {Way::polled, "polled"}, {Way::ring_sends, "ring sends"}, {Way::ring, "ring"}};

struct Round {
  double cpu_us = 0, per_second = 0;  // for one request
};

bool receive_all(int fd, char* to, std::size_t bytes) {
  for (ssize_t n; bytes > 0; to += n, bytes -= static_cast<std::size_t>(n))
    if ((n = ::recv(fd, to, bytes, 0)) <= 0) return false;
  return true;
}

// Until the server closes the connection.
void client(int fd) {
  std::vector<char> request(request_bytes[0]), answer(answer_bytes);
  for (std::size_t i = 0;; i ^= 1)
    if (::send(fd, request.data(), request_bytes[i], MSG_NOSIGNAL) < 0 ||
        !receive_all(fd, answer.data(), answer_bytes))
      return;
}

class Server {
 public:
  Server(Way way, std::vector<Fd> fds)
      : way_(way), fds_(std::move(fds)), clients_(fds_.size()), memory_(buffers * buffer_bytes) {}
  ~Server() {
    if (made_) io_uring_queue_exit(&ring_);
  }

  Result<Round> run(double seconds) {
    TL_TRY(set_up());
    OsClock clock;
    rusage before = usage();
    Instant begin = clock.now(), end = begin + Duration(static_cast<std::int64_t>(seconds * 1e9));
    while (clock.now() < end) TL_TRY(turn());
    double took = static_cast<double>((clock.now() - begin).count()) / 1e9;
    rusage after = usage();
    auto us = [](const rusage& u) {
      return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
             static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    };
    if (requests_ == 0) return fail(Errc::io, "no client has asked for anything");
    return Round{(us(after) - us(before)) / static_cast<double>(requests_),
                 static_cast<double>(requests_) / took};
  }

 private:
  struct Client {
    std::size_t which = 0, have = 0;  // index into request_bytes; bytes of that request
    std::array<char, answer_bytes> answer{};
  };
  static constexpr std::uint64_t no_client = UINT64_MAX;

  static rusage usage() {
    rusage u{};
    ::getrusage(RUSAGE_THREAD, &u);
    return u;
  }

  Status set_up() {
    io_uring_params params{};
    params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL;
    if (int rc = io_uring_queue_init_params(entries, &ring_, &params); rc < 0)
      return fail_errno(-rc, "io_uring_setup");
    made_ = true;
    if (way_ == Way::ring) TL_TRY(make_buffers());
    for (std::size_t i = 0; i < fds_.size(); ++i) arm(i);
    return {};
  }

  Status make_buffers() {
    buffer_ring_.reset(
        static_cast<io_uring_buf_ring*>(std::aligned_alloc(4096, buffers * sizeof(io_uring_buf))));
    io_uring_buf_reg reg{};
    reg.ring_addr = reinterpret_cast<std::uintptr_t>(buffer_ring_.get());
    reg.ring_entries = buffers;
    reg.bgid = group;
    if (int rc = io_uring_register_buf_ring(&ring_, &reg, 0); rc < 0)
      return fail_errno(-rc, "a ring of buffers");
    io_uring_buf_ring_init(buffer_ring_.get());
    for (unsigned i = 0; i < buffers; ++i) give_back(i);
    return {};
  }

  void give_back(unsigned buffer) {
    io_uring_buf_ring_add(buffer_ring_.get(), memory_.data() + std::size_t{buffer} * buffer_bytes,
                          buffer_bytes, static_cast<unsigned short>(buffer), io_uring_buf_ring_mask(buffers),
                          0);
    io_uring_buf_ring_advance(buffer_ring_.get(), 1);
  }

  io_uring_sqe* sqe() {
    io_uring_sqe* s = io_uring_get_sqe(&ring_);
    if (s == nullptr) io_uring_submit(&ring_), s = io_uring_get_sqe(&ring_);
    return s;
  }

  void arm(std::size_t i) {
    io_uring_sqe* s = sqe();
    if (way_ == Way::ring) {
      io_uring_prep_recv_multishot(s, fds_[i].get(), nullptr, 0, 0);
      s->flags |= IOSQE_BUFFER_SELECT;
      s->buf_group = group;
    } else {
      io_uring_prep_poll_multishot(s, fds_[i].get(), POLLIN);
    }
    io_uring_sqe_set_data64(s, i);
  }

  Status turn() {
    __kernel_timespec wait{1, 0};
    io_uring_cqe* first = nullptr;
    int rc = io_uring_submit_and_wait_timeout(&ring_, &first, 1, &wait, nullptr);
    if (rc < 0 && rc != -ETIME && rc != -EINTR) return fail_errno(-rc, "io_uring_enter");
    unsigned head, count = 0;
    io_uring_cqe* c;
    io_uring_for_each_cqe(&ring_, head, c) {
      ++count;
      if (c->user_data == no_client)
        return fail_errno(-c->res, "send");  // successful requests give no completion
      TL_TRY(on_ready(static_cast<std::size_t>(c->user_data), *c));
    }
    io_uring_cq_advance(&ring_, count);
    for (std::size_t i : answered_) TL_TRY(answer(i));
    answered_.clear();
    return {};
  }

  Status on_ready(std::size_t i, const io_uring_cqe& c) {
    if (c.res == -ENOBUFS) return arm(i), Status();
    if (c.res < 0) return fail_errno(-c.res, "a client's socket");
    if (!(c.flags & IORING_CQE_F_MORE)) arm(i);
    if (way_ == Way::ring) {
      if (c.flags & IORING_CQE_F_BUFFER) give_back(c.flags >> IORING_CQE_BUFFER_SHIFT);
      received(i, static_cast<std::size_t>(c.res));
      return {};
    }
    ssize_t n = ::recv(fds_[i].get(), memory_.data(), memory_.size(), MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) return fail_errno(errno, "recv");
    if (n > 0) received(i, static_cast<std::size_t>(n));
    return {};
  }

  // A client has one request in flight.
  void received(std::size_t i, std::size_t bytes) {
    Client& c = clients_[i];
    c.have += bytes;
    if (c.have < request_bytes[c.which]) return;
    c.have = 0;
    c.which ^= 1;
    ++requests_;
    answered_.push_back(i);
  }

  Status answer(std::size_t i) {
    Client& c = clients_[i];
    if (way_ == Way::polled) {
      if (::send(fds_[i].get(), c.answer.data(), answer_bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return fail_errno(errno, "send");
      return {};
    }
    io_uring_sqe* s = sqe();
    io_uring_prep_send(s, fds_[i].get(), c.answer.data(), answer_bytes, MSG_NOSIGNAL);
    s->flags |= IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(s, no_client);
    return {};
  }

  Way way_;
  std::vector<Fd> fds_;
  std::vector<Client> clients_;
  std::vector<char> memory_;
  std::vector<std::size_t> answered_;
  struct Free {
    void operator()(io_uring_buf_ring* p) const { std::free(p); }
  };
  std::unique_ptr<io_uring_buf_ring, Free> buffer_ring_;  // outlives the ring that uses it
  io_uring ring_{};
  bool made_ = false;
  std::uint64_t requests_ = 0;
};

Result<Round> measure(Way way, std::size_t clients, double seconds) {
  std::vector<Fd> ours, theirs;
  for (std::size_t i = 0; i < clients; ++i) {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
      return fail_errno(errno, "socketpair");
    ours.emplace_back(fds[0]);
    theirs.emplace_back(fds[1]);
  }
  pid_t child = ::fork();
  if (child < 0) return fail_errno(errno, "fork");
  if (child == 0) {
    ours.clear();
    std::vector<std::thread> threads;
    for (Fd& fd : theirs) threads.emplace_back(client, fd.get());
    for (std::thread& t : threads) t.join();
    ::_exit(0);
  }
  theirs.clear();
  Result<Round> round = Server(way, std::move(ours)).run(seconds);
  ::waitpid(child, nullptr, 0);
  return round;
}

Status run(const std::vector<std::size_t>& clients, unsigned rounds, double seconds) {
  fmt::print(
      "| clients | way | CPU of the server a request, us | to polled | requests/s | to polled "
      "|\n|---|---|---|---|---|---|\n");
  for (std::size_t n : clients) {
    std::vector<double> cpu[std::size(ways)], rate[std::size(ways)], cpu_ratio[std::size(ways)],
        rate_ratio[std::size(ways)];
    for (unsigned round = 0; round < rounds; ++round)
      for (std::size_t i = 0; i < std::size(ways); ++i) {
        TL_TRY_ASSIGN(Round r, measure(ways[i].first, n, seconds));
        cpu[i].push_back(r.cpu_us);
        rate[i].push_back(r.per_second);
        cpu_ratio[i].push_back(r.cpu_us / cpu[0].back());
        rate_ratio[i].push_back(r.per_second / rate[0].back());
      }
    for (std::size_t i = 0; i < std::size(ways); ++i)
      fmt::print("| {} | {} | {} | {} | {} | {} |\n", n, ways[i].second, spread(cpu[i], 1),
                 spread(cpu_ratio[i], 2), spread(rate[i], 0), spread(rate_ratio[i], 2));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 1;
  unsigned rounds = 5;
  std::string clients;
  po::options_description all;
  all.add_options()("seconds", po::value(&seconds))("rounds", po::value(&rounds))(
      "clients", po::value(&clients)->default_value("1,12,32"));
  try {
    po::variables_map found;
    po::store(po::command_line_parser(argc, argv).options(all).run(), found);
    po::notify(found);
  } catch (const po::error& e) {
    fmt::print(stderr, "{}\nusage: socket_bench [--seconds S] [--rounds N] [--clients LIST]\n", e.what());
    return 64;
  }
  auto counts = numbers(clients, entries / 2);
  Status done = !counts                     ? Status(std::unexpected(counts.error()))
                : rounds > 0 && seconds > 0 ? run(*counts, rounds, seconds)
                                            : fail(Errc::invalid, "--rounds and --seconds are more than 0");
  if (done) return 0;
  fmt::print(stderr, "socket_bench: {}\n", done.error().message);
  return 1;
}
