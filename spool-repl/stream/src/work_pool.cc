#include "twinloft/spool-repl/stream/work_pool.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "twinloft/base/check.h"

namespace twinloft::repl::stream {

// ---- lists

void WorkList::add(Work& work) {
  work.next_ = newest_.load(std::memory_order_relaxed);
  while (!newest_.compare_exchange_weak(work.next_, &work, std::memory_order_acq_rel)) {
  }
}

Work* WorkList::take_all() {
  Work* oldest = nullptr;
  for (Work* w = newest_.exchange(nullptr, std::memory_order_acq_rel); w;) {
    Work* next = std::exchange(w->next_, oldest);
    oldest = w;
    w = next;
  }
  return oldest;
}

Result<std::shared_ptr<DoneWork>> DoneWork::make() {
  Fd wakeup(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wakeup) return fail_errno(errno, "eventfd");
  return std::make_shared<DoneWork>(std::move(wakeup));
}

DoneWork::~DoneWork() {
  for (Work* w = list_.take_all(); w;) {
    Work* next = WorkList::next_of(*w);
    w->self_.reset();
    w = next;
  }
}

void DoneWork::add(Work& work) {
  list_.add(work);
  std::uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof one);
}

std::vector<std::shared_ptr<Work>> DoneWork::take() {
  std::uint64_t count;
  (void)!::read(wakeup_.get(), &count, sizeof count);
  std::vector<std::shared_ptr<Work>> all;
  for (Work* w = list_.take_all(); w;) {
    Work* next = WorkList::next_of(*w);
    all.push_back(std::move(w->self_));
    w = next;
  }
  return all;
}

// ---- the pool

WorkPool::WorkPool(unsigned threads) : threads_(std::max(threads, 1u)) {}

WorkPool::~WorkPool() {
  ends_ = true;
  hold(false);
  for (Class& c : classes_) {
    for (auto& t : c.threads) {
      ::sem_post(&t->waiting);
      ::pthread_join(t->id, nullptr);
      ::sem_destroy(&t->waiting);
      drop(t->list.take_all());
    }
  }
}

unsigned WorkPool::waiting() const {
  unsigned all = 0;
  for (const Class& c : classes_)
    for (const auto& t : c.threads) all += t->pending;
  return all;
}

void WorkPool::drop(Work* first) {
  for (Work* w = first; w;) {
    Work* next = WorkList::next_of(*w);
    std::shared_ptr<Work> dropped = std::move(w->self_);
    dropped->done_to_.reset();
    w = next;
  }
}

void WorkPool::submit(LinkClass link, std::shared_ptr<Work> work, std::shared_ptr<DoneWork> to) {
  Class& c = classes_[static_cast<std::size_t>(link)];
  std::call_once(c.started, [&] {
    for (unsigned i = 0; i < threads_; ++i) start(c, link);
  });
  auto pending = [](const auto& a, const auto& b) { return a->pending < b->pending; };
  Thread& least = **std::min_element(c.threads.begin(), c.threads.end(), pending);
  ++least.pending;
  Work& added = *work;
  added.done_to_ = std::move(to);
  added.self_ = std::move(work);
  least.list.add(added);
  ::sem_post(&least.waiting);
}

// With a small stack: it is locked in memory.
void WorkPool::start(Class& of, LinkClass link) {
  struct Begin {
    WorkPool& pool;
    Thread& thread;
    LinkClass link;
  };
  auto thread = std::make_unique<Thread>();
  auto begin = std::make_unique<Begin>(*this, *thread, link);
  auto body = [](void* data) -> void* {
    std::unique_ptr<Begin> b(static_cast<Begin*>(data));
    b->pool.run(b->thread, b->link);
    return nullptr;
  };
  pthread_attr_t attributes;
  TL_CHECK(::sem_init(&thread->waiting, 0, 0) == 0 && ::pthread_attr_init(&attributes) == 0 &&
           ::pthread_attr_setstacksize(&attributes, pool_stack_bytes) == 0);
  int error = ::pthread_create(&thread->id, &attributes, body, begin.get());
  ::pthread_attr_destroy(&attributes);
  // One is enough.
  TL_CHECK_MSG(error == 0 || !of.threads.empty(), "no thread can be started for compression");
  if (error != 0) return;
  (void)begin.release();
  of.threads.push_back(std::move(thread));
}

void WorkPool::run(Thread& self, LinkClass link) {
  ::pthread_setname_np(::pthread_self(), link == LinkClass::bulk ? "pack-bulk" : "pack");
  if (link == LinkClass::bulk) {
    sched_param none{};
    (void)::sched_setscheduler(0, SCHED_IDLE, &none);  // always allowed
  }
  compress::Coder coder;
  while (!ends_) {
    while (::sem_wait(&self.waiting) != 0) {
    }
    held_.wait(true);
    work_off(self, coder);
  }
}

void WorkPool::work_off(Thread& self, compress::Coder& coder) {
  for (Work* w = self.list.take_all(); w;) {
    if (ends_) return drop(w);
    Work* next = WorkList::next_of(*w);
    w->run(coder);
    --self.pending;
    std::shared_ptr<DoneWork> to = std::move(w->done_to_);
    to->add(*w);
    w = next;
  }
}

unsigned usual_pool_threads() {
  constexpr int most = 8;
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(std::clamp(CPU_COUNT(&set), 1, most));
}

}  // namespace twinloft::repl::stream
