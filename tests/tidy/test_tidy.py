#!/usr/bin/env python3
"""Tests of tidy.py. Each rule has a case that breaks it, and a similar case that does not."""
import contextlib
import io
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import tidy  # noqa: E402

TREE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

def build_files():
    texts = {}
    for folder in tidy.Folders(TREE).libraries():
        with open(os.path.join(TREE, folder, "CMakeLists.txt"), encoding="utf-8") as f:
            texts[folder] = f.read()
    return texts


LIBRARIES = build_files()

# In pieces, so that this file does not break the rule.
MACHINE = "/" + "work" + "/main"
ROOT_HOME = "/" + "root" + "/.pyenv"


class TidyTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tidy.")
        self.addCleanup(shutil.rmtree, self.root)
        for folder, text in LIBRARIES.items():
            self.write(f"{folder}/CMakeLists.txt", text)

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)

    def found(self):
        return [(p, line, rule) for p, line, rule, _ in tidy.Tidy(self.root).run()]

    def check(self, path, text):
        """Returns (line, rule) for each violation in a file with this path and text."""
        self.write(path, text)
        return [(line, rule) for p, line, rule in self.found() if p == path]

    def good(self, path, text):
        self.assertEqual(self.check(path, text), [], text)

    def bad(self, path, text, rule, line=1):
        self.assertEqual(self.check(path, text), [(line, rule)], text)


class IncludeEdges(TidyTest):
    def test_allowed(self):
        self.good("argv/src/a.cc", '#include "twinloft/base/fd.h"\n#include "twinloft/argv/argv.h"\n')
        self.good("lmtpd/delivery/src/a.cc", '#include "twinloft/argv/argv.h"\n#include "twinloft/lmtpd/session/m.h"\n')
        self.good("lmtpd/userdb/src/a.cc", '#include "twinloft/lmtpd/policy/user.h"\n')
        self.good("lmtpd/app/main.cc", '#include "twinloft/lmtpd/net/a.h"\n#include "twinloft/lmtpd/delivery/b.h"\n')
        self.good("spool-repl/daemon/src/a.cc", '#include "twinloft/spool-repl/core/a.h"\n#include "twinloft/spool-repl/io/b.h"\n')
        self.good("bench/mailbench/src/a.cc", '#include "twinloft/mailbench/a.h"\n#include "twinloft/base/a.h"\n')
        self.good("tests/unit/mailbench/a.cc", '#include "twinloft/mailbench/a.h"\n')

    def test_refused(self):
        for path, include in [
                ("base/src/a.cc", "twinloft/argv/argv.h"),
                ("argv/src/a.cc", "twinloft/lmtpd/proto/reply.h"),
                ("lmtpd/proto/src/a.cc", "twinloft/lmtpd/session/model.h"),
                ("lmtpd/session/include/twinloft/lmtpd/session/a.h", "twinloft/lmtpd/net/a.h"),
                ("lmtpd/delivery/src/a.cc", "twinloft/lmtpd/userdb/a.h"),
                ("lmtpd/delivery/src/a.cc", "twinloft/spool-repl/format/a.h"),
                ("lmtpd/app/main.cc", "twinloft/spool-repl/control/a.h"),
                ("spool-repl/daemon/src/a.cc", "twinloft/lmtpd/proto/reply.h"),
                ("spool-repl/core/src/a.cc", "twinloft/spool-repl/ports/file.h"),
                ("spool-repl/control/src/a.cc", "twinloft/spool-repl/core/a.h"),
                ("bench/mailbench/src/a.cc", "twinloft/lmtpd/proto/reply.h"),
                ("tests/unit/lmtpd/net/a.cc", "twinloft/spool-repl/io/a.h"),
                ("tests/sim/a.cc", "twinloft/lmtpd/proto/reply.h")]:
            with self.subTest(path=path, include=include):
                self.bad(path, f'\n#include "{include}"\n', "include-edge", 2)

    def test_spelling(self):
        self.bad("argv/src/a.cc", "#include <twinloft/argv/argv.h>\n", "include-edge")
        self.bad("argv/src/a.cc", '#  include "twinloft/base2/x.h"\n', "include-edge")
        self.good("tests/e2e/argv_install/c/main.c", "#include <twinloft/argv.h>\n")
        self.good("argv/src/a.cc", "#include <vector>\n#include <sys/stat.h>\n")

    def test_comments_and_strings_include_nothing(self):
        self.good("base/src/a.cc", '// #include "twinloft/argv/argv.h"\n/*\n#include "twinloft/argv/argv.h"\n*/\n'
                                   'const char* s = R"(\n#include "twinloft/argv/argv.h"\n)";\n')

    def test_a_new_folder_must_be_in_the_table(self):
        self.bad("new/src/a.cc", "int x;\n", "folder")

    def test_a_folder_that_depends_on_itself(self):
        self.write("base/CMakeLists.txt", "tl_library(tl_base SOURCES src/a.cc\n  DEPS tl_lmtpd_proto)\n")
        self.good("base/src/a.cc", '#include "twinloft/lmtpd/proto/reply.h"\n')
        self.assertEqual([r for _, _, r in self.found()], ["folder"])

    def test_what_a_dependency_brings_along(self):
        self.write("lmtpd/tls/CMakeLists.txt", "# DEPS tl_repl_io\ntl_library(tl_lmtpd_tls SOURCES src/a.cc DEPS tl_base PRIVATE_DEPS tl_argv OpenSSL::SSL)\n")
        self.good("lmtpd/tls/src/a.cc", '#include "twinloft/argv/argv.h"\n')
        self.bad("lmtpd/net/src/a.cc", '#include "twinloft/argv/argv.h"\n', "include-edge")
        self.bad("lmtpd/tls/src/a.cc", '#include "twinloft/spool-repl/io/a.h"\n', "include-edge")

    def test_lmtpd_and_spool_repl_never_meet(self):
        folders = tidy.Folders(TREE)
        for folder, targets in folders.edges.items():
            for mine, other in (("lmtpd", "spool-repl"), ("spool-repl", "lmtpd")):
                if folder == mine or folder.startswith(mine + "/"):
                    self.assertFalse([t for t in targets if t.startswith(other)], folder)
        self.assertIsNone(folders.cycle())


