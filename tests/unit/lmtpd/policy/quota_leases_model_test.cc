// QuotaLeases against a model of Dovecot: random deliveries and looks of several threads and processes, whose
// questions and answers are on their way for a random time, and mail that other programs add and remove.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "twinloft/lmtpd/policy/quota_leases.h"

namespace twinloft::lmtpd {
namespace {

using For = QuotaLeases::For;

struct Shape {
  std::uint64_t limit = 0;           // of each mailbox
  std::uint64_t known = 0;           // the limit that lmtpd knows
  std::uint64_t messages_limit = 0;  // which lmtpd knows
  int processes = 1;
  bool appends = false;   // another program adds mail
  bool expunges = false;  // and removes mail
  bool errors = false;    // some questions get no answer
  std::size_t idle_max = 2;
};

constexpr std::size_t threads = 6, users = 3;
constexpr std::uint64_t message_max = 3000;

struct Mailbox {
  std::string name;
  std::uint64_t limit, messages_limit;
  std::uint64_t used = 0, messages = 0;
  std::uint64_t stored = 0;  // messages by lmtpd
  Room room(std::uint64_t bytes) const {
    if (bytes > limit) return Room::never;
    return used + bytes > limit || (messages_limit && messages + 1 > messages_limit) ? Room::full
                                                                                     : Room::enough;
  }
};

// A thread of a process with a request: it waits for its turn, its question is on the way, its answer is on
// the way, or its message is being stored.
struct Thread {
  enum class State { idle, waits, asks, answered, stores } state = State::idle;
  QuotaLeases* leases = nullptr;
  std::unique_ptr<QuotaLeases::Request> request{};
  Mailbox* mailbox = nullptr;
  std::uint64_t bytes = 0, question = 0;
  For purpose = For::look;
  Result<Room> answer = Room::enough;
  int questions = 0;
};

class Model {
 public:
  Model(const Shape& shape, unsigned seed) : shape_(shape), random_(seed) {
    for (std::size_t i = 0; i < users; ++i)
      mailboxes_.push_back({"user" + std::to_string(i), shape.limit, shape.messages_limit});
    for (int p = 0; p < shape.processes; ++p) {
      processes_.push_back(std::make_unique<QuotaLeases>(LeaseRules{.idle_max = shape.idle_max}));
      for (std::size_t i = 0; i < threads; ++i) threads_.push_back({.leases = processes_.back().get()});
    }
  }

  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) turn();
    for (int i = 0; i < 10'000 && busy(); ++i) advance(threads_[pick(threads_.size())]);
    EXPECT_FALSE(busy()) << "a request never ends";
  }

  int stored = 0, refused = 0, held = 0, questions = 0;

