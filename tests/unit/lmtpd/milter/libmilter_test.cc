// The link against a real filter: one made with libmilter, in a thread of this program.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <libmilter/mfapi.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../../support/temporary_directory.h"
#include "twinloft/lmtpd/milter/filter_link.h"

namespace twinloft::lmtpd::milter {
namespace {

using std::chrono::seconds;

// What the filter has heard, and how it is to answer.
struct Plan {
  std::mutex mutex;
  std::vector<std::string> heard;
  unsigned long steps = 0;  // SMFIP_* that the filter asks for
  std::function<sfsistat(const std::string& event)> answer;
  std::function<void(SMFICTX*)> at_end;
} plan;

sfsistat hear(std::string event) {
  std::lock_guard lock(plan.mutex);
  plan.heard.push_back(event);
  return plan.answer ? plan.answer(event) : SMFIS_CONTINUE;
}

std::string joined(char** words) {
  std::string out;
  for (; *words; ++words) out += (out.empty() ? "" : " ") + std::string(*words);
  return out;
}
std::string macro(SMFICTX* context, const char* name) {
  const char* value = smfi_getsymval(context, const_cast<char*>(name));
  return value ? value : "";
}

sfsistat on_negotiate(SMFICTX*, unsigned long actions, unsigned long steps, unsigned long, unsigned long,
                      unsigned long* wanted_actions, unsigned long* wanted_steps, unsigned long* a,
                      unsigned long* b) {
  *wanted_actions = actions & (SMFIF_ADDHDRS | SMFIF_CHGHDRS | SMFIF_CHGBODY | SMFIF_ADDRCPT |
                               SMFIF_ADDRCPT_PAR | SMFIF_DELRCPT | SMFIF_CHGFROM | SMFIF_QUARANTINE);
  *wanted_steps = steps & plan.steps;
  *a = *b = 0;
  return SMFIS_CONTINUE;
}
sfsistat on_connect(SMFICTX*, char* host, sockaddr* address) {
  std::string family = !address                         ? "unknown"
                       : address->sa_family == AF_INET  ? "IPv4"
                       : address->sa_family == AF_INET6 ? "IPv6"
                                                        : "Unix";
  return hear(std::string("connect ") + host + " " + family);
}
sfsistat on_helo(SMFICTX*, char* name) {
  return hear(std::string("helo ") + name);
}
sfsistat on_mail(SMFICTX* context, char** words) {
  return hear("mail " + joined(words) + " i=" + macro(context, "i"));
}
sfsistat on_rcpt(SMFICTX* context, char** words) {
  return hear("rcpt " + joined(words) + " rcpt_addr=" + macro(context, "{rcpt_addr}"));
}
sfsistat on_data(SMFICTX*) {
  return hear("data");
}
sfsistat on_header(SMFICTX*, char* name, char* value) {
  return hear(std::string("header ") + name + "|" + value);
}
sfsistat on_end_of_headers(SMFICTX*) {
  return hear("eoh");
}
sfsistat on_body(SMFICTX*, unsigned char* bytes, size_t size) {
  return hear("body " + std::string(reinterpret_cast<char*>(bytes), size));
}
sfsistat on_end(SMFICTX* context) {
  if (plan.at_end) plan.at_end(context);
  return hear("end");
}
sfsistat on_abort(SMFICTX*) {
  return hear("abort");
}
sfsistat on_close(SMFICTX*) {
  return hear("close");
}

// smfi_main(3) can run once in a process, so all tests share the filter. It ends with the process.
class Filter {
 public:
  static const std::string& path() {
    static Filter filter;
    return filter.path_;
  }

 private:
  Filter() : path_(directory_ / "filter") {
    static char name[] = "test", connection[256];
    std::snprintf(connection, sizeof connection, "unix:%s", path_.c_str());
    smfiDesc about{name,      SMFI_VERSION,      0,       on_connect, on_helo,  on_mail,  on_rcpt,
                   on_header, on_end_of_headers, on_body, on_end,     on_abort, on_close, nullptr,
                   on_data,   on_negotiate};
    EXPECT_EQ(smfi_setconn(connection), MI_SUCCESS);
    EXPECT_EQ(smfi_register(about), MI_SUCCESS);
    EXPECT_EQ(smfi_opensocket(true), MI_SUCCESS);
    std::thread([] { smfi_main(); }).detach();
  }
  TemporaryDirectory directory_;
  std::string path_;
};

Fd connected(const std::string& path) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof at.sun_path - 1);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_SETFL, O_NONBLOCK), 0);
  return fd;
}

struct LibmilterTest : testing::Test {
  OsClock clock;
  FilterSpec spec{.name = "libmilter", .command_timeout = seconds(60), .message_timeout = seconds(60)};
  Instant most = clock.now() + seconds(120);
  std::unique_ptr<FilterLink> link;
  std::vector<Change> changes;

