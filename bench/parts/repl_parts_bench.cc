// The parts of a replicated write, each alone, one at a time:
// - the persist: a sequential O_DIRECT|O_DSYNC write into an allocated and written file, used as a ring
// - a TCP round trip
// - a persist at the other end of a round trip
// - two persists at the same time
//
//   repl_parts_bench serve ADDRESS:PORT DIRECTORY
//   repl_parts_bench measure ADDRESS:PORT DIRECTORY [--seconds S] [--rounds N] [--kib 4,32,128] [--json FILE]
//
// `serve` is the other end. It prints "ready", and ends with its client.
//
// Parts alternate within a round. The output is the median of the rounds, and their spread. The files stay
// in DIRECTORY: remove them afterwards.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <boost/program_options.hpp>
#include <cerrno>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <thread>
#include <vector>

#include "figures.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/json.h"
#include "twinloft/spool-repl/journal/aligned.h"

namespace {

using namespace twinloft;
using repl::journal::AlignedBuffer;
namespace po = boost::program_options;

constexpr std::size_t ring_bytes = 64 << 20;
constexpr std::size_t persist_bytes_max = 1 << 20;
// About the size of a wire header with its frame, or of an acknowledgement.
constexpr std::size_t head_bytes = 100;

// ---- a journal

// Appends, and starts again at its end.
class Ring {
 public:
  static Result<Ring> create(const std::string& path) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_DSYNC | O_CLOEXEC, 0600));
    if (!fd) return fail_errno(errno, "{}", path);
    if (int rc = ::posix_fallocate(fd.get(), 0, ring_bytes); rc != 0) return fail_errno(rc, "{}", path);
    Ring ring(std::move(fd));
    for (std::size_t at = 0; at < ring_bytes; at += persist_bytes_max) TL_TRY(ring.append(persist_bytes_max));
    return ring;
  }

  Status append(std::size_t bytes) {
    if (at_ + bytes > ring_bytes) at_ = 0;
    ssize_t n = ::pwrite(fd_.get(), data_.span().data(), bytes, static_cast<off_t>(at_));
    if (n != static_cast<ssize_t>(bytes))
      return fail_errno(n < 0 ? errno : ENOSPC, "writing {} bytes to the ring", bytes);
    at_ += bytes;
    return {};
  }

  MutableByteSpan data() { return data_.span(); }

 private:
  explicit Ring(Fd fd) : fd_(std::move(fd)), data_(persist_bytes_max) {
    for (std::size_t i = 0; i < persist_bytes_max; ++i)
      data_.span()[i] = static_cast<std::byte>(i * 131 >> 3);
  }

  Fd fd_;
  AlignedBuffer data_;
  std::size_t at_ = 0;
};

// ---- the other end

// A request: this structure, zeros up to head_bytes, then the number of bytes that it names. The answer:
// head_bytes.
struct Request {
  std::uint32_t persist = 0;
  std::uint32_t bytes = 0;
};

Result<sockaddr_in> parse_address(const std::string& text) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || ::inet_pton(AF_INET, text.substr(0, colon).c_str(), &out.sin_addr) != 1)
    return fail(Errc::invalid, "{}: not an IPv4 address and a port", text);
  out.sin_port = htons(static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1)));
  return out;
}