class FolderTable(TidyTest):
    def setUp(self):
        super().setUp()
        for folder in LIBRARIES.keys() - {"base", "argv"}:
            shutil.rmtree(os.path.join(self.root, folder))

    def test_a_wrong_row_is_named_and_mended(self):
        path = tidy.ARCHITECTURE
        self.bad(path, "| `argv/` | templates | lmtpd |\n| `base/` | a, b | |\n", "folder")
        tidy.main(["--root", self.root, "--write-folders"])
        self.assertEqual(tidy.Tidy(self.root).read(path), "| `argv/` | templates | `base` |\n| `base/` | a, b | |\n")
        self.good(path, "| `argv/` | templates | `base` |\n| `base/` | a, b | |\n")

    def test_a_missing_row(self):
        self.bad(tidy.ARCHITECTURE, "| `argv/` | templates | `base` |\n", "folder")


class PrivateHeaders(TidyTest):
    def setUp(self):
        super().setUp()
        self.write("lmtpd/net/src/secret.h", "#pragma once\n")

    def test_own(self):
        self.good("lmtpd/net/src/a.cc", '#include "secret.h"\n')
        self.good("lmtpd/net/src/deep/a.cc", '#include "../secret.h"\n')
        self.good("tests/unit/lmtpd/net/a.cc", '#include "secret.h"\n')
        self.write("tests/unit/lmtpd/net/support.h", "")
        self.good("tests/unit/lmtpd/net/a.cc", '#include "support.h"\n')
        self.write("tests/unit/support/shared.h", "")
        self.good("tests/unit/lmtpd/net/a.cc", '#include "../../support/shared.h"\n')
        self.bad("lmtpd/net/src/a.cc", '#include "../../../tests/unit/support/shared.h"\n', "private-header")
        self.good("tests/fuzz/lmtpd/net/a.cc", '#include "secret.h"\n')
        self.write("lmtpd/app/users.h", "#pragma once\n")
        self.good("bench/parts/lmtpd/app/a.cc", '#include "users.h"\n')

    def test_of_others(self):
        self.bad("lmtpd/delivery/src/a.cc", '#include "../../net/src/secret.h"\n', "private-header")
        self.bad("lmtpd/delivery/src/a.cc", '#include "secret.h"\n', "private-header")
        self.bad("lmtpd/app/main.cc", '#include "net/src/secret.h"\n', "private-header")
        self.bad("tests/unit/lmtpd/delivery/a.cc", '#include "secret.h"\n', "private-header")
        self.bad("tests/fuzz/lmtpd/delivery/a.cc", '#include "secret.h"\n', "private-header")
        self.bad("bench/parts/lmtpd/a.cc", '#include "secret.h"\n', "private-header")
        self.bad("bench/mailbench/a.cc", '#include "secret.h"\n', "private-header")
        self.bad("tests/unit/lmtpd/delivery/a.cc", '#include "../../../../lmtpd/net/src/secret.h"\n', "private-header")


