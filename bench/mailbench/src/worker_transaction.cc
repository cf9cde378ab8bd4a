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

// The content after its first `skip` bytes, in at most kPiecesMax pieces.
std::size_t content_left(const Message& message, std::size_t skip, iovec (&out)[kPiecesMax]) {
  std::size_t count = 0;
  auto add = [&](std::string_view piece) {
    if (skip >= piece.size()) {
      skip -= piece.size();
      return;
    }
    piece.remove_prefix(std::exchange(skip, 0));
    if (count < kPiecesMax) out[count++] = {const_cast<char*>(piece.data()), piece.size()};
  };
  add(message.head);
  for (std::string_view piece : message.middle) add(piece);
  add(message.tail);
  return count;
}
}  // namespace

// Does all steps that do not block. Afterwards the client waits for the server or for a time, or has ended.
void Worker::advance(std::size_t index) {
  Client& client = *clients_[index];
  if (client.phase == Client::Phase::greeting && client.session->ready()) on_connected(index);
  if (client.phase == Client::Phase::quitting && client.session->ended())
    return connection_lost(index, "");  // as asked for
  if (client.phase == Client::Phase::ready && !take_message(index)) return;
  if (client.phase != Client::Phase::backoff && client.phase != Client::Phase::ended) transmit(index);
}

void Worker::on_connected(std::size_t index) {
  Client& client = *clients_[index];
  ever_connected_ = true;
  stats_.connect_ns.record(static_cast<std::uint64_t>((now_ - client.connect_started).count()));
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
    arm(index, later->at);
    return false;
  }
  auto* grant = std::get_if<Schedule::Grant>(&decision);
  if (grant == nullptr) {
    end_client(index);
    return false;
  }
  factory_.make(grant->number, client.message);
  client.busy = client.all_replied = true;
  client.attempt = 0;
  client.began = grant->intended;
  client.pending.resize(client.message.recipients.size());
  for (std::size_t i = 0; i < client.pending.size(); ++i) client.pending[i] = i;
  begin_attempt(index);
  return true;
}

void Worker::begin_attempt(std::size_t index) {
  Client& client = *clients_[index];
  Envelope envelope{.from = context_.options.from, .to = {}, .size = client.message.size};
  for (std::size_t i : client.pending) envelope.to.push_back(client.message.recipients[i]);
  client.session->begin(envelope);
  client.content_at = 0;
  client.phase = Client::Phase::transaction;
  ++client.attempt;
  ++client.begun_on_connection;
  ++stats_.attempts;
  if (client.attempt > 1) ++stats_.retries;
  arm(index, now_ + context_.options.timeout);
}

bool Worker::transmit(std::size_t index) {
  Client& client = *clients_[index];
  for (;;) {
    std::string& commands = client.session->output();
    iovec pieces[kPiecesMax];
    std::size_t count = 1;
    bool content = commands.empty();
    if (!content)
      pieces[0] = {commands.data(), commands.size()};
    else if (!client.session->content_wanted())
      break;
    else
      count = content_left(client.message, client.content_at, pieces);
    if (count == 0) {
      client.session->content_sent();
      break;
    }
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
      client.content_at += static_cast<std::size_t>(n);
    else
      commands.erase(0, static_cast<std::size_t>(n));
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
  Status fed = client.session->feed(std::string_view(receive_buffer_).substr(0, static_cast<std::size_t>(n)));
  if (client.phase == Client::Phase::transaction) {
    if (client.session->finished())
      settle(index, client.session->take_results(), false);
    else
      arm(index, now_ + context_.options.timeout);
  }
  if (fed) return true;
  connection_lost(index, fed.error().message);
  return false;
}

// Records the outcome of this attempt for each recipient, and decides whether to repeat the message.
void Worker::settle(std::size_t index, std::span<const RecipientResult> results, bool lost) {
  Client& client = *clients_[index];
  TL_CHECK(results.size() == client.pending.size());
  auto since_us = static_cast<std::uint64_t>((now_ - context_.schedule.start()).count() / 1000);
  std::vector<std::size_t> again;
  std::vector<Outcome> again_outcomes;
  std::uint64_t acknowledged = 0;
  bool may_repeat = client.attempt < context_.options.attempts;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const RecipientResult& result = results[i];
    std::size_t recipient = client.pending[i];
    ++stats_.outcomes[static_cast<std::size_t>(result.outcome)];
    ++stats_.codes[result.code];
    if (context_.account != nullptr)
      append_line({client.message.id, client.message.recipients[recipient], client.message.digest,
                   client.message.size, result.outcome, result.code, client.attempt, since_us},
                  account_lines_);
    bool settled = result.outcome == Outcome::acknowledged || result.outcome == Outcome::refused;
    if (!settled && may_repeat) {
      again.push_back(recipient);
      again_outcomes.push_back(result.outcome);
      continue;
    }
    ++stats_.last_outcomes[static_cast<std::size_t>(result.outcome)];
    acknowledged += result.outcome == Outcome::acknowledged;
    if (result.code == 0) client.all_replied = false;
  }
  count_acknowledged(client, acknowledged);
  client.pending = std::move(again);
  client.pending_outcomes = std::move(again_outcomes);
  client.phase = Client::Phase::ready;
  client.retry_at = lost ? now_ : now_ + context_.options.retry_delay;
  if (!lost) client.backoff = Duration(0);
  if (client.pending.empty()) end_message(client);
}

void Worker::count_acknowledged(Client& client, std::uint64_t recipients) {
  if (recipients == 0) return;
  auto tick = static_cast<std::size_t>((now_ - context_.schedule.start()) / LoadStats::kTick);
  if (stats_.acknowledged_per_tick.size() <= tick) stats_.acknowledged_per_tick.resize(tick + 1);
  stats_.acknowledged_per_tick[tick] += static_cast<std::uint32_t>(recipients);
  if (now_ < context_.schedule.window_start() || now_ >= context_.schedule.window_end()) return;
  stats_.acknowledged += recipients;
  stats_.bytes += recipients * client.message.size;
  stats_.window = now_ - context_.schedule.window_start();
}

// After all replies, or after the last attempt.
void Worker::end_message(Client& client) {
  if (!client.pending.empty())  // the run has ended before their repetition
    for (Outcome outcome : client.pending_outcomes) ++stats_.last_outcomes[static_cast<std::size_t>(outcome)];
  bool in_window = now_ >= context_.schedule.window_start() && now_ < context_.schedule.window_end();
  if (in_window && client.all_replied && client.pending.empty()) {
    ++stats_.messages;
    stats_.latency_ns.record(static_cast<std::uint64_t>((now_ - client.began).count()));
  }
  client.pending.clear();
  client.busy = false;
}

}  // namespace twinloft::mailbench
