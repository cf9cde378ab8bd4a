#include "filter.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <libmilter/mfapi.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "descriptors.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/log.h"
#include "twinloft/base/log_gate.h"

namespace twinloft::spool_milter {

namespace {

constexpr Duration answer_time_max = std::chrono::seconds(60);
constexpr Duration accept_time_max = std::chrono::seconds(30);

// libmilter passes no pointer of its owner to the callbacks.
struct State {
  explicit State(const Clock& k) : clock(k) {}
  const Clock& clock;
  FilterConfig config;
  LogGate closed_connections;
  std::atomic<std::size_t> spoken{0};   // connections whose MTAs have spoken
  std::atomic<std::uint64_t> begun{0};  // connections so far
  std::mutex mutex;
  std::multiset<Instant> answering;  // when the questions came
  int slot = -1;                     // libmilter's descriptor of its listening socket
  Fd placeholder;                    // the socket that libmilter has opened
  SocketName listening;              // of the socket that it serves
  Descriptors descriptors;
  // For takes_turns().
  std::optional<Instant> stuck_since;
  std::uint64_t begun_before = 0;
};
State* state = nullptr;

// One connection of an MTA.
struct Conversation {
  Conversation() { ++state->spoken; }
  ~Conversation() { --state->spoken; }
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;
  Sender sender;
};

// After QUIT_NC there is no negotiation, and so no conversation yet.
Conversation& conversation_of(SMFICTX* context) {
  auto* conversation = static_cast<Conversation*>(smfi_getpriv(context));
  if (!conversation) {
    conversation = new Conversation;
    smfi_setpriv(context, conversation);
  }
  return *conversation;
}

std::string_view macro(SMFICTX* context, const char* name) {
  const char* value = smfi_getsymval(context, const_cast<char*>(name));
  return value ? value : "";
}

// A question that is being answered.
class Answering {
 public:
  Answering() {
    std::lock_guard lock(state->mutex);
    place_ = state->answering.insert(state->clock.now());
  }
  ~Answering() {
    std::lock_guard lock(state->mutex);
    state->answering.erase(place_);
  }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

 private:
  std::multiset<Instant>::iterator place_;
};

// An exception must not reach libmilter, which is C. The MTA decides then.
template <class Work>
sfsistat safely(sfsistat otherwise, Work work) {
  try {
    return work();
  } catch (const std::exception& e) {
    log_error("unexpectedly: {}", e.what());
  } catch (...) {
    log_error("unexpectedly");
  }
  return otherwise;
}

void ask_for_macros(SMFICTX* context) {
  static char of_mail[] = "{auth_authen}", of_rcpt[] = "{rcpt_mailer} {rcpt_host}";
  (void)smfi_setsymlist(context, SMFIM_ENVFROM, of_mail);
  (void)smfi_setsymlist(context, SMFIM_ENVRCPT, of_rcpt);
}

// MAIL gets no reply (SMFIP_NR_MAIL). libmilter sends one to an MTA that does not know this.
sfsistat on_negotiate(SMFICTX* context, unsigned long actions, unsigned long steps, unsigned long,
                      unsigned long, unsigned long* wanted_actions, unsigned long* wanted_steps,
                      unsigned long* f2, unsigned long* f3) {
  constexpr unsigned long unheard = SMFIP_NOCONNECT | SMFIP_NOHELO | SMFIP_NOBODY | SMFIP_NOHDRS |
                                    SMFIP_NOEOH | SMFIP_NOUNKNOWN | SMFIP_NODATA;
  *wanted_steps = steps & (unheard | SMFIP_NR_MAIL);
  *wanted_actions = actions & SMFIF_SETSYMLIST;
  *f2 = *f3 = 0;
  return safely(SMFIS_REJECT, [&]() -> sfsistat {
    ++state->begun;
    if (state->spoken >= state->config.connections_max) {
      state->closed_connections.put(
          LogLevel::warning, state->clock.now(),
          fmt::format("connection closed: {} are open (spool_milter.connections)", state->spoken.load()));
      return SMFIS_REJECT;
    }
    conversation_of(context);
    if (*wanted_actions & SMFIF_SETSYMLIST) ask_for_macros(context);
    return SMFIS_CONTINUE;
  });
}

sfsistat on_mail(SMFICTX* context, char** words) {
  return safely(SMFIS_NOREPLY, [&]() -> sfsistat {
    std::vector<std::string_view> all;
    for (; *words; ++words) all.emplace_back(*words);
    conversation_of(context).sender = read_mail(all, macro(context, "{auth_authen}"));
    return SMFIS_NOREPLY;
  });
}

sfsistat tell(SMFICTX* context, const lmtpd::Reply& reply) {
  MilterReply out = milter_reply(reply);
  if (smfi_setreply(context, out.code.data(), out.enhanced.empty() ? nullptr : out.enhanced.data(),
                    out.text.data()) != MI_SUCCESS)
    log_error("libmilter does not take the reply {} {} {}", out.code, out.enhanced, out.text);
  return reply.code >= 500 ? SMFIS_REJECT : SMFIS_TEMPFAIL;
}

sfsistat on_rcpt(SMFICTX* context, char** words) {
  return safely(SMFIS_CONTINUE, [&]() -> sfsistat {
    const Answering now;
    const Sender& sender = conversation_of(context).sender;
    const AskedRecipient recipient{*words ? *words : "", macro(context, "{rcpt_mailer}"),
                                   macro(context, "{rcpt_host}")};
    auto reply = state->config.answer(sender, recipient);
    if (!reply) return SMFIS_CONTINUE;
    log_debug("recipient refused: from=<{}> to={}: {} {} {}", sender.address, recipient.word, reply->code,
              reply->enhanced, reply->text);
    return tell(context, *reply);
  });
}

sfsistat on_close(SMFICTX* context) {
  delete static_cast<Conversation*>(smfi_getpriv(context));
  smfi_setpriv(context, nullptr);
  return SMFIS_CONTINUE;
}

// Where libmilter opens its socket: a path that is removed at once, or any port of this machine.
class HiddenPlace {
 public:
  explicit HiddenPlace(int family) : family_(family) {}
  ~HiddenPlace() {
    if (directory_.empty()) return;
    (void)::unlink(path().c_str());
    (void)::rmdir(directory_.c_str());
  }
  HiddenPlace(const HiddenPlace&) = delete;
  HiddenPlace& operator=(const HiddenPlace&) = delete;

