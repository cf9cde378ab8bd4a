// Threads that compress and decompress for all links of a process.
//
// Links have a class. Each class has threads of its own, so that a link of the class `latency` never waits
// behind bulk. The threads of `bulk` run when the processors have nothing else to do (SCHED_IDLE, sched(7)).
//
// A link's thread and these threads share no lock: a thread that may not run for a while holds none that a
// link waits for.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <semaphore>
#include <thread>
#include <vector>

#include "twinloft/base/fd.h"
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
  friend class WorkPool;
  std::shared_ptr<Work> self_;         // while a pool has it
  std::shared_ptr<DoneWork> done_to_;  // the same
  Work* next_ = nullptr;
};

class DoneWork {
 public:
  DoneWork();
  int descriptor() const { return wakeup_.get(); }
  std::vector<std::shared_ptr<Work>> take();  // on the link's thread
  ~DoneWork() { (void)take(); }

 private:
  friend class WorkPool;
  void add(Work& work);
  std::atomic<Work*> first_{nullptr};
  Fd wakeup_;
};

class WorkPool {
 public:
  // threads: of each class. They start with the first work of their class.
  explicit WorkPool(unsigned threads);
  ~WorkPool();  // what has not begun is dropped
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  unsigned threads() const { return threads_; }
  // From any thread.
  void submit(LinkClass link, std::shared_ptr<Work> work, std::shared_ptr<DoneWork> to);

 private:
  class Queue;
  struct Threads {
    std::unique_ptr<Queue> queue;
    std::counting_semaphore<> waiting{0};
    std::once_flag started;
    std::vector<std::jthread> threads;
  };
  void run(Threads& of, LinkClass link);

  unsigned threads_;
  std::atomic<bool> ends_{false};
  std::array<Threads, 2> classes_;
};

// The number of processors that this process may use.
unsigned usable_processors();

}  // namespace twinloft::repl::stream
