// execv() passes the expanded arguments on unchanged, byte for byte.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "support.h"

namespace twinloft::argv::test {
namespace {

// Runs the arguments and returns what the program printed.
std::string run(const Arguments& arguments) {
  std::vector<char*> vector;
  for (const std::string& a : arguments) vector.push_back(const_cast<char*>(a.c_str()));
  vector.push_back(nullptr);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  const pid_t pid = fork();
  if (pid == 0) {
    if (dup2(ends[1], STDOUT_FILENO) >= 0) execv(vector[0], vector.data());
    _exit(127);
  }
  close(ends[1]);
  std::string out;
  std::array<char, 65536> buffer;
  ssize_t n = 0;
  while ((n = read(ends[0], buffer.data(), buffer.size())) > 0)
    out.append(buffer.data(), static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::runtime_error("the program failed");
  return out;
}

std::string joined(const Arguments& arguments) {
  std::string out;
  for (const std::string& a : arguments) out += a + '\0';
  return out;
}

TEST(ArgvExec, AnyValuesArriveUnchanged) {
  const Template t = parse(PRINT_ARGS
                           " -f%from% [ -a x%original_to% ] \"a b\" '' -- %to% %to:upper% x%detail:-none%");
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const Values values = {{"from", random_value(random, 200)},
                           {"original_to", random_value(random, 5)},
                           {"to", random_value(random, 200)},
                           {"detail", random_value(random, 3)}};
    const auto arguments = t.expand(values);
    ASSERT_TRUE(arguments) << arguments.error().message;
    ASSERT_EQ(run(*arguments), joined(*arguments));
  }
}

TEST(ArgvExec, TheInjectionsOfOtherMailers) {
  // CVE-2020-7247, CVE-2019-10149 and similar: the whole value is one argument.
  const Template t = parse(PRINT_ARGS " -- %to%");
  for (const char* value : {";id;@d", "`id`@d", "$(id)@d", "${run{/bin/touch\t/x}}@d", "|id", "a' 'b",
                            "\"\"@d", "\"\"+x@d", "%from%", "-oX@d", "a\tb", "\xE2\x82", ""}) {
    const auto arguments = t.expand({{"to", value}});
    ASSERT_TRUE(arguments) << value;
    EXPECT_EQ(run(*arguments), joined({PRINT_ARGS, "--", value}));
  }
}

TEST(ArgvExec, TheKernelTakesTheDefaultLimits) {
  std::string text = PRINT_ARGS;
  for (int i = 0; i < 7; ++i) text += " %to%";
  const auto arguments = parse(text).expand({{"to", std::string(131071, 'a')}});
  ASSERT_TRUE(arguments) << arguments.error().message;
  EXPECT_EQ(run(*arguments), joined(*arguments));
}

}  // namespace
}  // namespace twinloft::argv::test
