// The event loop and the connections. worker_transaction.cc has the transactions.
#include "twinloft/mailbench/worker.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "client.h"
#include "cpu_time.h"
#include "twinloft/base/check.h"

namespace twinloft::mailbench {

namespace {

using namespace std::chrono_literals;
constexpr Duration kBackoffMin = 10ms;
constexpr std::size_t kErrorKindsMax = 64;

// How long this thread was runnable and had no processor (Documentation/scheduler/sched-stats.rst). 0:
// unknown.
std::uint64_t thread_waited_ns() {
  auto text = read_file("/proc/thread-self/schedstat", 256);
  std::uint64_t waited = 0;
  if (!text) return 0;
  std::size_t blank = text->find(' ');
  if (blank != text->npos) std::from_chars(text->data() + blank + 1, text->data() + text->size(), waited);
  return waited;
}

timespec to_timespec(Duration d) {
  return {d.count() / 1'000'000'000, d.count() % 1'000'000'000};
}

}  // namespace

Worker::Worker(Context context, std::size_t first_client, std::size_t clients)
    : context_(context),
      first_client_(first_client),
      factory_(context.message_settings, context.users, context.block),
      seconds_(context.series, context.schedule.start()),
      receive_buffer_(16384, '\0') {
  constexpr std::size_t kEventsMax = 4096;
  events_.resize(std::clamp<std::size_t>(clients, 1, kEventsMax));
  context_.run.unconnected += static_cast<std::int64_t>(clients);
  for (std::size_t i = 0; i < clients; ++i) clients_.push_back(std::make_unique<Client>(i));
}

Worker::~Worker() = default;

Status Worker::run(const std::function<void(const LoadStats&)>& on_tick) {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail_errno(errno, "epoll_create1");
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds: due times are met to a microsecond
  now_ = context_.clock.now();
  live_ = clients_.size();
  Status status = loop(on_tick);
  if (!status || failure_) {
    context_.schedule.stop();  // the results of the other threads are invalid too
    abandon_all();
  }
  sample_generator();
  seconds_.flush();
  Status flushed = flush_account();
  if (failure_) return std::unexpected(*failure_);
  return status ? flushed : status;
}

Status Worker::loop(const std::function<void(const LoadStats&)>& on_tick) {
  for (std::size_t i = 0; i < clients_.size(); ++i)
    arm(i, context_.schedule.client_start(first_client_ + i, context_.options.clients));
  Instant next_tick = now_;
  while (live_ > 0 && !failure_) {
    int count = wait();
    if (count < 0) return fail_errno(-count, "epoll_pwait2");
    if (now_ >= context_.schedule.window_start() && !window_start_) sample_generator();
    bool in_window = context_.schedule.in_window(now_);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events_[static_cast<std::size_t>(i)];
      std::size_t index = event.data.u64 & 0xffffffff;
      if (clients_[index]->generation != event.data.u64 >> 32) continue;
      now_ = context_.clock.now();
      if (in_window)
        stats_.generator.lag_ns.record(static_cast<std::uint64_t>((now_ - waited_from_).count()));
      on_event(index, event.events);
    }
    now_ = context_.clock.now();
    fire_timers();
    wake_idle();
    if (!draining_ && context_.schedule.ended(now_)) begin_drain();
    if (!stopping_ && context_.schedule.over(now_)) end_idle_clients();
    if (draining_ && now_ >= drain_end_) abandon_all();
    TL_TRY(flush_account());
    if (now_ >= next_tick) {
      on_tick(stats_);
      next_tick = now_ + LoadStats::kTick;
    }
  }
  return {};
}

// Sets now_. Without a pause in the call, events may have waited since the last batch began.
int Worker::wait() {
  constexpr Duration kNoPause = 5us;
  Duration wait = LoadStats::kTick;
  Instant called = now_ = context_.clock.now();
  if (!timers_.empty()) wait = std::clamp(timers_.top().at - now_, Duration(0), wait);
  if (next_due_) wait = std::clamp(*next_due_ - now_, Duration(0), wait);
  timespec limit = to_timespec(wait);
  int count = ::epoll_pwait2(epoll_.get(), events_.data(), static_cast<int>(events_.size()), &limit, nullptr);
  now_ = context_.clock.now();
  waited_from_ = now_ - called < kNoPause ? std::exchange(batch_began_, now_) : (batch_began_ = now_);
  if (count >= 0) return count;
  return errno == EINTR ? 0 : -errno;
}

