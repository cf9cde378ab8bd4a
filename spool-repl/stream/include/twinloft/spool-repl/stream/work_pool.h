// Threads that compress and decompress for all links of a process.
//
// Links have a class. Each class has threads of its own, so that a link of the class `latency` never waits
// behind bulk. The threads of `bulk` run when the processors have nothing else to do (SCHED_IDLE, sched(7)).
//
// A link's thread and these threads share no lock, and the links' threads allocate the memory of the work. A
// thread that may not run for a while holds nothing that a link waits for.
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/compress/coder.h"

namespace twinloft::repl::stream {

enum class LinkClass { latency, bulk };

// Work that is done, from the threads of a pool to the thread of a link. The descriptor is readable while
// there is some.
class DoneWork;

class Work {
 public:
  virtual ~Work() = default;
  virtual void run(compress::Coder& coder) = 0;  // on a thread of the pool

 private:
  friend class DoneWork;
  friend class WorkList;
  friend class WorkPool;
  std::shared_ptr<Work> self_;         // while a pool has it
  std::shared_ptr<DoneWork> done_to_;  // the same
  Work* next_ = nullptr;
};

// Work on its way to one thread: any thread adds, one takes everything. Without a lock.
class WorkList {
 public:
  void add(Work& work);
  // What was added, oldest first, linked by next_of().
  Work* take_all();
  static Work* next_of(const Work& work) { return work.next_; }

 private:
  std::atomic<Work*> newest_{nullptr};
};

class DoneWork {
 public:
  static Result<std::shared_ptr<DoneWork>> make();  // errors: no descriptor is left
  explicit DoneWork(Fd wakeup) : wakeup_(std::move(wakeup)) {}
  int descriptor() const { return wakeup_.get(); }
  std::vector<std::shared_ptr<Work>> take();  // on the link's thread
  ~DoneWork();

 private:
  friend class WorkPool;
  void add(Work& work);
  WorkList list_;
  Fd wakeup_;
};

inline constexpr std::size_t pool_stack_bytes = 1 << 20;

class WorkPool {
 public:
  // threads: of each class. They start with the first work of their class.
  explicit WorkPool(unsigned threads);
  ~WorkPool();  // what has not begun is dropped
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  unsigned threads() const { return threads_; }
  // For tests: its threads do nothing meanwhile, as on a busy machine.
  void hold(bool on) {
    held_ = on;
    held_.notify_all();
  }
  unsigned waiting() const;  // works of all classes that are not done
  // From any thread.
  void submit(LinkClass link, std::shared_ptr<Work> work, std::shared_ptr<DoneWork> to);

 private:
  // Each thread has a list of its own. Work goes to the thread with the least.
  struct Thread {
    WorkList list;
    std::atomic<unsigned> pending{0};
    sem_t waiting;
    pthread_t id;
  };
  struct Class {
    std::once_flag started;
    std::vector<std::unique_ptr<Thread>> threads;
  };
  void start(Class& of, LinkClass link);
  void run(Thread& self, LinkClass link);
  void work_off(Thread& self, compress::Coder& coder);
  static void drop(Work* first);

  unsigned threads_;
  std::atomic<bool> ends_{false}, held_{false};
  std::array<Class, 2> classes_;
};

// As many as the processors that this process may use, but not more than 8.
unsigned usual_pool_threads();

}  // namespace twinloft::repl::stream
