// The transactions of a client: a message is taken, sent, answered and repeated.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "client.h"
#include "twinloft/base/check.h"
#include "twinloft/mailbench/worker.h"

namespace twinloft::mailbench {

namespace {
constexpr Duration kQuitLimit = std::chrono::seconds(5);
constexpr std::size_t kPiecesMax = 64;
constexpr std::size_t kEncryptedAtOnce = 1 << 16;  // bytes of content

// The content that is not sent, in at most kPiecesMax pieces.
std::size_t content_left(std::span<const std::string_view> content, std::size_t piece, std::size_t piece_at,
                         iovec (&out)[kPiecesMax]) {
  std::size_t count = 0;
  for (; piece < content.size() && count < kPiecesMax; ++piece, piece_at = 0) {
    std::string_view rest = content[piece].substr(piece_at);
    out[count++] = {const_cast<char*>(rest.data()), rest.size()};
  }
  return count;
}
}  // namespace

// Does all steps that do not block. Afterwards the client waits for the server or for a time, or has ended.
void Worker::advance(std::size_t index) {
  Client& client = *clients_[index];
  if (client.idle) return;
  if (client.phase == Client::Phase::greeting && client.session->ready()) on_connected(index);
  if (client.phase == Client::Phase::quitting && client.session->ended())
    return connection_lost(index, "");  // as asked for
  if (client.phase == Client::Phase::ready && !take_message(index)) return;
  if (client.phase != Client::Phase::backoff && client.phase != Client::Phase::ended) transmit(index);
}

void Worker::on_connected(std::size_t index) {
  Client& client = *clients_[index];
  context_.run.connected = true;
  if (!std::exchange(client.has_connected, true)) --context_.run.unconnected;
  stats_.pipelining = client.session->pipelining();
  client.phase = Client::Phase::ready;
}

// False: no message to send now.
bool Worker::take_message(std::size_t index) {
  Client& client = *clients_[index];
  std::uint64_t limit = context_.options.messages_per_connection;
  if (limit != 0 && client.begun_on_connection >= limit) {
    client.session->quit();
    client.phase = Client::Phase::quitting;
    arm(index, now_ + kQuitLimit);
    return true;
  }
  if (client.busy) {
    if (client.retry_at > now_) {
      arm(index, client.retry_at);
      return false;
    }
    begin_attempt(index);
    return true;
  }
  auto decision = context_.schedule.take(now_);
  if (auto* later = std::get_if<Schedule::Later>(&decision)) {
    set_idle(client, true);
    client.deadline = Instant{INT64_MAX};
    idle_.emplace_back(index, client.generation);
    next_due_ = std::min(next_due_.value_or(later->at), later->at);
    return false;
  }
  auto* grant = std::get_if<Schedule::Grant>(&decision);
  if (grant == nullptr) {
    end_client(index);
    return false;
  }
  factory_.make(grant->number, client.message);
  take_intended(client, grant->intended);
  client.busy = client.all_acknowledged = true;
  client.attempt = 0;
  client.pending.resize(client.message.recipients.size());
  for (std::size_t i = 0; i < client.pending.size(); ++i) client.pending[i] = i;
  begin_attempt(index);
  return true;
}

// A message that is sent late waited for a connection, for a free client, or for this thread.
void Worker::take_intended(Client& client, Instant due) {
  client.due = due;
  client.began = now_;
  if (!context_.schedule.open_loop() || !context_.schedule.in_window(due)) return;
  GeneratorStats& g = stats_.generator;
  if (woken_ || context_.run.idle > 0)
    g.late_ns.record(static_cast<std::uint64_t>((now_ - due).count()));
  else if (due < now_)
    ++(context_.run.unconnected > 0 ? g.without_connection : g.without_client);
  else
    g.late_ns.record(0);
}

void Worker::begin_attempt(std::size_t index) {
  Client& client = *clients_[index];
  lay_out_content(client);
  Envelope envelope{.from = context_.options.from,
                    .size = client.message.size,
                    .chunks = std::max<std::size_t>(1, client.commands.size()),
                    .eight_bit = client.message.eight_bit};
  for (std::size_t i : client.pending) envelope.to.push_back(client.message.recipients[i]);
  if (client.message.eight_bit && !client.session->eight_bit()) stats_.eight_bit_refused = true;
  client.session->begin(envelope, now_);
  client.phase = Client::Phase::transaction;
  ++client.attempt;
  ++client.begun_on_connection;
  ++stats_.attempts;
  if (client.attempt > 1) ++stats_.retries;
  arm(index, now_ + context_.options.timeout);
}

// With BDAT, a command comes before each chunk, and pieces are cut where chunks end.
void Worker::lay_out_content(Client& client) {
  const Message& message = client.message;
  client.content.clear();
  client.commands.clear();
  client.piece = client.piece_at = 0;
  std::uint64_t left = message.size, in_chunk = 0;
  auto add = [&](std::string_view piece) {
    while (!piece.empty()) {
      if (context_.options.bdat && in_chunk == 0) {
        in_chunk = context_.options.chunk == 0 ? left : std::min(left, context_.options.chunk);
        left -= in_chunk;
        client.commands.push_back(fmt::format("BDAT {}{}\r\n", in_chunk, left == 0 ? " LAST" : ""));
        client.content.push_back(client.commands.back());
      }
      std::string_view part = context_.options.bdat ? piece.substr(0, in_chunk) : piece;
      client.content.push_back(part);
      piece.remove_prefix(part.size());
      in_chunk -= context_.options.bdat ? part.size() : 0;
    }
  };
  add(message.head);
  for (std::string_view piece : message.middle) add(piece);
  add(message.tail);
}

void Worker::sent_content(Client& client, std::size_t bytes) {
  while (bytes > 0) {
    std::size_t rest = client.content[client.piece].size() - client.piece_at;
    if (bytes < rest) {
      client.piece_at += bytes;
      return;
    }
    bytes -= rest;
    ++client.piece;
    client.piece_at = 0;
  }
}

// TLS: encrypts the commands, or the next part of the content, if nothing encrypted waits to be sent.
void Worker::encrypt_more(Client& client) {
  if (!client.tls->output().empty()) return;
  std::string& commands = client.session->output();
  if (!commands.empty()) {
    (void)client.tls->write(commands);
    commands.clear();
    return;
  }
  std::size_t bytes = 0;
  while (client.session->content_wanted() && !client.whole_content_sent() && bytes < kEncryptedAtOnce) {
    std::string_view part = client.content[client.piece].substr(client.piece_at, kEncryptedAtOnce);
    (void)client.tls->write(part);
    sent_content(client, part.size());
    bytes += part.size();
  }
}

bool Worker::transmit(std::size_t index) {
  Client& client = *clients_[index];
  for (;;) {
    if (client.tls && client.tls->established()) encrypt_more(client);
    std::string& ready = client.tls ? client.tls->output() : client.session->output();
    iovec pieces[kPiecesMax];
    std::size_t count = 1;
    bool content = ready.empty() && !client.tls && client.session->content_wanted();
    if (!ready.empty())
      pieces[0] = {ready.data(), ready.size()};
    else
      count = content ? content_left(client.content, client.piece, client.piece_at, pieces) : 0;
    if (count == 0) {
      if (client.session->content_wanted() && client.whole_content_sent())
        client.session->content_sent(client.last_sent);
      break;
    }
    if (client.session->content_wanted()) client.last_sent = context_.clock.now();
    msghdr header{};
    header.msg_iov = pieces;
    header.msg_iovlen = count;
    ssize_t n = ::sendmsg(client.fd.get(), &header, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait_for_output(client, true);
      return true;
    }
    if (n < 0) {
      connection_lost(index, fail_errno(errno, "send").error().message);
      return false;
    }
    if (content)
      sent_content(client, static_cast<std::size_t>(n));
    else
      ready.erase(0, static_cast<std::size_t>(n));
    if (client.phase == Client::Phase::transaction) arm(index, now_ + context_.options.timeout);
  }
  wait_for_output(client, false);
  return true;
}

bool Worker::receive(std::size_t index) {
  Client& client = *clients_[index];
  ssize_t n = 0;
  do n = ::recv(client.fd.get(), receive_buffer_.data(), receive_buffer_.size(), 0);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
  if (n <= 0) {
    bool within = client.phase == Client::Phase::transaction;
    connection_lost(index, n < 0    ? fail_errno(errno, "receive").error().message
                           : within ? "closed by the server within a transaction"
                                    : "closed by the server between transactions");
    return false;
  }
  Status fed = feed(client, std::string_view(receive_buffer_).substr(0, static_cast<std::size_t>(n)));
  take_times(client);
  if (client.phase == Client::Phase::transaction) {
    if (client.session->finished())
      settle(index, client.session->take_results(), false);
    else
      arm(index, now_ + context_.options.timeout);
  }
  if (fed) return true;
  // Without what the options demand, no connection can succeed.
  if (client.session->handshake_wanted()) client.session->handshake_failed(now_);
  if (fed.error().code == Errc::invalid || fed.error().code == Errc::denied)
    failure_ = Error{Errc::unavailable, fmt::format("{}: {}", context_.options.server, fed.error().message)};
  connection_lost(index, fed.error().message);
  return false;
}

// Passes received bytes to the session, through TLS if it is there.
Status Worker::feed(Client& client, std::string_view bytes) {
  if (!client.tls) {
    TL_TRY(client.session->feed(bytes, now_));
    if (client.session->handshake_wanted()) {
      client.tls.emplace(*context_.tls);
      return client.tls->feed({});
    }
    return {};
  }
  TL_TRY(client.tls->feed(bytes));
  if (client.session->handshake_wanted() && client.tls->established()) client.session->secured(now_);
  char plain[4096];
  for (;;) {
    TL_TRY_ASSIGN(std::size_t size, client.tls->read(plain));
    if (size == 0) return {};
    TL_TRY(client.session->feed({plain, size}, now_));
  }
}

// The connection's phases count over the whole run, since most connections are made before the window.
void Worker::take_times(Client& client) {
  bool in_window = context_.schedule.in_window(now_);
  for (const PhaseTime& time : client.session->take_times())
    if (in_window || time.phase <= Phase::hello) stats_.phase(time.phase).record(time.took, time.good);
}

// Records the outcome of this attempt for each recipient, and decides whether to repeat the message.
void Worker::settle(std::size_t index, std::span<const RecipientResult> results, bool lost) {
  Client& client = *clients_[index];
  TL_CHECK(results.size() == client.pending.size());
  auto since_us = static_cast<std::uint64_t>((now_ - context_.schedule.start()).count() / 1000);
  std::vector<std::size_t> again;
  std::vector<Outcome> again_outcomes;
  std::uint64_t acknowledged = 0;
  bool may_repeat = client.attempt < context_.options.attempts, deferred = false;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const RecipientResult& result = results[i];
    std::size_t recipient = client.pending[i];
    count_outcome(result.outcome, result.code);
    if (context_.account != nullptr)
      append_line({client.message.id, client.message.recipients[recipient], client.message.digest,
                   client.message.size, result.outcome, result.code, client.attempt, since_us},
                  account_lines_);
    deferred = deferred || result.outcome == Outcome::deferred;
    bool settled = result.outcome == Outcome::acknowledged || result.outcome == Outcome::refused;
    if (!settled && may_repeat) {
      again.push_back(recipient);
      again_outcomes.push_back(result.outcome);
      continue;
    }
    ++stats_.last_outcomes[static_cast<std::size_t>(result.outcome)];
    acknowledged += result.outcome == Outcome::acknowledged;
    if (result.outcome != Outcome::acknowledged) client.all_acknowledged = false;
  }
  count_acknowledged(client, acknowledged);
  client.pending = std::move(again);
  client.pending_outcomes = std::move(again_outcomes);
  client.phase = Client::Phase::ready;
  client.retry_at = lost && !deferred ? now_ : now_ + context_.options.retry_delay;
  if (!lost) client.backoff = Duration(0);
  if (client.pending.empty()) end_message(client);
}

