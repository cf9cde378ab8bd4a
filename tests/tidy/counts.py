#!/usr/bin/env python3
"""Prints the sizes of the tree's classes and functions, to find what to divide next.

    counts.py [--root DIR] [--classes N] [--functions N] [PATH ...]

Classes by their data members, with their functions. Functions by their lines. Counted from the text, by braces.
A declaration of several members counts each name. A nested class counts separately. PATH: the folders to read;
default: base, argv, spool-state, intake-log, lmtpd, spool-milter, spool-repl and bench.
"""
import argparse
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tidy  # noqa: E402

FOLDERS = ["base", "argv", "spool-state", "intake-log", "lmtpd", "spool-milter", "spool-repl", "bench"]
CLASS = re.compile(r"\b(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?([\w:]+)(?:\s+final)?\s*(?::[^:{;][^{;]*)?\{")
NO_MEMBER = re.compile(r"^(?:using|typedef|friend|template|enum|static_assert|public|private|protected|class|struct|static|operator)\b")
NAME = re.compile(r"(~?\w+|operator\s*\S+)\s*$")
BEFORE_BODY = ("if", "for", "while", "switch", "catch", "do", "else", "namespace", "return", "try")


def closing(code, start):
    """The position after the brace that closes the brace at `start`."""
    depth = 0
    for at in range(start, len(code)):
        if code[at] == "{":
            depth += 1
        elif code[at] == "}":
            depth -= 1
            if depth == 0:
                return at + 1
    return len(code)


def flat(code):
    """The declarations of a class, without the contents of their braces and brackets."""
    out, depth, angle = [], 0, 0
    for c in code:
        if c in "{(":
            out.append(c if depth == 0 else "")
            depth += 1
        elif c in "})":
            depth -= 1
            out.append((";" if c == "}" else c) if depth == 0 else "")
        elif depth == 0:
            out.append(c)
    return re.split(r";|(?<=\bpublic):|(?<=\bprivate):|(?<=\bprotected):", "".join(out))


def members_of(body):
    """(data members, functions) of a class with this body."""
    data = functions = 0
    for declaration in flat(body):
        text = re.sub(r"\s+", " ", declaration).strip().removeprefix("{").strip()
        text = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", text)))
        text = re.sub(r"^(?:\[\[\w+\]\] )?(?:mutable |virtual |explicit |inline |constexpr |const )+", "", text)
        if not text or text in ("public", "private", "protected"):
            continue
        before = re.split(r"=|\{", text)[0]
        if "(" in before:
            functions += 1
        elif not NO_MEMBER.match(text) and " " in before.strip():
            data += before.count(",") + 1
    return data, functions


def classes_in(code):
    for match in CLASS.finditer(code):
        if re.search(r"\benum\s+$", code[:match.start()]):
            continue
        end = closing(code, match.end() - 1)
        yield code.count("\n", 0, match.start()) + 1, match.group(1), *members_of(code[match.end():end - 1])


def functions_in(code):
    """(line, name, lines) of each function with a body. A lambda belongs to its enclosing function."""
    at = 0
    while True:
        brace = code.find("{", at)
        if brace < 0:
            return
        head = code[max(0, code.rfind(";", 0, brace), code.rfind("}", 0, brace), code.rfind("{", 0, brace)):brace]
        head = re.sub(r"\)\s*:\s.*$", ")", head, flags=re.DOTALL)  # a constructor's initialisers
        call = re.search(r"([\w:~]+)\s*\([^;]*\)[\w\s&>-]*$", head, re.DOTALL)
        name = call.group(1).split("::")[-1] if call else ""
        if not call or name in BEFORE_BODY or "[" in head[:call.start()][-2:]:
            at = brace + 1
            continue
        end = closing(code, brace)
        first = code.count("\n", 0, brace) + 1
        yield first, call.group(1), code.count("\n", brace, end) + 1
        at = end


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("--classes", type=int, default=15)
    parser.add_argument("--functions", type=int, default=15)
    parser.add_argument("paths", nargs="*", default=FOLDERS, metavar="PATH")
    args = parser.parse_args(argv)
    classes, functions, files = [], [], 0
    for path in tidy.Tidy(args.root).files:
        if not path.endswith(tidy.CPP) or not tidy.under(path, args.paths):
            continue
        with open(os.path.join(args.root, path), encoding="utf-8") as f:
            code = tidy.read_cpp(f.read()).code
        files += 1
        classes += [(data, fns, f"{path}:{line} {name}") for line, name, data, fns in classes_in(code)]
        functions += [(lines, f"{path}:{line} {name}") for line, name, lines in functions_in(code)]
    print(f"{files} files, {len(classes)} classes, {len(functions)} functions with a body")
    print(f"classes with more than 20 data members: {sum(c[0] > 20 for c in classes)}; functions of more than 50 lines: "
          f"{sum(f[0] > 50 for f in functions)}, of more than 30: {sum(f[0] > 30 for f in functions)}")
    for data, fns, where in sorted(classes, reverse=True)[:args.classes]:
        print(f"{data:5} members {fns:4} functions  {where}")
    for lines, where in sorted(functions, reverse=True)[:args.functions]:
        print(f"{lines:5} lines  {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
