#include "watch.h"

#include <poll.h>

#include <cerrno>

#include "twinloft/base/check.h"

namespace twinloft::repl::io {

void UringLoop::watch(int fd, unsigned interest, FdHandler handler) {
  TL_CHECK_MSG(fd >= 0, "watch() needs an open descriptor");
  auto w = std::make_unique<Watch>();
  w->fd = fd;
  w->interest = interest;
  w->handler = std::move(handler);
  auto [it, added] = watches_.emplace(fd, std::move(w));
  TL_CHECK_MSG(added, "descriptor is watched already");
  arm(*it->second);
}

void UringLoop::change(int fd, unsigned interest) {
  auto it = watches_.find(fd);
  TL_CHECK_MSG(it != watches_.end(), "change() of a descriptor that is not watched");
  Watch& w = *it->second;
  w.interest = interest;
  // A poll with more events than are wanted stays: its result is filtered, and then it is replaced.
  if (w.armed != 0 && (interest & ~w.armed) != 0) disarm(w);
  arm(w);
}

void UringLoop::unwatch(int fd) {
  auto it = watches_.find(fd);
  TL_CHECK_MSG(it != watches_.end(), "unwatch() of a descriptor that is not watched");
  auto w = std::move(it->second);
  watches_.erase(it);
  w->gone = true;
  if (w->armed == 0) {
    finished_.push_back(std::move(w));  // its handler may be running
    return;
  }
  disarm(*w);
  leaving_.emplace(w.get(), std::move(w));
}

void UringLoop::arm(Watch& w) {
  if (w.armed != 0 || w.interest == 0 || w.gone) return;
  unsigned mask = 0;
  if (w.interest & readable) mask |= POLLIN;
  if (w.interest & writable) mask |= POLLOUT;
  io_uring_sqe* e = sqe();
  io_uring_prep_poll_add(e, w.fd, mask);
  io_uring_sqe_set_data64(e, reinterpret_cast<std::uint64_t>(&w) | tag_poll);
  w.armed = w.interest;
}

void UringLoop::disarm(Watch& w) {
  if (w.cancelling) return;
  w.cancelling = true;
  io_uring_sqe* e = sqe();
  // Not POLL_REMOVE, which fails while the poll is being woken. If the event is gone by then (the descriptor
  // was read), the poll would stay, and keep its file open.
  io_uring_prep_cancel64(e, reinterpret_cast<std::uint64_t>(&w) | tag_poll, 0);
  io_uring_sqe_set_data64(e, tag_ignored);
}

void UringLoop::on_poll(Watch& w, int res) {
  w.armed = 0;
  w.cancelling = false;
  if (w.gone) {
    auto node = leaving_.extract(&w);
    if (node) finished_.push_back(std::move(node.mapped()));
    return;
  }
  unsigned ready = 0;
  if (res < 0 && res != -ECANCELED)
    ready = readable | writable;  // the handler's own read or write gets the error
  if (res > 0 && (res & (POLLIN | POLLPRI))) ready |= readable;
  if (res > 0 && (res & POLLOUT)) ready |= writable;
  if (res > 0 && (res & (POLLERR | POLLHUP | POLLNVAL))) ready |= readable | writable;
  ready &= w.interest;
  if (ready != 0) w.handler(ready);
  arm(w);  // `w` lives until the end of the turn even if the handler removed it
}

}  // namespace twinloft::repl::io
