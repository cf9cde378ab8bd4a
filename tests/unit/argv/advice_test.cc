#include "twinloft/argv/advice.h"
#include "support.h"

namespace twinloft::argv::test {
namespace {

std::string advice(const std::string& options, const AdviceOptions& how = {}) {
  std::string out;
  for (const Diagnostic& d : check_agent_options(parse("/usr/lib/dovecot/dovecot-lda " + options), how))
    out += d.summary() + "\n";
  return out;
}

TEST(ArgvAdvice, AllOptionsOfDovecotLdaPass) {
  EXPECT_EQ(advice("-e -f %from% [ -a %original_to% ] -d %user%"), "");
  EXPECT_EQ(advice("-a x -d %user% -e -f %from% -m %detail% -p /x -r %to%"), "");
  EXPECT_EQ(advice("-c /etc/x -i y -k -o key=value -O -L -ekd %user%"), "");
  EXPECT_EQ(advice("-dx@example.org -m'INBOX'"), "");
  EXPECT_EQ(advice("-d %user% -m %detail:-INBOX% --"), "");
}

TEST(ArgvAdvice, RemovedAndUnknownOptions) {
  EXPECT_NE(advice("-n -d %user%").find("column 30: option -n ended with Dovecot 1.x"), std::string::npos);
  EXPECT_NE(advice("-en -d %user%").find("option -n"), std::string::npos);
  EXPECT_NE(advice("-s").find("lda_mailbox_autosubscribe"), std::string::npos);
  EXPECT_NE(advice("-d %user% -z").find("column 40: dovecot-lda has no option -z"), std::string::npos);
  EXPECT_NE(advice("--user=%user%").find("no long options"), std::string::npos);
  EXPECT_EQ(advice("-d -n"), "") << "-n is the value of -d";
  EXPECT_EQ(advice("-o -n"), "");
}

TEST(ArgvAdvice, ArgumentsThatItDoesNotTake) {
  EXPECT_NE(advice("-d %user% extra").find("column 40: dovecot-lda takes options only"), std::string::npos);
  EXPECT_NE(advice("-dx extra").find("takes options only"), std::string::npos) << "-d already has its value";
  EXPECT_NE(advice("%to%").find("takes options only"), std::string::npos);
  EXPECT_NE(advice("-d %user% -- -e").find("takes options only"), std::string::npos);
  EXPECT_NE(advice("-d x | cat").find("takes options only"), std::string::npos);
}

TEST(ArgvAdvice, ValuesThatMayBeMissing) {
  EXPECT_NE(advice("-e -d").find("option -d of dovecot-lda needs a value"), std::string::npos);
  EXPECT_NE(advice("-f%from% -d %user%").find("takes the next argument as the value of -f"),
            std::string::npos);
  EXPECT_EQ(advice("-f%from:-x@example.org% -d %user%"), "");
  EXPECT_EQ(advice("-f<%from%> -d %user%"), "");
  EXPECT_NE(advice("-a [ %original_to% ] -d %user%").find("must be in the same group"), std::string::npos);
  EXPECT_NE(advice("-a %original_to% -d %user%").find("ends with 64 (EX_USAGE) for an empty value"),
            std::string::npos);
  EXPECT_EQ(advice("-a %original_to:-a@example.org% -d %user%"), "");
  EXPECT_NE(advice("-e%detail%").find("a macro chooses options"), std::string::npos);
}

TEST(ArgvAdvice, TheDestinationIsTheNameOfTheUserDatabase) {
  for (const char* wrong : {"-d %to%", "-d%to%", "-ed %to%", "-ed%to%", "-d %to:lower%",
                            "-d \"%user%+%detail%\"", "[ -d %original_to% ]", "-d %user%@%domain%"})
    EXPECT_NE(advice(wrong).find("Write -a %to% -d %user%"), std::string::npos) << wrong;
  for (const char* right :
       {"-d %user%", "-d%user%", "-d %user:lower%", "-d everybody@example.org", "-a %to% -d %user%"})
    EXPECT_EQ(advice(right).find("-d %user%"), std::string::npos) << right;
}

TEST(ArgvAdvice, OneRecipientATime) {
  AdviceOptions all;
  all.all_recipients = true;
  EXPECT_NE(advice("-d %user%", all).find("takes one recipient"), std::string::npos);
  EXPECT_EQ(advice("-d someone", all), "");
}

TEST(ArgvAdvice, KnowsTheProgramByItsLastComponent) {
  EXPECT_EQ(check_agent_options(parse("/usr/lib/dovecot/deliver -n")).size(), 1U);
  EXPECT_EQ(check_agent_options(parse("deliver -n")).size(), 1U);
  EXPECT_EQ(check_agent_options(parse("/usr/bin/procmail -n")).size(), 0U);
  EXPECT_EQ(check_agent_options(parse("%home%/dovecot-lda -n")).size(), 0U);
}

}  // namespace
}  // namespace twinloft::argv::test