  // As smfi_setconn(3) takes it.
  Result<std::string> connection() {
    if (family_ == AF_INET) return "inet:0@[127.0.0.1]";
    if (family_ == AF_INET6) return "inet6:0@[::1]";
    std::string name = "/tmp/spool-milter.XXXXXX";
    if (!::mkdtemp(name.data())) return fail_errno(errno, "{}", name);
    directory_ = std::move(name);
    return "unix:" + path();
  }

 private:
  std::string path() const { return directory_ + "/unused"; }
  const int family_;
  std::string directory_;  // empty: none
};

Status register_filter() {
  static char name[] = "spool-milter";
  smfiDesc about{};
  about.xxfi_name = name;
  about.xxfi_version = SMFI_VERSION;
  about.xxfi_flags = SMFIF_SETSYMLIST;
  about.xxfi_envfrom = on_mail;
  about.xxfi_envrcpt = on_rcpt;
  about.xxfi_close = on_close;
  about.xxfi_negotiate = on_negotiate;
  if (smfi_register(about) != MI_SUCCESS) return fail(Errc::internal, "libmilter: smfi_register");
  return {};
}

// Returns libmilter's descriptor.
Result<int> open_socket_of_libmilter(int family) {
  HiddenPlace place(family);
  TL_TRY_ASSIGN(std::string connection, place.connection());
  const std::set<int> before = state->descriptors.listening();
  if (smfi_setconn(connection.data()) != MI_SUCCESS || smfi_opensocket(false) != MI_SUCCESS)
    return fail(Errc::unavailable, "libmilter cannot listen at {}", connection);
  std::set<int> opened = state->descriptors.listening();
  for (int fd : before) opened.erase(fd);
  if (opened.size() != 1)
    return fail(Errc::internal, "libmilter has opened {} listening sockets", opened.size());
  return *opened.begin();
}

Status put_in_slot(int socket) {
  if (::dup3(socket, state->slot, O_CLOEXEC) < 0) return fail_errno(errno, "libmilter's socket");
  return {};
}

}  // namespace

Result<Filter*> Filter::open(int family, const Clock& clock) {
  static Filter filter;
  static State the_state(clock);
  if (state) return fail(Errc::internal, "libmilter serves once in a process");
  state = &the_state;
  TL_TRY(state->descriptors.open());
  TL_TRY(register_filter());
  TL_TRY_ASSIGN(state->slot, open_socket_of_libmilter(family));
  state->placeholder.reset(::fcntl(state->slot, F_DUPFD_CLOEXEC, 3));
  // After release(), a thread of libmilter may still try to accept.
  if (!state->placeholder || ::fcntl(state->placeholder.get(), F_SETFL, O_NONBLOCK) != 0)
    return fail_errno(errno, "libmilter's socket");
  return &filter;
}

// On a thread of its own: smfi_main() blocks SIGHUP, SIGTERM and SIGINT in its thread, and obeys them. This
// process ignores them, and the kernel drops an ignored signal only if the main thread does not block it.
Status Filter::serve(int listening, FilterConfig config, std::function<void()> ended) {
  state->config = std::move(config);
  TL_TRY_ASSIGN(state->listening, SocketName::of(listening));
  TL_TRY(put_in_slot(listening));
  std::thread([ended = std::move(ended)] {
    (void)smfi_main();
    ended();
  }).detach();
  return {};
}

void Filter::release() {
  if (Status put = put_in_slot(state->placeholder.get()); !put) log_error("{}", put.error().message);
}

std::size_t Filter::connections() const {
  return state->descriptors.accepted(state->listening);
}

std::size_t Filter::questions() const {
  std::lock_guard lock(state->mutex);
  return state->answering.size();
}

bool Filter::takes_turns() {
  const Instant now = state->clock.now();
  {
    std::lock_guard lock(state->mutex);
    if (!state->answering.empty() && now - *state->answering.begin() > answer_time_max) return false;
  }
  pollfd waiting{state->slot, POLLIN, 0};
  const std::uint64_t begun = state->begun;
  const bool stuck = ::poll(&waiting, 1, 0) > 0 && begun == state->begun_before;
  state->begun_before = begun;
  if (!stuck) state->stuck_since.reset();
  if (stuck && !state->stuck_since) state->stuck_since = now;
  return !state->stuck_since || now - *state->stuck_since <= accept_time_max;
}

}  // namespace twinloft::spool_milter
