// Runs a dialogue as one buffer, byte by byte, and with every split in two.
#pragma once

#include <memory>
#include <ostream>

#include "owner.h"

namespace twinloft::lmtpd::test {

struct Outcome {
  std::string sent;
  std::vector<std::string> texts, froms, recipients;
  int aborted = 0;
  bool closed = false;
  bool operator==(const Outcome&) const = default;
};

inline void PrintTo(const Outcome& o, std::ostream* out) {
  *out << o.sent << "closed " << o.closed << ", aborted " << o.aborted;
  for (const std::string& text : o.texts) *out << "\nmessage " << testing::PrintToString(text);
}

inline Outcome outcome_of(Owner& owner) {
  Outcome out{owner.sent, {}, {}, {}, owner.aborted, owner.session().closed()};
  for (const Message& m : owner.messages) {
    out.texts.push_back(m.text);
    out.froms.push_back(m.envelope->from);
    for (const Recipient& r : m.envelope->recipients) out.recipients.push_back(r.text);
  }
  return out;
}

class Dialogue : public testing::Test {
 protected:
  SessionConfig config;
  Client client{"192.0.2.7"};
  std::function<void(Owner&)> prepare = [](Owner&) {};

  // Runs `text` with every split, and checks that all results are the same. Returns the owner of the run
  // without a split.
  std::unique_ptr<Owner> run(std::string_view text) {
    auto whole = make();
    whole->whole(text);
    Outcome expected = outcome_of(*whole);
    auto bytes = make();
    bytes->trickle(text);
    EXPECT_EQ(outcome_of(*bytes), expected) << "one byte at a time";
    std::size_t step = text.size() > 4000 ? 97 : 1;
    for (std::size_t cut = 1; cut < text.size(); cut += step) {
      auto two = make();
      two->whole(text.substr(0, cut));
      two->whole(text.substr(cut));
      Outcome got = outcome_of(*two);
      EXPECT_EQ(got, expected) << "cut at " << cut;
      if (!(got == expected)) break;  // reports the first difference only
    }
    return whole;
  }
  // Returns the replies without the greeting.
  std::vector<std::string> replies(std::string_view text) {
    auto all = run(text)->codes();
    EXPECT_EQ(all.at(0), "220");
    all.erase(all.begin());
    return all;
  }

 private:
  std::unique_ptr<Owner> make() {
    auto owner = std::make_unique<Owner>(config, client);
    prepare(*owner);
    return owner;
  }
};

using Codes = std::vector<std::string>;
inline const std::string hello = "LHLO c.example.org\r\n";

}  // namespace twinloft::lmtpd::test
