#!/usr/bin/env python3
"""Words and quotes have the same meaning as in a POSIX shell.

The library and the system's sh read random templates without macros, groups and shell syntax. Both must see the same
words. sh runs once for all templates, with printf as its only command.
"""
import random
import subprocess
import sys

SEED = 20240607
COUNT = 4000
ALPHABET = ["a", "b", "-", " ", " ", "\t", "'", '"', "\\", "\\\n", "=", "/", "\u00e9", "\\$="]  # "$=" has no expansion


def make(rng):
    # A fixed first word, so that no template is empty. No unquoted line ends: for sh they end the command, for the
    # library they are blanks.
    text = "x "
    for _ in range(rng.randrange(0, 14)):
        token = rng.choice(ALPHABET)
        if not (token == "\\\n" and text.endswith("\\")):
            text += token
    return text


def by_library(tool, templates):
    data = b"".join(t.encode() + b"\0" for t in templates)
    out = subprocess.run([tool], input=data, stdout=subprocess.PIPE, check=True).stdout
    results, at = [], 0
    while at < len(out):
        if out[at] == 3:
            results.append(None)
            at += 1
        else:
            end = out.index(b"\x02", at)
            results.append(out[at + 1:end].split(b"\0")[:-1])
            at = end + 1
    return results


def by_shell(templates):
    script = "".join("printf '%s\\0' " + t + "\nprintf '\\002'\n" for t in templates)
    out = subprocess.run(["sh"], input=script.encode(), stdout=subprocess.PIPE, check=True).stdout
    return [part.split(b"\0")[:-1] for part in out.split(b"\x02")[:-1]]


def main():
    rng = random.Random(SEED)
    templates = [make(rng) for _ in range(COUNT)]
    ours = by_library(sys.argv[1], templates)
    assert len(ours) == COUNT, (len(ours), COUNT)
    good = [(t, words) for t, words in zip(templates, ours) if words is not None]
    refused = COUNT - len(good)
    assert len(good) > COUNT // 4 and refused > COUNT // 20, f"the sample says nothing: {refused} of {COUNT} refused"
    theirs = by_shell([t for t, _ in good])
    assert len(theirs) == len(good), (len(theirs), len(good))
    wrong = [(t, w, s) for (t, w), s in zip(good, theirs) if w != s]
    for template, words, shell in wrong[:10]:
        print(f"template {template!r}\n  library {words}\n  sh      {shell}")
    # sh must refuse what the library refuses. Each template gets its own shell, because a syntax error ends a shell.
    accepted = [t for t, words in zip(templates, ours) if words is None][:200]
    accepted = [t for t in accepted if subprocess.run(["sh", "-n"], input=("printf x " + t).encode(),
                                                      stderr=subprocess.DEVNULL).returncode == 0]
    # sh keeps a backslash at the end of its input. The library refuses it on purpose.
    accepted = [t for t in accepted if not t.endswith("\\")]
    for template in accepted[:10]:
        print(f"template {template!r} is refused by the library only")
    print(f"{len(good)} templates read alike, {refused} refused, seed {SEED}")
    return 1 if wrong or accepted else 0


if __name__ == "__main__":
    sys.exit(main())
