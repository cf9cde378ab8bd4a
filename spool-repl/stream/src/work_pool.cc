#include "twinloft/spool-repl/stream/work_pool.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <boost/lockfree/queue.hpp>
#include <utility>

#include "twinloft/base/check.h"

namespace twinloft::repl::stream {

// ---- done work

DoneWork::DoneWork() : wakeup_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  TL_CHECK_MSG(wakeup_, "no descriptor is left for eventfd(2)");
}

void DoneWork::add(Work& work) {
  work.next_ = first_.load(std::memory_order_relaxed);
  while (!first_.compare_exchange_weak(work.next_, &work, std::memory_order_acq_rel)) {
  }
  std::uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof one);
}

std::vector<std::shared_ptr<Work>> DoneWork::take() {
  std::uint64_t count;
  (void)!::read(wakeup_.get(), &count, sizeof count);
  std::vector<std::shared_ptr<Work>> all;
  for (Work* w = first_.exchange(nullptr, std::memory_order_acq_rel); w;) {
    Work* next = w->next_;
    all.push_back(std::move(w->self_));
    w = next;
  }
  return all;
}

// ---- the pool

class WorkPool::Queue : public boost::lockfree::queue<Work*> {
 public:
  Queue() : queue(128) {}
};

WorkPool::WorkPool(unsigned threads) : threads_(std::max(threads, 1u)) {
  for (Threads& c : classes_) c.queue = std::make_unique<Queue>();
}

WorkPool::~WorkPool() {
  ends_ = true;
  for (Threads& c : classes_) {
    c.waiting.release(static_cast<std::ptrdiff_t>(c.threads.size()));
    c.threads.clear();  // joins them
    Work* left = nullptr;
    while (c.queue->pop(left)) {
      std::shared_ptr<Work> dropped = std::move(left->self_);
      dropped->done_to_.reset();
    }
  }
}

void WorkPool::submit(LinkClass link, std::shared_ptr<Work> work, std::shared_ptr<DoneWork> to) {
  Threads& c = classes_[static_cast<std::size_t>(link)];
  std::call_once(c.started, [&] {
    for (unsigned i = 0; i < threads_; ++i) c.threads.emplace_back([this, &c, link] { run(c, link); });
  });
  Work* raw = work.get();
  raw->done_to_ = std::move(to);
  raw->self_ = std::move(work);
  TL_CHECK_MSG(c.queue->push(raw), "no memory");
  c.waiting.release();
}

void WorkPool::run(Threads& of, LinkClass link) {
  ::pthread_setname_np(::pthread_self(), link == LinkClass::bulk ? "pack-bulk" : "pack");
  if (link == LinkClass::bulk) {
    sched_param none{};
    (void)::sched_setscheduler(0, SCHED_IDLE, &none);  // always allowed
  }
  compress::Coder coder;
  for (;;) {
    of.waiting.acquire();
    if (ends_) return;
    Work* work = nullptr;
    if (!of.queue->pop(work)) continue;
    work->run(coder);
    std::shared_ptr<DoneWork> to = std::move(work->done_to_);
    to->add(*work);
  }
}

unsigned usable_processors() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(std::max(CPU_COUNT(&set), 1));
}

}  // namespace twinloft::repl::stream
