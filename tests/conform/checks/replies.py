"""Rules for every reply, checked on all replies of the checks before. So these checks come last."""
import re

from suite import MUST, SHOULD, Skipped, check, expect

GREETINGS = (b"(greeting)",)


def is_greeting(reply):
    return reply.to in GREETINGS or reply.to[:4].upper() in (b"LHLO", b"HELO", b"EHLO", b"STAR", b"XCLI")


def every(t, wrong, what):
    """wrong(reply) tells whether a reply breaks the rule."""
    if not t.seen:
        raise Skipped("no check before this one was run")
    for reply in t.seen:
        expect(not wrong(reply), f"{what}: {reply}, to {reply.to[:60].decode('latin-1')!r}")


@check("reply.512_bytes", "RFC 5321 4.5.3.1.5", MUST, "no reply line has more than 512 bytes")
def length(t):
    every(t, lambda r: any(len(line) > 510 for line in r.lines), "too long")


@check("reply.code", "RFC 5321 4.2", MUST, "reply codes are 2yz to 5yz, with y from 0 to 5")
def code(t):
    every(t, lambda r: not 200 <= r.code < 600 or r.code // 10 % 10 > 5, "not a reply code")


@check("reply.text", "RFC 5321 4.2", MUST, "reply texts hold printable ASCII and tabs only, or UTF-8 if SMTPUTF8 is in use")
def text(t):
    every(t, lambda r: any(not re.fullmatch(rb"[\t -~]*", line) for line in r.lines), "unprintable bytes")


@check("reply.enhanced_everywhere", "RFC 2034 4", MUST, "every 2xx, 4xx and 5xx has an enhanced code, except the replies to connection and LHLO")
def enhanced(t):
    t.needs("ENHANCEDSTATUSCODES")
    every(t, lambda r: r.code // 100 in (2, 4, 5) and not is_greeting(r) and r.enhanced is None, "no enhanced code")


@check("reply.enhanced_every_line", "RFC 2034 4", MUST, "every line of a reply with several lines has it")
def enhanced_lines(t):
    t.needs("ENHANCEDSTATUSCODES")
    every(t, lambda r: r.enhanced is not None and any(not text.startswith(r.enhanced) for text in r.texts), "a line without the code")


@check("reply.enhanced_class", "RFC 2034 4", MUST, "an enhanced code's class is the first digit of the reply code")
def enhanced_class(t):
    every(t, lambda r: r.enhanced is not None and r.enhanced[0] != str(r.code)[0], "another class")


@check("reply.enhanced_zeros", "RFC 3463 2", MUST, "an enhanced code's numbers have no leading zeros")
def enhanced_zeros(t):
    every(t, lambda r: r.enhanced is not None and re.search(r"\.0[0-9]", r.enhanced), "a leading zero")


@check("reply.enhanced_not_in_greetings", "RFC 2034 4", MUST, "greeting, LHLO's reply and 354 have no enhanced code")
def not_in_greetings(t):
    every(t, lambda r: (r.to == b"(greeting)" or r.to[:4].upper() == b"LHLO" and r.positive or r.code == 354) and r.enhanced is not None,
          "an enhanced code")


@check("reply.503_5.5.1", "RFC 3463 3.6", SHOULD, "a command out of order gets enhanced code 5.5.1, or 5.5.0")
def out_of_order(t):
    every(t, lambda r: r.code == 503 and r.enhanced not in ("5.5.1", "5.5.0", None), "another code")
