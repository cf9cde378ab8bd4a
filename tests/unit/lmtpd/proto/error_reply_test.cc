// The client's reply for an error: its kind, and no detail of this machine.
#include "twinloft/lmtpd/proto/error_reply.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace twinloft::lmtpd {
namespace {

std::string codes(const Reply& reply) {
  return fmt::format("{} {}", reply.code, reply.enhanced);
}

TEST(ErrorReply, NamesNoLocalPath) {
  Error error{Errc::io, "/srv/mail/secret: broken", EIO};
  EXPECT_EQ(reply_of_error(error).text.find("secret"), std::string::npos);
  EXPECT_EQ(reply_of_error({Errc::unavailable, "", 0}).enhanced, "4.3.0");
  EXPECT_EQ(reply_of_error({Errc::denied, "", 0}).enhanced, "4.3.5");
  EXPECT_EQ(reply_of_error({Errc::io, "", EXDEV}).enhanced, "4.3.5");
  for (int sys : {EMFILE, ENFILE, ENOMEM}) {
    Reply reply = reply_of_error({Errc::unavailable, "", sys});
    EXPECT_EQ(codes(reply), "451 4.3.2");
    EXPECT_EQ(reply.text.find("spool"), std::string::npos) << reply.text;
  }
}

// A message that was lost while it arrived is not the fault of a mailbox. Permissions of the spool do not
// matter here.
TEST(ErrorReply, OfAMessageThatWasNotKept) {
  for (int sys : {EMFILE, ENFILE, ENOMEM})
    EXPECT_EQ(reply_of_unkept({Errc::exhausted, "", sys}), reply_of_error({Errc::exhausted, "", sys}));
  EXPECT_EQ(codes(reply_of_unkept(fail_errno(ENOSPC, "write").error())), "452 4.3.1");
  EXPECT_EQ(codes(reply_of_unkept({Errc::exhausted, "", 0})), "452 4.3.1");
  for (int sys : {EIO, EACCES, EROFS, 0}) {
    Reply reply = reply_of_unkept({Errc::io, "/var/lib/secret: broken", sys});
    EXPECT_EQ(codes(reply), "451 4.3.0");
    EXPECT_EQ(reply.text.find("secret"), std::string::npos);
  }
}

}  // namespace
}  // namespace twinloft::lmtpd