 private:
  std::size_t pick(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
  bool one_in(std::size_t n) { return pick(n) == 0; }
  bool busy() const {
    return std::ranges::any_of(threads_, [](const Thread& t) { return t.state != Thread::State::idle; });
  }

  void turn() {
    now_ = now_ + std::chrono::milliseconds(one_in(1000) ? 12'000 : pick(5));
    Mailbox& mailbox = mailboxes_[pick(users)];
    if (shape_.appends && one_in(20)) append(mailbox);
    if (shape_.expunges && one_in(200)) mailbox.used -= mailbox.used / (1 + pick(10)), mailbox.messages /= 2;
    Thread& thread = threads_[pick(threads_.size())];
    if (thread.state == Thread::State::idle)
      start(thread);
    else
      advance(thread);
    check();
  }

  // Dovecot knows nothing of leases.
  void append(Mailbox& mailbox) {
    const std::uint64_t bytes = 1 + pick(message_max);
    if (mailbox.room(bytes) != Room::enough) return;
    mailbox.used += bytes;
    ++mailbox.messages;
  }

  void start(Thread& thread) {
    thread.mailbox = &mailboxes_[pick(users)];
    thread.bytes = 1 + pick(one_in(10) ? message_max : 200);
    thread.purpose = one_in(2) ? For::look : For::delivery;
    thread.questions = 0;
    User user;
    user.name = thread.mailbox->name;
    user.quota = {shape_.known, shape_.messages_limit};
    thread.request = std::make_unique<QuotaLeases::Request>(user, thread.bytes, thread.purpose);
    take(thread, thread.leases->begin(*thread.request, now_));
  }

  void advance(Thread& thread) {
    switch (thread.state) {
      case Thread::State::idle:
        return;
      case Thread::State::waits:
        return take(thread, thread.leases->begin(*thread.request, now_));
      case Thread::State::asks:
        thread.answer = thread.mailbox->room(thread.question);
        if (shape_.errors && one_in(5)) thread.answer = fail(Errc::timeout, "no answer");
        thread.state = Thread::State::answered;
        return;
      case Thread::State::answered:
        return take(thread, thread.leases->answered(*thread.request, thread.answer, now_));
      case Thread::State::stores:
        if (!one_in(10)) {
          thread.mailbox->used += thread.bytes;
          ++thread.mailbox->messages;
          ++stored;
        }
        return end(thread);
    }
  }

  void take(Thread& thread, const QuotaLeases::Step& step) {
    if (auto* ask = std::get_if<QuotaLeases::Ask>(&step)) {
      thread.question = ask->bytes;
      ++thread.questions;
      ++questions;
      thread.state = Thread::State::asks;
    } else if (auto* done = std::get_if<QuotaLeases::Done>(&step)) {
      finish(thread, done->room);
    } else {
      EXPECT_TRUE(someone_asks(thread)) << "it waits for nobody";
      thread.state = Thread::State::waits;
    }
  }

  void finish(Thread& thread, const Result<Room>& room) {
    if (shape_.messages_limit && room) {
      EXPECT_GE(thread.questions, 1) << "a user with a limit of messages";
    }
    if (room && *room == Room::enough) {
      thread.state = Thread::State::stores;
      if (thread.purpose == For::look) end(thread);
      return;
    }
    if (room) {  // Dovecot has refused this very message, without those in flight
      EXPECT_EQ(thread.question, thread.bytes);
      EXPECT_EQ(thread.answer, *room);
      ++refused;
    } else if (room.error().code == Errc::exhausted) {
      EXPECT_EQ(thread.purpose, For::delivery);
      EXPECT_EQ(thread.answer, Room::enough);
      ++held;
    } else {
      EXPECT_FALSE(thread.answer);
    }
    end(thread);
  }

  void end(Thread& thread) {
    thread.leases->end(*thread.request, now_);
    thread.request = nullptr;
    thread.state = Thread::State::idle;
  }

  bool asks(const Thread& t) const {
    return t.state == Thread::State::asks || t.state == Thread::State::answered;
  }
  bool someone_asks(const Thread& waiting) const {
    return std::ranges::any_of(threads_, [&](const Thread& t) {
      return &t != &waiting && t.leases == waiting.leases && t.mailbox == waiting.mailbox && asks(t);
    });
  }

  void check() {
    // A single process, which nobody disturbs, never exceeds a limit. Otherwise a lease and a message for
    // each thread of each process may be too much.
    const std::uint64_t lease = shape_.known ? shape_.known / 64 : LeaseRules{}.bytes_unknown;
    const bool alone = shape_.processes == 1 && !shape_.appends;
    const std::uint64_t beyond = alone ? 0 : shape_.processes * (lease + threads * message_max);
    for (const Mailbox& mailbox : mailboxes_) {
      EXPECT_LE(mailbox.used, mailbox.limit + beyond);
      if (mailbox.messages_limit) {
        EXPECT_LE(mailbox.messages, mailbox.messages_limit + shape_.processes * threads);
      }
      for (const auto& process : processes_)
        EXPECT_LE(std::ranges::count_if(threads_,
                                        [&](const Thread& t) {
                                          return t.leases == process.get() && t.mailbox == &mailbox &&
                                                 t.purpose == For::delivery && asks(t);
                                        }),
                  1)
            << "two deliveries ask for one user";
    }
    for (const auto& process : processes_) EXPECT_LE(process->remembered(), shape_.idle_max + threads);
  }

  const Shape shape_;
  std::mt19937 random_;
  Instant now_{std::chrono::hours(1) / std::chrono::nanoseconds(1)};
  std::deque<Mailbox> mailboxes_;
  std::vector<std::unique_ptr<QuotaLeases>> processes_;
  std::vector<Thread> threads_;
};

struct Sums {
  int stored = 0, refused = 0, held = 0, questions = 0;
};

Sums run_models(const Shape& shape, unsigned seeds = 100, int steps = 10'000) {
  Sums sums;
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model model(shape, seed);
    model.run(steps);
    sums.stored += model.stored, sums.refused += model.refused;
    sums.held += model.held, sums.questions += model.questions;
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(sums.stored, 0);
  return sums;
}

TEST(QuotaLeasesModel, OneProcessAloneNeverExceedsALimit) {
  Sums sums = run_models({.limit = 20'000, .known = 20'000, .expunges = true});
  EXPECT_GT(sums.refused, 0);
  EXPECT_GT(sums.held, 0);
  run_models({.limit = 20'000, .known = 20'000, .expunges = true, .errors = true});
}

TEST(QuotaLeasesModel, AppendsExceedALimitByALeaseAtMost) {
  run_models({.limit = 20'000, .known = 20'000, .appends = true, .expunges = true, .errors = true});
  run_models({.limit = 20'000, .known = 20'000, .processes = 3, .appends = true, .expunges = true});
}

TEST(QuotaLeasesModel, ProcessesSideBySide) {
  run_models({.limit = 20'000, .known = 20'000, .processes = 2, .expunges = true});
}

// lmtpd's row has no limit, or another one.
TEST(QuotaLeasesModel, ALimitThatLmtpdDoesNotKnow) {
  run_models({.limit = 20'000, .known = 0, .expunges = true});
  run_models({.limit = 50'000'000, .known = 0, .appends = true});
  run_models({.limit = 20'000, .known = 640'000, .appends = true, .expunges = true});
}

TEST(QuotaLeasesModel, ALimitOfMessages) {
  run_models(
      {.limit = 10'000'000, .known = 10'000'000, .messages_limit = 50, .appends = true, .expunges = true});
}

TEST(QuotaLeasesModel, WithRoomThereAreFewQuestions) {
  Sums sums = run_models({.limit = 1'000'000'000, .known = 1'000'000'000, .idle_max = users});
  EXPECT_LT(sums.questions, sums.stored / 10);
}

}  // namespace
}  // namespace twinloft::lmtpd