class BannedCalls(TidyTest):
    CASES = [  # rule, statement, a folder that may
        ("shell", 'system("ls");', None),
        ("shell", 'std::system("ls");', None),
        ("shell", 'FILE* f = popen(x, "r");', None),
        ("shell", 'execl("/bin/sh", "sh", nullptr);', None),
        ("shell", 'execl("/bin/bash", "bash", nullptr);', None),
        ("wall-clock", "auto t = time(nullptr);", "base"),
        ("wall-clock", "return ::time (nullptr);", "base"),
        ("wall-clock", "x = std::time(nullptr);", "base"),
        ("wall-clock", "gettimeofday(&tv, nullptr);", "base"),
        ("wall-clock", "if (clock_gettime(CLOCK_REALTIME, &t)) {}", "base"),
        ("wall-clock", "auto t = std::chrono::system_clock::now();", "base"),
        ("random", "std::random_device d;", "base"),
        ("random", "int r = rand() % 6;", "base"),
        ("random", "srand(1);", "base"),
        ("raw-sync", "if (::fsync(fd) != 0) return;", "base"),
        ("raw-sync", "return fdatasync(fd);", "base"),
        ("raw-sync", "syncfs(fd);", "base"),
        ("raw-sync", "sync_file_range(fd, 0, 0, 0);", "spool-repl/io"),
        ("raw-sync", "x = !fsync(fd);", "tests/sim"),
        ("passed-descriptors", "header->cmsg_type = SCM_RIGHTS;", "base"),
        ("passed-descriptors", "std::memcpy(CMSG_DATA(c), &fd, sizeof fd);", "base"),
        ("program", "if (::posix_spawn(&pid, path, nullptr, nullptr, argv, env) != 0) return;", "base"),
        ("program", "return posix_spawnp(&pid, argv[0], nullptr, nullptr, argv, environ);", "tests/unit/base"),
    ]

    def test_refused_outside_of_the_owner(self):
        for rule, statement, _ in self.CASES:
            with self.subTest(statement=statement):
                self.bad("argv/src/a.cc", f"void f() {{\n  {statement}\n}}\n", rule, 2)

    def test_allowed_in_the_owner(self):
        for rule, statement, may in self.CASES:
            if may is None:
                self.bad("tests/sim/a.cc", statement + "\n", rule)
                self.bad("base/src/a.cc", statement + "\n", rule)
            else:
                with self.subTest(statement=statement):
                    self.good(may + "/src/a.cc", f"void f() {{\n  {statement}\n}}\n")

    def test_alike_and_allowed(self):
        self.good("argv/src/a.cc", """
            // system("ls"), popen(), "/bin/sh", time(nullptr), rand(), fsync(fd), system_clock
            /* system("ls")
               execl("/bin/sh") */
            const char* a = "system(1) popen(2) time(3) rand() fsync(4) std::chrono::system_clock random_device";
            const char* b = "never run /bin/sh, \\" or system(x)";
            const char* c = R"x(system("ls"); time(0) " )" fsync(1))x";
            const char d = '"'; int system_count(int); int e = 1'000'000; char f = '\\'';
            Status fsync(int fd); virtual Result<int> time(); char* rand(int); const Clock& time(int);
            auto g = file.fsync(3); ops->syncfs(4); auto h = Durability::fsync; auto i = Fake::fsync(1);
            auto j = uptime(); set_time(1); time_t k = 0; operand(1); int time = 3; std::chrono::steady_clock l;
        """)

    def test_literals_do_not_hide_what_follows(self):
        self.bad("argv/src/a.cc", 'const char* a = "\\\\"; int t = time(nullptr);\n', "wall-clock")
        self.bad("argv/src/a.cc", "char a = '\"'; int t = time(nullptr); // \"\n", "wall-clock")
        self.bad("argv/src/a.cc", 'auto a = R"(")"; int t = time(nullptr);\n', "wall-clock")
        self.bad("argv/src/a.cc", "int a = 1'000; int t = time(nullptr); int b = 0x1'f;\n", "wall-clock")
        self.bad("argv/src/a.cc", "// a comment \\\n time(0)\nint t = time(nullptr);\n", "wall-clock", 3)
        self.bad("argv/src/a.cc", "/* a \" */ int t = time(nullptr);\n", "wall-clock")