void Worker::count_outcome(Outcome outcome, int code) {
  ++stats_.outcomes[static_cast<std::size_t>(outcome)];
  ++stats_.codes[code];
  seconds_.count(now_, outcome == Outcome::acknowledged);
}

void Worker::count_acknowledged(Client& client, std::uint64_t recipients) {
  if (recipients == 0) return;
  auto tick = static_cast<std::size_t>((now_ - context_.schedule.start()) / LoadStats::kTick);
  if (stats_.acknowledged_per_tick.size() <= tick) stats_.acknowledged_per_tick.resize(tick + 1);
  stats_.acknowledged_per_tick[tick] += static_cast<std::uint32_t>(recipients);
  if (!context_.schedule.in_window(now_)) return;
  stats_.acknowledged += recipients;
  stats_.bytes += recipients * client.message.size;
  stats_.window = now_ - context_.schedule.window_start();
}

// After all replies, after the last attempt, or at the end of the drain. Without an acknowledgement for each
// recipient, the time until then counts as a failure.
void Worker::end_message(Client& client) {
  if (!client.pending.empty())  // the run has ended before their repetition
    for (Outcome outcome : client.pending_outcomes) ++stats_.last_outcomes[static_cast<std::size_t>(outcome)];
  bool good = client.all_acknowledged && client.pending.empty();
  if (good) seconds_.record(now_ - client.due);
  // An open loop counts the messages that were due in the window, however late they end: otherwise those that
  // wait in a stall at its end would be missing. A closed loop counts those that end in it.
  if (context_.schedule.in_window(context_.schedule.open_loop() ? client.due : now_)) {
    ++stats_.messages;
    stats_.latency.record(now_ - client.due, good);
    if (context_.schedule.open_loop()) stats_.service.record(now_ - client.began, good);
  }
  client.pending.clear();
  client.busy = false;
}

}  // namespace twinloft::mailbench