Status set_no_delay(int fd) {
  int on = 1;
  if (::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    return fail_errno(errno, "TCP_NODELAY");
  return {};
}

Status answer_all(int fd, Ring& ring) {
  std::vector<std::byte> head(head_bytes);
  while (true) {
    ssize_t first = ::recv(fd, head.data(), 1, 0);
    if (first == 0) return {};
    if (first < 0) return fail_errno(errno, "recv");
    TL_TRY(read_exact(fd, MutableByteSpan(head).subspan(1)));
    Request r;
    std::memcpy(&r, head.data(), sizeof r);
    if (r.bytes > persist_bytes_max) return fail(Errc::invalid, "a request of {} bytes", r.bytes);
    TL_TRY(read_exact(fd, ring.data().first(r.bytes)));
    if (r.persist) TL_TRY(ring.append(r.bytes));
    TL_TRY(write_all(fd, head));
  }
}

Status serve(const std::string& address, const std::string& directory) {
  TL_TRY_ASSIGN(Ring ring, Ring::create(directory + "/ring-remote"));
  TL_TRY_ASSIGN(sockaddr_in where, parse_address(address));
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int on = 1;
  if (!listener || ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(listener.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0 ||
      ::listen(listener.get(), 1) != 0)
    return fail_errno(errno, "cannot listen on {}", address);
  std::cout << "ready" << std::endl;
  Fd client(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!client) return fail_errno(errno, "accept");
  TL_TRY(set_no_delay(client.get()));
  return answer_all(client.get(), ring);
}

class Remote {
 public:
  static Result<Remote> connect(const std::string& address) {
    TL_TRY_ASSIGN(sockaddr_in where, parse_address(address));
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0)
      return fail_errno(errno, "cannot connect to {}", address);
    TL_TRY(set_no_delay(fd.get()));
    return Remote(std::move(fd));
  }

  // Head and payload are sent together, as for a record.
  Status ask(bool persist, std::size_t bytes) {
    Request r{persist, static_cast<std::uint32_t>(bytes)};
    std::memcpy(out_.data(), &r, sizeof r);
    return write_all(fd_.get(), ByteSpan(out_).first(head_bytes + bytes));
  }
  Status wait() { return read_exact(fd_.get(), in_); }

 private:
  explicit Remote(Fd fd) : fd_(std::move(fd)), out_(head_bytes + persist_bytes_max), in_(head_bytes) {}

  Fd fd_;
  std::vector<std::byte> out_, in_;
};

// ---- measuring

struct Round {
  double p50_us = 0, p99_us = 0, mean_us = 0;
};

struct Part {
  std::string name;
  std::size_t kib = 0;  // 0: no persist
  std::function<Status()> once;
  std::vector<Round> rounds{};
};

Result<Round> run(const Part& part, double seconds) {
  OsClock clock;
  std::vector<double> times;
  Instant start = clock.now(), now = start;
  while (static_cast<double>((now - start).count()) < seconds * 1e9) {
    Instant begin = now;
    TL_TRY(part.once());
    now = clock.now();
    times.push_back(static_cast<double>((now - begin).count()) / 1e3);
  }
  double sum = 0;
  for (double t : times) sum += t;
  std::sort(times.begin(), times.end());
  return Round{times[times.size() / 2], times[times.size() * 99 / 100],
               sum / static_cast<double>(times.size())};
}

// A second thread that persists at the same time as the first. The thread that is ready first waits.
class Partner {
 public:
  explicit Partner(Ring& ring) : ring_(ring), thread_([this] { work(); }) {}
  ~Partner() {
    bytes_ = 0;
    gate_.arrive_and_wait();
    thread_.join();
  }

  Status with(Ring& other, std::size_t bytes) {
    bytes_ = bytes;
    gate_.arrive_and_wait();
    Status mine = other.append(bytes);
    gate_.arrive_and_wait();
    TL_TRY(mine);
    return result_;
  }

 private:
  void work() {
    while (true) {
      gate_.arrive_and_wait();
      if (bytes_ == 0) return;
      result_ = ring_.append(bytes_);
      gate_.arrive_and_wait();
    }
  }

  Ring& ring_;
  std::size_t bytes_ = 0;  // written before the barrier, read after it
  Status result_;
  std::barrier<> gate_{2};
  std::thread thread_;
};

struct Setup {
  Ring local, second;
  Remote remote;
};

Status ask_and_wait(Remote& remote, bool persist, std::size_t bytes) {
  TL_TRY(remote.ask(persist, bytes));
  return remote.wait();
}

std::vector<Part> parts_of(Setup& s, Partner& partner, const std::vector<std::size_t>& kibs) {
  std::vector<Part> parts;
  parts.push_back({"round trip, 100 bytes", 0, [&s] { return ask_and_wait(s.remote, false, 0); }});
  parts.push_back({"round trip, 4 KiB + 100 bytes", 0, [&s] { return ask_and_wait(s.remote, false, 4096); }});
  for (std::size_t kib : kibs) {
    std::size_t bytes = kib << 10;
    parts.push_back({"local persist", kib, [&s, bytes] { return s.local.append(bytes); }});
    parts.push_back(
        {"two persists at once", kib, [&s, &partner, bytes] { return partner.with(s.local, bytes); }});
    parts.push_back({"remote persist", kib, [&s, bytes] { return ask_and_wait(s.remote, true, bytes); }});
    parts.push_back({"local and remote persist at once", kib, [&s, bytes]() -> Status {
                       TL_TRY(s.remote.ask(true, bytes));
                       TL_TRY(s.local.append(bytes));
                       return s.remote.wait();
                     }});
  }
  return parts;
}

std::string spread(const Part& part, double Round::* value) {
  std::vector<double> all;
  for (const Round& r : part.rounds) all.push_back(r.*value);
  return bench::spread(std::move(all), 0);
}

std::string json_of(const std::vector<Part>& parts) {
  json::array out;
  for (const Part& part : parts)
    for (std::size_t round = 0; round < part.rounds.size(); ++round)
      out.push_back(json::object{{"part", part.name},
                                 {"kib", part.kib},
                                 {"round", round},
                                 {"p50_us", part.rounds[round].p50_us},
                                 {"p99_us", part.rounds[round].p99_us},
                                 {"mean_us", part.rounds[round].mean_us}});
  return indented_json(out);
}

struct Options {
  std::string command, address, directory, kib, json;
  double seconds = 2;
  unsigned rounds = 3;
};

Result<std::vector<std::size_t>> sizes_of(const std::string& text) {
  std::vector<std::size_t> out;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    std::size_t kib = std::strtoul(word.c_str(), nullptr, 10);
    if (kib == 0 || kib % 4 != 0 || kib << 10 > persist_bytes_max)
      return fail(Errc::invalid, "--kib {}: multiples of 4, up to {}", word, persist_bytes_max >> 10);
    out.push_back(kib);
  }
  return out;
}