class NewerNames(TidyTest):
    def test_calls_without_a_namespace(self):
        for call in ('print(out, "a", "b");', "return print(out, x), 1;", 'auto a = format("{}", 1);', "if (x) println(out);", "f(add_sat(1, 2));"):
            with self.subTest(call=call):
                self.bad("argv/src/a.cc", f"void f() {{\n  {call}\n}}\n", "newer-name", 2)

    def test_what_no_argument_changes(self):
        self.good("argv/src/a.cc", """
            void print(std::ostream& out, int a); auto a = fmt::format("{}", 1); fmt::print(stderr, "x"); out.print(1); p->format(2);
            twinloft::print(out, 1); print_row(1); int format = 1; std::string b = "print(1)"; // format(1)
        """)


class Hygiene(TidyTest):
    def test_tabs(self):
        self.bad("argv/src/a.cc", "int a;\n\tint b;\n", "tab", 2)
        self.good("argv/src/a.cc", 'const char* a = "\\t";\n')
        self.good("conf/a.txt", "a\tb\n")

    def test_the_rest_of_a_wrapped_title(self):
        self.bad("argv/src/a.cc", "// ---- parts\n// -----------\n", "dashes", 2)
        self.good("argv/src/a.cc", "// ---- parts\nint a;\n")

    def test_length(self):
        self.bad("argv/src/a.cc", "int a;\n" * 700, "length", 700)
        self.good("argv/src/a.cc", "int a;\n" * 699)
        self.good("docs/a.md", "line\n" * 2000)

    def test_machine_paths(self):
        self.bad("docs/a.md", f"see\n{MACHINE}/x\n", "machine-path", 2)
        self.bad("argv/src/a.cc", f'const char* a = "{MACHINE}";\n', "machine-path")
        self.bad("tests/e2e/run", f"cd {ROOT_HOME}\n", "machine-path")
        self.good("docs/b.md", "a spool under /srv/mail, a file in tests" + MACHINE + ", the $dir" + MACHINE + "\n")

    def test_paths_that_are_appended_to_one(self):
        self.good("tests/unit/base/a.cc", f'auto a = dir + "{MACHINE}";\nauto b = dir +\n    "{MACHINE}";\n')
        self.bad("tests/unit/base/a.cc", f'auto a = f("{MACHINE}");\n', "machine-path")

    def test_build_folders_are_not_read(self):
        self.write("build/release/a.cc", "\tsystem(1);\n")
        self.assertEqual(self.found(), [])


class CommandLine(TidyTest):
    def run_main(self):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = tidy.main(["--root", self.root])
        return status, out.getvalue(), err.getvalue()

    def test_messages_name_file_line_and_rule(self):
        self.write("argv/src/a.cc", "\nint a = rand();\n")
        status, out, _ = self.run_main()
        self.assertEqual(status, 1)
        self.assertEqual(out, "argv/src/a.cc:2: [random] rand cannot be repeated from a seed; take a twinloft::Random\n")

    def test_clean(self):
        self.write("argv/src/a.cc", "int a;\n")
        self.assertEqual(self.run_main()[:2], (0, ""))

    def test_an_empty_tree_is_no_success(self):
        self.assertEqual(self.run_main()[0], 2)


if __name__ == "__main__":
    unittest.main()