  void TearDown() override { end_link(); }
  // The filter has heard of the end when this returns.
  void end_link() {
    if (!link) return;
    link.reset();
    await("close");
  }
  void start(unsigned long steps = 0) {
    end_link();
    {
      std::lock_guard lock(plan.mutex);
      plan.heard.clear();
      plan.steps = steps;
      plan.answer = nullptr;
      plan.at_end = nullptr;
    }
    link = std::make_unique<FilterLink>(make_socket_stream(connected(Filter::path()), clock), spec, clock);
    auto opened = link->open();
    ASSERT_TRUE(opened) << opened.error().message;
  }
  Verdict say(const Event& event, const Macros& macros = {}) {
    auto verdict = link->say(event, macros, most);
    EXPECT_TRUE(verdict) << verdict.error().message;
    return verdict.value_or(Verdict(Tempfail{}));
  }
  Verdict end() {
    auto verdict = link->end_message({}, most, [this](Change&& change) -> Status {
      changes.push_back(std::move(change));
      return {};
    });
    EXPECT_TRUE(verdict) << verdict.error().message;
    return verdict.value_or(Verdict(Tempfail{}));
  }
  static std::vector<std::string> heard() {
    std::lock_guard lock(plan.mutex);
    return plan.heard;
  }
  static void await(const std::string& event) {
    for (;; ::usleep(1000)) {
      auto all = heard();
      if (!all.empty() && all.back() == event) return;
    }
  }
  Verdict whole_message() {
    const Event events[] = {Connect{"mx.example", Connect::Family::ipv4, 25, "192.0.2.1"},
                            Helo{"mx.example"},
                            Mail{"a@b.example", {"SIZE=100"}},
                            Rcpt{"c@d.example", {}, false},
                            Data{},
                            Header{"Subject", "hello\n\tworld"},
                            EndOfHeaders{},
                            BodyChunk{"body\r\n"}};
    for (const Event& event : events)
      EXPECT_EQ(say(event, {{"i", "4711"}, {"{rcpt_addr}", "c@d.example"}}), Verdict(Continue{}));
    return end();
  }
};

TEST_F(LibmilterTest, AWholeMessage) {
  for (unsigned long steps :
       {0ul, static_cast<unsigned long>(SMFIP_NR_CONN | SMFIP_NR_HELO | SMFIP_NR_MAIL | SMFIP_NR_RCPT |
                                        SMFIP_NR_DATA | SMFIP_NR_HDR | SMFIP_NR_EOH | SMFIP_NR_BODY)}) {
    start(steps);
    if (steps != 0)
      plan.answer = [](const std::string& e) { return e == "end" ? SMFIS_CONTINUE : SMFIS_NOREPLY; };
    EXPECT_EQ(whole_message(), Verdict(Continue{}));
    EXPECT_EQ(heard(), (std::vector<std::string>{
                           "connect mx.example IPv4", "helo mx.example", "mail <a@b.example> SIZE=100 i=4711",
                           "rcpt <c@d.example> rcpt_addr=c@d.example", "data",
                           "header Subject|hello\n\tworld", "eoh", "body body\r\n", "end"}));
  }
}