Status measure(const Options& o) {
  TL_TRY_ASSIGN(std::vector<std::size_t> sizes, sizes_of(o.kib));
  TL_TRY_ASSIGN(Ring local, Ring::create(o.directory + "/ring-local"));
  TL_TRY_ASSIGN(Ring second, Ring::create(o.directory + "/ring-second"));
  TL_TRY_ASSIGN(Remote remote, Remote::connect(o.address));
  Setup setup{std::move(local), std::move(second), std::move(remote)};
  Partner partner(setup.second);
  std::vector<Part> parts = parts_of(setup, partner, sizes);
  for (unsigned round = 0; round < o.rounds; ++round)
    for (Part& part : parts) {
      TL_TRY_ASSIGN(Round r, run(part, o.seconds));
      part.rounds.push_back(r);
    }
  fmt::print("| part | KiB | p50 us | p99 us | mean us |\n|---|---|---|---|---|\n");
  for (const Part& p : parts)
    fmt::print("| {} | {} | {} | {} | {} |\n", p.name, p.kib ? fmt::format("{}", p.kib) : "",
               spread(p, &Round::p50_us), spread(p, &Round::p99_us), spread(p, &Round::mean_us));
  if (o.json.empty()) return {};
  std::ofstream out(o.json);
  if (!(out << json_of(parts) << std::flush)) return fail(Errc::io, "cannot write {}", o.json);
  return {};
}

int usage(const std::string& what) {
  fmt::print(stderr,
             "{}{}usage: repl_parts_bench serve ADDRESS:PORT DIRECTORY\n"
             "       repl_parts_bench measure ADDRESS:PORT DIRECTORY [--seconds S] [--rounds N] [--kib LIST] "
             "[--json FILE]\n",
             what, what.empty() ? "" : "\n");
  return 64;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  po::options_description all;
  all.add_options()("command", po::value(&o.command)->required())(
      "address", po::value(&o.address)->required())("directory", po::value(&o.directory)->required())(
      "seconds", po::value(&o.seconds))("rounds", po::value(&o.rounds))(
      "kib", po::value(&o.kib)->default_value("4,8,32,128"))("json", po::value(&o.json));
  po::positional_options_description words;
  words.add("command", 1).add("address", 1).add("directory", 1);
  try {
    po::variables_map found;
    po::store(po::command_line_parser(argc, argv).options(all).positional(words).run(), found);
    po::notify(found);
  } catch (const po::error& e) {
    return usage(e.what());
  }
  if ((o.command != "serve" && o.command != "measure") || o.rounds == 0 || o.seconds <= 0) return usage("");
  Status done = o.command == "serve" ? serve(o.address, o.directory) : measure(o);
  if (done) return 0;
  fmt::print(stderr, "repl_parts_bench: {}\n", done.error().message);
  return 1;
}
