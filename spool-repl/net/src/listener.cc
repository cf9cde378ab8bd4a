#include "listener.h"

#include <cerrno>
#include <utility>

namespace twinloft::repl::net {

namespace {
constexpr int listen_backlog = 256;
constexpr Duration accept_pause = std::chrono::milliseconds(200);
}  // namespace

Listener::Listener(ports::Loop& loop, NameLookup& lookup, std::string text, Duration again, Events events)
    : loop_(loop),
      lookup_(lookup),
      text_(std::move(text)),
      listen_again_(again),
      events_(std::move(events)) {}

Listener::~Listener() {
  if (accept_timer_) loop_.cancel(accept_timer_);
  if (listen_timer_) loop_.cancel(listen_timer_);
  if (socket_) loop_.unwatch(socket_.get());
}

// Tried again, since the name may not resolve yet, the address may be missing yet, and an earlier process
// that was killed may still have the address.
void Listener::listen() {
  listen_timer_ = 0;
  if (auto numeric = numeric_address(text_)) return listen_on(std::vector<Address>{*numeric});
  lookup_.start(text_, [this, alive = std::weak_ptr(alive_)](Result<std::vector<Address>> found) {
    if (!alive.expired()) listen_on(found);
  });
}

void Listener::listen_on(const Result<std::vector<Address>>& found) {
  Status done = found ? Status() : Status(std::unexpected(found.error()));
  if (found)
    for (const Address& address : *found)
      if (done = try_listen(address); done) break;
  std::string trouble = done ? "" : fmt::format("cannot listen for replication: {}", done.error().message);
  if (trouble != std::exchange(trouble_, trouble))
    events_.notice(done ? fmt::format("listening on {} now", text_) : trouble);
  if (!done) listen_timer_ = loop_.after(listen_again_, [this] { listen(); });
}

Status Listener::try_listen(const Address& address) {
  TL_TRY(events_.check(address));
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "socket");
  int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) < 0)
    return fail_errno(errno, "{}", address.text);
  if (::listen(fd.get(), listen_backlog) < 0) return fail_errno(errno, "{}", address.text);
  socket_ = std::move(fd);
  loop_.watch(socket_.get(), ports::Loop::readable, [this](unsigned) { on_accept(); });
  return {};
}

void Listener::on_accept() {
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  Fd fd(::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd) return events_.caller(std::move(fd), from);
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause_accepting(errno);
}

// The caller stays in the kernel's queue, and the listener stays ready. The pause avoids a busy loop.
void Listener::pause_accepting(int error) {
  events_.exhausted(fail_errno(error, "no connection can be accepted").error().message);
  loop_.change(socket_.get(), 0);
  accept_timer_ = loop_.after(accept_pause, [this] {
    accept_timer_ = 0;
    loop_.change(socket_.get(), ports::Loop::readable);
  });
}

}  // namespace twinloft::repl::net
