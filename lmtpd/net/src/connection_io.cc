// The I/O of a Connection: sending, reading, and the TLS handshake.
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <exception>

#include "connection.h"

namespace twinloft::lmtpd {

namespace asio = boost::asio;

// Sends all collected replies in one call. The remaining bytes follow when the socket has room.
void Connection::flush() {
  if (phase_ == Phase::closed || writer_.is_waiting()) return;
  // Replies to pipelined commands are sent together with the reply that waits for an answer, because the
  // client waits for that reply anyway.
  if (asked_ && phase_ == Phase::open && writer_.may_be_held_back()) return;
  switch (writer_.flush(wire_)) {
    case ReplyWriter::Flushed::all:
      return all_sent();
    case ReplyWriter::Flushed::needs_room:
      return wait_writable();
    case ReplyWriter::Flushed::needs_to_read:
      return wait_readable();
    case ReplyWriter::Flushed::broken:
      return close();
  }
}

void Connection::all_sent() {
  if (phase_ == Phase::closing) return linger();
  if (session_.holds_back() && phase_ == Phase::open) return go_on_with_input();
  session_.replies_sent();
  if (session_.in_handshake() && !wire_.is_secured()) return begin_tls();
  // A client that has closed its side still gets the replies that it waits for.
  if (reader_.ended() && session_.waits_for_client()) return close();
  wait_readable();
}

// Posted to the loop, so that other connections get their turn. While a part is being stored, nothing is
// done: the end of the write calls this again.
void Connection::go_on_with_input() {
  if (message_.is_storing()) return;
  asio::post(loop_.io(), [self = shared_from_this()] {
    if (self->phase_ != Phase::open || !self->writer_.empty() || self->message_.is_storing())
      return;  // flush() calls this again
    self->safely([&] {
      self->session_.replies_sent();
      while (self->perform_once()) {
      }
      self->note_transaction();
      self->flush();
    });
  });
}

// The client's next bytes belong to the handshake. The session has discarded clear text sent ahead; clear
// text that arrives later makes the handshake fail.
void Connection::begin_tls() {
  if (Status begun = wire_.start_tls(hub_.config.tls); !begun) {
    log_error("connection dropped: {}", begun.error().message);
    return close();
  }
  go_on_with_handshake();
}

void Connection::go_on_with_handshake() {
  switch (wire_.handshake().state) {
    case Wire::State::done:
      session_.tls_started(wire_.how());
      patience_.note_progress(hub_.clock.now());
      return perform();
    case Wire::State::want_read:
      return wait_readable();
    case Wire::State::want_write:
      return wait_writable();
    default:
      hub_.handshakes.put(LogLevel::warning, hub_.clock.now(),
                          fmt::format("a TLS handshake with {} has failed: {}", address_text(peer_),
                                      wire_.why().empty() ? "the connection ended" : wire_.why()));
      return linger();  // the alert tells the client the reason
  }
}

void Connection::wait_readable() {
  bool wanted = phase_ == Phase::lingering || phase_ == Phase::proxied ||
                (phase_ == Phase::open && (session_.wants_input() || session_.in_handshake()));
  if (!reader_.may_wait() || message_.is_storing() || !wanted) return;
  auto ready = [self = shared_from_this()](const boost::system::error_code& error) {
    self->safely([&] {
      self->reader_.ready();
      if (error) return self->close();
      self->on_readable();
    });
  };
  reader_.wait();
  if (phase_ != Phase::lingering && wire_.holds_input())
    return asio::post(loop_.io(), [ready] { ready({}); });
  socket_.async_wait(asio::socket_base::wait_read, ready);
}

void Connection::on_readable() {
  if (phase_ == Phase::closed || message_.is_storing())
    return;  // flush() waits for input again once the part of the message is stored
  if (phase_ == Phase::lingering) return discard_input();
  if (session_.in_handshake() && wire_.is_secured()) return go_on_with_handshake();
  if (read_once()) flush();
}

// Bytes are not decrypted: TLS may have failed. Unread bytes would make close() reset the connection.
void Connection::discard_input() {
  std::vector<char>& buffer = loop_.buffer();
  const ssize_t got = ::recv(socket_.native_handle(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return close();
  wait_readable();
}

// False: the connection is closed. While the client does not read its replies, no commands are read from it.
bool Connection::read_once() {
  std::vector<char>& buffer = loop_.buffer();
  std::size_t wanted = phase_ == Phase::open ? session_.wants() : buffer.size();
  if (wanted == 0) return true;
  CommandReader::Got got = reader_.read(wire_, std::span(buffer).first(std::min(buffer.size(), wanted)));
  std::visit([this](const auto& what) { on_read(what); }, got);
  return phase_ != Phase::closed;
}

void Connection::on_read(const CommandReader::Bytes& got) {
  patience_.note_progress(hub_.clock.now());
  if (phase_ == Phase::proxied)
    take_proxy_header(got.bytes);
  else if (phase_ == Phase::open)
    take_input(got.bytes);
}

void Connection::on_read(const CommandReader::End&) {
  if (phase_ == Phase::proxied) close();
  if (client_has_left()) give_up_deliveries();
}

void Connection::take_input(std::string_view bytes) {
  session_.receive(as_bytes(bytes));
  while (perform_once()) {
  }
  note_transaction();
}

void Connection::wait_writable() {
  if (writer_.is_waiting()) return;
  writer_.wait();
  socket_.async_wait(asio::socket_base::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->safely([&] {
                         self->writer_.ready();
                         if (error) return self->close();
                         self->on_writable();
                       });
                     });
}

void Connection::on_writable() {
  patience_.note_progress(hub_.clock.now());
  if (phase_ == Phase::open && session_.in_handshake() && wire_.is_secured()) return go_on_with_handshake();
  flush();
}

}  // namespace twinloft::lmtpd