// Open loop: a client for each message that is due, the longest idle first. A client that gets no message
// goes back into the queue, and sets next_due_.
void Worker::wake_idle() {
  while (next_due_ && *next_due_ <= now_) {
    next_due_.reset();
    while (!next_due_ && !idle_.empty()) {
      auto [index, generation] = idle_.front();
      idle_.pop_front();
      Client& client = *clients_[index];
      if (!client.idle || client.generation != generation) continue;
      set_idle(client, false);
      now_ = context_.clock.now();
      woken_ = true;
      advance(index);
      woken_ = false;
    }
  }
}

void Worker::set_idle(Client& client, bool idle) {
  if (client.idle != idle) context_.run.idle += idle ? 1 : -1;
  client.idle = idle;
}

// --- timers: a deadline for each client, queued lazily, so that a later deadline costs nothing ---

void Worker::arm(std::size_t index, Instant at) {
  Client& client = *clients_[index];
  client.deadline = at;
  // Distant deadlines are checked again each second. Most have changed by then, so the queue stays short.
  Instant queue_at = std::min(at, now_ + 1s);
  if (client.timer_queued && *client.timer_queued <= queue_at) return;
  client.timer_queued = queue_at;
  timers_.push({queue_at, index});
}

void Worker::fire_timers() {
  while (!timers_.empty() && timers_.top().at <= now_) {
    Timer timer = timers_.top();
    timers_.pop();
    Client& client = *clients_[timer.client];
    if (client.timer_queued == timer.at) client.timer_queued.reset();
    if (client.phase == Client::Phase::ended) continue;
    now_ = context_.clock.now();
    if (client.deadline <= now_)
      on_timer(timer.client);
    else if (!client.timer_queued)
      arm(timer.client, client.deadline);
  }
}

void Worker::on_timer(std::size_t index) {
  Client& client = *clients_[index];
  switch (client.phase) {
    case Client::Phase::backoff:
      return connect(index);
    case Client::Phase::ready:
      return advance(index);
    case Client::Phase::connecting:
    case Client::Phase::greeting:
      return connection_lost(index, "time limit on connecting");
    case Client::Phase::transaction:
      return connection_lost(index, "time limit on a reply");
    case Client::Phase::quitting:
      return connection_lost(index, "time limit on QUIT");
    case Client::Phase::ended:
      return;
  }
}

// --- connections ---

void Worker::connect(std::size_t index) {
  Client& client = *clients_[index];
  if (stopping_ && !client.busy) return end_client(index);
  client.connect_started = now_ = context_.clock.now();
  auto fd = context_.endpoint.connect();
  client.phase = Client::Phase::connecting;
  if (!fd) return connection_lost(index, fd.error().message);
  client.fd = std::move(*fd);
  client.session.emplace(Session::Settings{.protocol = context_.options.protocol,
                                           .hello = context_.options.hello,
                                           .pipelining = context_.options.pipelining,
                                           .starttls = context_.options.starttls.has_value(),
                                           .chunking = context_.options.bdat},
                         client.connect_started);
  client.begun_on_connection = 0;
  ++client.generation;
  client.output_armed = true;
  epoll_event event{.events = EPOLLIN | EPOLLOUT,
                    .data = {.u64 = std::uint64_t{client.generation} << 32 | index}};
  TL_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, client.fd.get(), &event) == 0);
  arm(index, now_ + context_.options.timeout);
}

void Worker::wait_for_output(Client& client, bool wanted) {
  if (client.output_armed == wanted) return;
  client.output_armed = wanted;
  epoll_event event{.events = EPOLLIN | (wanted ? std::uint32_t{EPOLLOUT} : 0u),
                    .data = {.u64 = std::uint64_t{client.generation} << 32 | client.index}};
  TL_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.fd.get(), &event) == 0);
}

void Worker::on_event(std::size_t index, std::uint32_t events) {
  Client& client = *clients_[index];
  if (client.phase == Client::Phase::connecting) {
    if (int error = connect_error(client.fd.get()); error != 0)
      return connection_lost(index, fail_errno(error, "connect").error().message);
    if ((events & EPOLLOUT) == 0) return;
    client.phase = Client::Phase::greeting;
    wait_for_output(client, false);
    ++stats_.connections;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !receive(index)) return;
  advance(index);
}

