// The cost of a session alone: time and allocations of one transaction. Without sockets. This program answers
// look-ups and deliveries at once.
//
//   session_bench [--seconds S] [--rounds N]
//
//   step by step  each command arrives alone, after the actions of the command before
//   pipelined     the envelope arrives in one piece (RFC 2920), then the message
//   100 users     pipelined, with 100 recipients
//
// A message has 4 KiB. The three ways alternate within a round. An allocation is a call of operator new.
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <boost/program_options.hpp>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "../../figures.h"
#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/session/session.h"

namespace {
std::atomic<std::uint64_t> allocations{0};
}

// Not inlined: otherwise GCC would compare the two operators and warn (mismatched-new-delete).
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* at = std::malloc(bytes)) return at;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* at) noexcept {
  std::free(at);
}
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept {
  std::free(at);
}

namespace {

using namespace twinloft;
using namespace twinloft::lmtpd;
namespace po = boost::program_options;

struct Way {
  const char* name;
  std::vector<std::string> pieces;  // the pieces of one transaction, in order of arrival
};

std::vector<Way> ways() {
  const std::string mail = "MAIL FROM:<sender@example.com> SIZE=4096\r\n",
                    rcpt = "RCPT TO:<ann@example.org>\r\n";
  std::string text = "Subject: a message\r\n\r\n";
  while (text.size() < 4096) text += "A line of text, as there are many in a message of this size.\r\n";
  text += ".\r\n";
  std::string many = mail;
  for (int i = 0; i < 100; ++i) many += rcpt;
  return {{"step by step", {mail, rcpt, "DATA\r\n", text}},
          {"pipelined", {mail + rcpt + "DATA\r\n", text}},
          {"100 users", {many + "DATA\r\n", text}}};
}

// Performs the session's actions like a connection, and answers at once.
class Owner {
 public:
  Owner() {
    config_.hostname = "mx.example.org";
    config_.new_id = [] { return std::string("4fTx1"); };
    user_.name = "ann@example.org";
    user_.home = "/var/vmail/example.org/ann";
    user_.maildir = "/var/vmail/example.org/ann/Maildir";
    session_.start({"192.0.2.7"});
    carry_out();
    receive("LHLO client.example.com\r\n");
  }
  void receive(std::string_view bytes) {
    session_.receive(as_bytes(bytes));
    carry_out();
  }
  std::uint64_t delivered() const { return delivered_; }

 private:
  void carry_out() {
    while (once()) {
    }
    session_.replies_sent();
  }
  bool once() {
    session_.take_actions(actions_);
    bool again = false;
    for (const Action& action : actions_)
      if (const auto* send = std::get_if<SendBytes>(&action))
        sent_ += send->bytes.size();
      else if (const auto* body = std::get_if<BodyBytes>(&action))
        for (ByteSpan piece : body->pieces) sent_ += piece.size();
      else if (const auto* ask = std::get_if<Ask>(&action))
        session_.answer(ask->id, Resolved{user_}), again = true;
      else if (const auto* deliver = std::get_if<Deliver>(&action))
        again = answer(*deliver->envelope);
    return again;
  }
  bool answer(const Envelope& envelope) {
    for (std::size_t i = 0; i < envelope.recipients.size(); ++i, ++delivered_)
      session_.delivery_done(i, reply_);
    return true;
  }

  SessionConfig config_;
  Session session_{config_};
  Actions actions_;
  User user_;
  const Reply reply_{250, "2.0.0", "delivered"};
  std::uint64_t sent_ = 0, delivered_ = 0;
};

struct Figures {
  std::vector<double> ns, allocations;
};

void measure(const Way& way, double seconds, Figures& out) {
  OsClock clock;
  Owner owner;
  const std::uint64_t before = allocations.load();
  const Instant begin = clock.now(), end = begin + Duration(static_cast<std::int64_t>(seconds * 1e9));
  std::uint64_t count = 0;
  for (; clock.now() < end; count += 100)
    for (int i = 0; i < 100; ++i)
      for (const std::string& piece : way.pieces) owner.receive(piece);
  const auto transactions = static_cast<double>(count);
  out.ns.push_back(static_cast<double>((clock.now() - begin).count()) / transactions);
  out.allocations.push_back(static_cast<double>(allocations.load() - before) / transactions);
  if (owner.delivered() < count) std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0.5;
  unsigned rounds = 7;
  po::options_description options;
  options.add_options()("seconds", po::value(&seconds))("rounds", po::value(&rounds));
  po::variables_map given;
  po::store(po::parse_command_line(argc, argv, options), given);
  po::notify(given);
  const std::vector<Way> all = ways();
  std::vector<Figures> figures(all.size());
  for (unsigned round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < all.size(); ++i) measure(all[i], seconds, figures[i]);
  fmt::print("{:<14}{:>36}{:>30}\n", "", "ns", "allocations");
  for (std::size_t i = 0; i < all.size(); ++i)
    fmt::print("{:<14}{:>36}{:>30}\n", all[i].name, bench::spread(figures[i].ns, 0),
               bench::spread(figures[i].allocations, 2));
  return 0;
}
