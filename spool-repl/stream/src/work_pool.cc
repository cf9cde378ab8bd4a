#include "twinloft/spool-repl/stream/work_pool.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <boost/lockfree/queue.hpp>
#include <cerrno>
#include <utility>

#include "twinloft/base/check.h"

namespace twinloft::repl::stream {

// ---- done work

Result<std::shared_ptr<DoneWork>> DoneWork::make() {
  Fd wakeup(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wakeup) return fail_errno(errno, "eventfd");
  return std::make_shared<DoneWork>(std::move(wakeup));
}

DoneWork::~DoneWork() {
  for (Work* w = first_.exchange(nullptr, std::memory_order_acq_rel); w;) {
    Work* next = w->next_;
    w->self_.reset();
    w = next;
  }
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
  for (Threads& c : classes_) {
    c.queue = std::make_unique<Queue>();
    TL_CHECK(::sem_init(&c.waiting, 0, 0) == 0);
  }
}

WorkPool::~WorkPool() {
  ends_ = true;
  hold(false);
  for (Threads& c : classes_) {
    for (std::size_t i = 0; i < c.threads.size(); ++i) ::sem_post(&c.waiting);
    for (pthread_t thread : c.threads) ::pthread_join(thread, nullptr);
    Work* left = nullptr;
    while (c.queue->pop(left)) {
      std::shared_ptr<Work> dropped = std::move(left->self_);
      dropped->done_to_.reset();
    }
    ::sem_destroy(&c.waiting);
  }
}

void WorkPool::submit(LinkClass link, std::shared_ptr<Work> work, std::shared_ptr<DoneWork> to) {
  Threads& c = classes_[static_cast<std::size_t>(link)];
  std::call_once(c.started, [&] {
    for (unsigned i = 0; i < threads_; ++i) start(c, link);
  });
  Work* raw = work.get();
  raw->done_to_ = std::move(to);
  raw->self_ = std::move(work);
  TL_CHECK_MSG(c.queue->push(raw), "no memory");
  ::sem_post(&c.waiting);
}

// With a small stack: it is locked in memory.
void WorkPool::start(Threads& of, LinkClass link) {
  struct Begin {
    WorkPool& pool;
    Threads& of;
    LinkClass link;
  };
  auto begin = std::make_unique<Begin>(*this, of, link);
  auto body = [](void* data) -> void* {
    std::unique_ptr<Begin> b(static_cast<Begin*>(data));
    b->pool.run(b->of, b->link);
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_t thread;
  TL_CHECK(::pthread_attr_init(&attributes) == 0 &&
           ::pthread_attr_setstacksize(&attributes, pool_stack_bytes) == 0);
  int error = ::pthread_create(&thread, &attributes, body, begin.get());
  ::pthread_attr_destroy(&attributes);
  // One is enough.
  TL_CHECK_MSG(error == 0 || !of.threads.empty(), "no thread can be started for compression");
  if (error != 0) return;
  (void)begin.release();
  of.threads.push_back(thread);
}

void WorkPool::run(Threads& of, LinkClass link) {
  ::pthread_setname_np(::pthread_self(), link == LinkClass::bulk ? "pack-bulk" : "pack");
  if (link == LinkClass::bulk) {
    sched_param none{};
    (void)::sched_setscheduler(0, SCHED_IDLE, &none);  // always allowed
  }
  compress::Coder coder;
  for (;;) {
    while (::sem_wait(&of.waiting) != 0) {
    }
    held_.wait(true);
    if (ends_) return;
    Work* work = nullptr;
    if (!of.queue->pop(work)) continue;
    work->run(coder);
    std::shared_ptr<DoneWork> to = std::move(work->done_to_);
    to->add(*work);
  }
}

unsigned usual_pool_threads() {
  constexpr int most = 8;
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(std::clamp(CPU_COUNT(&set), 1, most));
}

}  // namespace twinloft::repl::stream
