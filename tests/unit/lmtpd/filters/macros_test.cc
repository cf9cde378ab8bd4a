#include "macros.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

TEST(FilterMacros, OfAForwardedClient) {
  milter::Macros m;
  set_client_macros(m, "mx.example.org", {"mail.example", "192.0.2.9", "helo.example", 4711, {}});
  EXPECT_EQ(m["j"], "mx.example.org");
  EXPECT_EQ(m["_"], "mail.example [192.0.2.9]");
  EXPECT_EQ(m["{client_addr}"], "192.0.2.9");
  EXPECT_EQ(m["{client_name}"], "mail.example");
  EXPECT_EQ(m["{client_port}"], "4711");
  EXPECT_EQ(m["{tls_version}"], "");
}

TEST(FilterMacros, OfAnUnknownClient) {
  milter::Macros m;
  set_client_macros(m, "mx", {{}, {}, "mta", 0, "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384"});
  EXPECT_EQ(m["_"], "unknown");
  EXPECT_EQ(m["{client_addr}"], "");
  EXPECT_EQ(m["{tls_version}"], "TLSv1.3");
  EXPECT_EQ(m["{cipher}"], "TLS_AES_256_GCM_SHA384");
}

TEST(FilterMacros, OfTheEnvelope) {
  milter::Macros m;
  Envelope envelope;
  envelope.id = "q1";
  envelope.from = "a@b.example";
  set_mail_macros(m, envelope);
  EXPECT_EQ(m["i"], "q1");
  EXPECT_EQ(m["{mail_addr}"], "a@b.example");
  EXPECT_EQ(m["{mail_host}"], "b.example");
  set_rcpt_macros(m, {"u@here", {}, true});
  EXPECT_EQ(m["{rcpt_addr}"], "u@here");
  EXPECT_EQ(m["{rcpt_mailer}"], "error");
  set_rcpt_macros(m, {"u@here", {}, false});
  EXPECT_EQ(m["{rcpt_mailer}"], "lmtp");
}

TEST(FilterMacros, TheEvents) {
  auto envelope = std::make_shared<Envelope>();
  envelope->from = "a@b";
  envelope->smtputf8 = true;
  envelope->envelope_id = "x y";
  milter::Mail mail = mail_event({envelope, {}, 77});
  EXPECT_EQ(mail.sender, "a@b");
  EXPECT_EQ(mail.parameters, (std::vector<std::string>{"SIZE=77", "SMTPUTF8", "ENVID=x+20y"}));
  EXPECT_EQ(connect_event({{}, "192.0.2.9", {}, 0, {}}),
            (milter::Connect{"[192.0.2.9]", milter::Connect::Family::ipv4, 0, "192.0.2.9"}));
}

}  // namespace
}  // namespace twinloft::lmtpd