TEST_F(LibmilterTest, EveryChange) {
  start();
  plan.at_end = [](SMFICTX* c) {
    auto text = [](const char* t) { return const_cast<char*>(t); };
    EXPECT_EQ(smfi_addheader(c, text("X-Add"), text("1")), MI_SUCCESS);
    EXPECT_EQ(smfi_insheader(c, 0, text("X-Insert"), text("2")), MI_SUCCESS);
    EXPECT_EQ(smfi_chgheader(c, text("Subject"), 1, text("3")), MI_SUCCESS);
    EXPECT_EQ(smfi_chgheader(c, text("Subject"), 2, nullptr), MI_SUCCESS);
    EXPECT_EQ(smfi_progress(c), MI_SUCCESS);
    std::string body(100'000, 'b');
    EXPECT_EQ(
        smfi_replacebody(c, reinterpret_cast<unsigned char*>(body.data()), static_cast<int>(body.size())),
        MI_SUCCESS);
    EXPECT_EQ(smfi_chgfrom(c, text("<x@y.example>"), text("SIZE=1")), MI_SUCCESS);
    EXPECT_EQ(smfi_addrcpt(c, text("<e@f.example>")), MI_SUCCESS);
    EXPECT_EQ(smfi_addrcpt_par(c, text("<g@h.example>"), text("NOTIFY=NEVER")), MI_SUCCESS);
    EXPECT_EQ(smfi_delrcpt(c, text("<c@d.example>")), MI_SUCCESS);
    EXPECT_EQ(smfi_quarantine(c, text("spam")), MI_SUCCESS);
  };
  EXPECT_EQ(whole_message(), Verdict(Continue{}));
  std::string body;
  for (const Change& change : changes)
    if (const auto* part = std::get_if<ReplaceBody>(&change)) body += part->bytes;
  EXPECT_EQ(body, std::string(100'000, 'b'));
  std::erase_if(changes, [](const Change& c) { return std::holds_alternative<ReplaceBody>(c); });
  EXPECT_EQ(changes,
            (std::vector<Change>{AddHeader{"X-Add", "1"}, InsertHeader{0, "X-Insert", "2"},
                                 ChangeHeader{1, "Subject", "3"}, ChangeHeader{2, "Subject", ""},
                                 ChangeSender{"<x@y.example>", "SIZE=1"}, AddRecipient{"<e@f.example>", ""},
                                 AddRecipient{"<g@h.example>", "NOTIFY=NEVER"},
                                 RemoveRecipient{"<c@d.example>"}, Quarantine{"spam"}}));
}

TEST_F(LibmilterTest, VerdictsAndTheNextMessage) {
  start();
  plan.answer = [](const std::string& event) {
    return event.starts_with("rcpt <no@")      ? SMFIS_REJECT
           : event.starts_with("mail <later@") ? SMFIS_TEMPFAIL
           : event.starts_with("mail <fine@")  ? SMFIS_ACCEPT
                                               : SMFIS_CONTINUE;
  };
  EXPECT_EQ(say(Mail{"later@x", {}}), Verdict(Tempfail{}));
  ASSERT_TRUE(link->abort());
  EXPECT_EQ(say(Mail{"fine@x", {}}), Verdict(Accept{}));
  EXPECT_EQ(say(Rcpt{"no@x", {}, false}), Verdict(Continue{}));
  EXPECT_EQ(end(), Verdict(Continue{}));
  EXPECT_EQ(say(Mail{"a@x", {}}), Verdict(Continue{}));
  EXPECT_EQ(say(Rcpt{"no@x", {}, false}), Verdict(Reject{}));
  EXPECT_EQ(say(Rcpt{"yes@x", {}, false}), Verdict(Continue{}));
  ASSERT_TRUE(link->abort());
  await("abort");
  EXPECT_EQ(say(Mail{"a@x", {}}), Verdict(Continue{}));
  EXPECT_EQ(say(Rcpt{"yes@x", {}, false}), Verdict(Continue{}));
  EXPECT_EQ(end(), Verdict(Continue{}));
}

TEST_F(LibmilterTest, ARepliesText) {
  start();
  plan.at_end = [](SMFICTX* c) {
    auto text = [](const char* t) { return const_cast<char*>(t); };
    EXPECT_EQ(smfi_setmlreply(c, text("554"), text("5.7.1"), text("100%% spam"), text("and more"), nullptr),
              MI_SUCCESS);
  };
  plan.answer = [](const std::string& event) { return event == "end" ? SMFIS_REJECT : SMFIS_CONTINUE; };
  EXPECT_EQ(whole_message(), Verdict(FilterReply{554, "5.7.1", {"100% spam", "and more"}}));
}

TEST_F(LibmilterTest, SkipEndsTheBody) {
  start(SMFIP_SKIP);
  plan.answer = [](const std::string& event) {
    return event.starts_with("body") ? SMFIS_SKIP : SMFIS_CONTINUE;
  };
  say(Mail{"a@x", {}}), say(Rcpt{"b@x", {}, false});
  say(EndOfHeaders{});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(say(BodyChunk{"part"}), Verdict(Continue{}));
  EXPECT_EQ(end(), Verdict(Continue{}));
  auto all = heard();
  EXPECT_EQ(std::count(all.begin(), all.end(), "body part"), 1);
}

TEST_F(LibmilterTest, AnotherClientOverTheSameConnection) {
  start();
  EXPECT_EQ(whole_message(), Verdict(Continue{}));
  auto another = link->begin_another_client();
  ASSERT_TRUE(another) << another.error().message;
  EXPECT_TRUE(*another);
  EXPECT_EQ(say(Connect{"[2001:db8::1]", Connect::Family::ipv6, 25, "2001:db8::1"}), Verdict(Continue{}));
  EXPECT_EQ(heard().back(), "connect [2001:db8::1] IPv6");
  EXPECT_EQ(say(Mail{"a@x", {}}), Verdict(Continue{}));
  ASSERT_TRUE(link->abort());
  link->quit();
  await("close");
}

TEST_F(LibmilterTest, ALongFieldDoesNotEndTheConnection) {
  start();
  say(Mail{"a@x", {}}), say(Rcpt{"b@x", {}, false});
  std::string value(200'000, 'v');
  EXPECT_EQ(say(Header{"X-Long", value}), Verdict(Continue{}));
  EXPECT_EQ(say(EndOfHeaders{}), Verdict(Continue{}));
  EXPECT_EQ(end(), Verdict(Continue{}));
}

}  // namespace
}  // namespace twinloft::lmtpd::milter
