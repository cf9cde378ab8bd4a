// What a filter says, in any split: the negotiation, then its answers to the events of messages. No input
// breaks an invariant of the conversation, and no change puts a line of a value outside its field.
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "twinloft/base/check.h"
#include "twinloft/lmtpd/milter/conversation.h"
#include "twinloft/lmtpd/milter/message_header.h"

using namespace twinloft;
using namespace twinloft::lmtpd::milter;

namespace {

constexpr std::string_view message = "A: b\r\n\tc\r\nSubject: d\r\n\r\nbody\r\n";

const Event events[] = {Connect{},
                        Helo{},
                        Mail{},
                        Rcpt{},
                        Rcpt{},
                        Data{},
                        Header{"A", "b\n\tc"},
                        EndOfHeaders{},
                        BodyChunk{"body\r\n"},
                        EndOfBody{}};

// Every line of the header begins a field or continues one, and the fields are those of the list.
void check_header(const MessageHeader& header) {
  MessageHeader again = MessageHeader::parse(header.text());
  TL_CHECK(again.fields().size() == header.fields().size());
  for (std::size_t i = 0; i < again.fields().size(); ++i)
    TL_CHECK(again.fields()[i].name == header.fields()[i].name);
  TL_CHECK(again.bytes_in_message() == header.text().size());
}

class Talk {
 public:
  Talk() { conversation_.open(); }

  // False: the conversation has ended.
  bool hear(const Packet& packet) {
    auto heard = conversation_.hear(packet);
    TL_CHECK(heard.has_value() != conversation_.is_broken());
    if (!heard) return false;
    if (Change* change = std::get_if<Change>(&*heard)) {
      TL_CHECK(conversation_.awaits_answer() && conversation_.agreement().may(rights_for(*change)));
      apply(*change);
    }
    if (!conversation_.awaits_answer()) say_more();
    return true;
  }

 private:
  // Up to the next event that the filter answers.
  void say_more() {
    for (int said = 0; said < 40; ++said) {
      std::string out;
      bool answered = conversation_.say(events[at_], {{"i", "1"}}, out).has_value();
      TL_CHECK(answered != conversation_.awaits_answer());
      if (++at_ == std::size(events)) at_ = 2;
      if (!answered) return;
      TL_CHECK(conversation_.in_message() == (at_ > 2));
    }
  }
  void apply(const Change& change) {
    const bool leading_space = conversation_.agreement().wants(wish::leading_space);
    std::visit(
        [&](const auto& c) {
          if constexpr (requires { header_.apply(c, leading_space); }) header_.apply(c, leading_space);
        },
        change);
    check_header(header_);
  }

  Conversation conversation_;
  MessageHeader header_ = MessageHeader::parse(message);
  std::size_t at_ = 0;
};

}  // namespace

// The first byte: how many bytes arrive at a time.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t step = data[0] + 1;
  PacketReader reader;
  Talk talk;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    reader.add(bytes.substr(at, step));
    while (true) {
      auto packet = reader.next();
      if (!packet) return 0;
      if (!*packet) break;
      if (!talk.hear(**packet)) return 0;
    }
  }
  return 0;
}