void Worker::connection_lost(std::size_t index, const std::string& why) {
  Client& client = *clients_[index];
  Client::Phase phase = client.phase;
  bool asked_for = phase == Client::Phase::quitting;
  if (!asked_for) {
    bool known = stats_.errors.contains(why) || stats_.errors.size() < kErrorKindsMax;
    ++stats_.errors[known ? why : "other"];
  }
  bool ungreeted = phase == Client::Phase::greeting && !client.session->greeted();
  if (phase == Client::Phase::connecting || ungreeted)
    stats_.phase(Phase::connect).record(now_ - client.connect_started, false);
  if (phase == Client::Phase::connecting || phase == Client::Phase::greeting) ++stats_.failed_connections;
  if (client.session) take_times(client);
  if (phase == Client::Phase::transaction) settle(index, client.session->abandon(), true);
  close(client);
  client.phase = Client::Phase::backoff;
  if (!context_.run.connected && now_ - context_.schedule.start() >= context_.options.connect_timeout) {
    failure_ = Error{Errc::unavailable,
                     fmt::format("{}: no connection since the start: {}", context_.options.server, why)};
    return;
  }
  if (stopping_ && !client.busy) return end_client(index);
  if (!asked_for)
    client.backoff = std::min(std::max(client.backoff * 2, kBackoffMin), context_.options.backoff_max);
  arm(index, asked_for ? now_ : now_ + client.backoff);
}

void Worker::close(Client& client) {
  client.fd.reset();  // which also removes it from the epoll set
  client.session.reset();
  client.tls.reset();
  set_idle(client, false);
  ++client.generation;
}

void Worker::end_client(std::size_t index) {
  Client& client = *clients_[index];
  if (client.phase == Client::Phase::ended) return;
  if (client.session && client.session->ready()) {
    client.session->quit();
    if (client.tls) (void)client.tls->write(client.session->output());
    // One attempt: the figures do not depend on whether the server receives it.
    std::string_view farewell = client.tls ? client.tls->output() : client.session->output();
    (void)!::send(client.fd.get(), farewell.data(), farewell.size(), MSG_NOSIGNAL);
  }
  close(client);
  client.phase = Client::Phase::ended;
  --live_;
}

// --- the end of the run ---

// No message becomes due any more. The window ends; an open loop still sends what is late.
void Worker::begin_drain() {
  draining_ = true;
  if (!context_.run.drained.exchange(true)) context_.run.waiting = context_.schedule.behind(now_);
  drain_end_ = now_ + context_.options.schedule.drain;
  sample_generator();
}

void Worker::end_idle_clients() {
  stopping_ = true;
  next_due_.reset();
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    Client& client = *clients_[i];
    bool waits_for_quit = client.phase == Client::Phase::quitting;
    if (!client.busy && !waits_for_quit) end_client(i);
  }
}

void Worker::abandon_all() {
  stopping_ = true;
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    Client& client = *clients_[i];
    if (client.phase == Client::Phase::transaction) settle(i, client.session->abandon(), true);
    if (client.busy) end_message(client);
    end_client(i);
  }
}

Status Worker::flush_account() {
  if (context_.account == nullptr || account_lines_.empty()) return {};
  Status appended = context_.account->append(account_lines_);
  account_lines_.clear();
  return appended;
}

Worker::Sample Worker::sample_thread(Instant now) {
  return {now, cpu_ns(RUSAGE_THREAD), thread_waited_ns()};
}

// First call: the window begins. Second: it ends. Attempts are counted between the same two points.
void Worker::sample_generator() {
  GeneratorStats& g = stats_.generator;
  if (!window_start_) {
    window_start_ = sample_thread(now_);
    g.cpu_attempts = stats_.attempts;
    return;
  }
  if (window_done_) return;
  window_done_ = true;
  Sample end = sample_thread(now_);
  g.cpu_ns = end.cpu_ns - window_start_->cpu_ns;
  g.cpu_attempts = stats_.attempts - g.cpu_attempts;
  double took = static_cast<double>((end.at - window_start_->at).count());
  if (took <= 0) return;
  g.waited = static_cast<double>(end.waited_ns - window_start_->waited_ns) / took;
  g.busiest = static_cast<double>(g.cpu_ns) / took + g.waited;
}

}  // namespace twinloft::mailbench
