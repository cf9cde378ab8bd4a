"""Commands sent ahead (RFC 2920)."""
from suite import MUST, SHOULD, check, expect


def codes_are(replies, *codes):
    got = [r.code for r in replies]
    expect(len(got) == len(codes) and all(g in (w if isinstance(w, tuple) else (w,)) for g, w in zip(got, codes)), f"the replies are {got}")


def group(t, *lines):
    return "".join(line + "\r\n" for line in lines).encode()


@check("pipelining.envelope", "RFC 2920 3.2", MUST, "MAIL, RCPT, RCPT, DATA in one segment get their replies in order")
def envelope(t):
    with t.open() as c:
        c.send(group(t, f"MAIL FROM:<{t.sender}>", f"RCPT TO:<{t.to[0]}>", f"RCPT TO:<{t.to[1]}>", "DATA"))
        codes_are(c.replies(4), 250, (250, 251), (250, 251), 354)
        c.send(t.message(t.marker()) + b".\r\n")
        t.finish(c, 2)
        t.bounds(c)


@check("pipelining.one_byte_at_a_time", "RFC 2920 3.2", MUST, "also if each byte comes alone")
def trickled(t):
    with t.open() as c:
        c.send(group(t, f"MAIL FROM:<{t.sender}>", f"RCPT TO:<{t.to[0]}>", "DATA"), pieces_of=1)
        codes_are(c.replies(3), 250, (250, 251), 354)
        c.send(t.message(t.marker()) + b".\r\n")
        t.finish(c, 1)
        t.bounds(c)


@check("pipelining.some_refused", "RFC 2920 3.2", MUST, "a recipient refused in between does not stop the others")
def some_refused(t):
    with t.open() as c:
        c.send(group(t, f"MAIL FROM:<{t.sender}>", f"RCPT TO:<{t.unknown}>", f"RCPT TO:<{t.to[0]}>", "DATA"))
        codes_are(c.replies(4), 250, 550, (250, 251), 354)
        c.send(t.message(t.marker()) + b".\r\n")
        t.finish(c, 1)
        t.bounds(c)


@check("pipelining.all_refused", "RFC 2033 4.2", MUST, "if all recipients were refused, DATA sent ahead gets 503, and the server waits for no message")
def all_refused(t):
    with t.open() as c:
        c.send(group(t, f"MAIL FROM:<{t.sender}>", f"RCPT TO:<{t.unknown}>", f"RCPT TO:<{t.unknown}>", "DATA"))
        codes_are(c.replies(4), 250, 550, 550, 503)
        t.bounds(c)


@check("pipelining.mail_refused", "RFC 2920 3.2", MUST, "RCPT and DATA after a refused MAIL get 503 each")
def mail_refused(t):
    with t.open() as c:
        c.send(group(t, "MAIL FROM:<a b@conform.example>", f"RCPT TO:<{t.to[0]}>", "DATA"))
        first, second, third = c.replies(3)
        expect(first.permanent, f"MAIL gets {first}")
        codes_are([second, third], 503, 503)
        t.bounds(c)


@check("pipelining.rset", "RFC 2920 3.1", MUST, "RSET, MAIL, RCPT in one segment")
def rset(t):
    with t.open() as c:
        t.mail(c)
        c.send(group(t, "RSET", f"MAIL FROM:<{t.sender}>", f"RCPT TO:<{t.to[0]}>", "NOOP"))
        codes_are(c.replies(4), 250, 250, (250, 251), 250)


@check("pipelining.100_rset", "RFC 2920 3.2", MUST, "100 commands in one segment get 100 replies")
def many(t):
    with t.open() as c:
        c.send(b"RSET\r\n" * 100)
        codes_are(c.replies(100), *[250] * 100)
        t.bounds(c)


@check("pipelining.input_kept", "RFC 2920 3.2", MUST, "commands that were sent after a wrong command are executed")
def input_kept(t):
    with t.open() as c:
        c.send(group(t, "XYZZY", "RSET", "RCPT TO:<a@conform.example>", "RSET"))
        replies = c.replies(4)
        codes_are(replies, 500, 250, 503, 250)
        t.bounds(c)


@check("pipelining.data_and_next", "RFC 2920 3.1", MUST, "the message may be the first of a group: the next MAIL and RCPT follow in its segment")
def data_and_next(t):
    with t.open() as c:
        t.envelope(c)
        t.data(c)
        c.send(t.message(t.marker()) + b".\r\n" + group(t, f"MAIL FROM:<{t.sender}>", f"RCPT TO:<{t.to[0]}>", "DATA"))
        t.finish(c, 1)
        codes_are(c.replies(3), 250, (250, 251), 354)
        c.send(t.message(t.marker()) + b".\r\n" + group(t, "QUIT"))
        t.finish(c, 1)
        expect(c.reply(b"QUIT").code == 221, "QUIT after a message does not get 221")
        expect(c.ended(), "there is more input after the reply to QUIT")


@check("pipelining.quit", "RFC 2920 3.2", MUST, "QUIT at a group's end: all replies before it come")
def quit_last(t):
    with t.open() as c:
        c.send(group(t, f"MAIL FROM:<{t.sender}>", f"RCPT TO:<{t.to[0]}>", "QUIT"))
        codes_are(c.replies(3), 250, (250, 251), 221)
        expect(c.ended(), "there is more input after the reply to QUIT")


@check("pipelining.lhlo_group", "RFC 2920 3.1", SHOULD, "a client that sends all ahead, from LHLO on, still gets its replies in order")
def lhlo_group(t):
    with t.greeted() as c:
        c.send(group(t, "LHLO conform.example", f"MAIL FROM:<{t.sender}>", f"RCPT TO:<{t.to[0]}>", "DATA"))
        codes_are([c.reply(b"LHLO")] + c.replies(3), 250, 250, (250, 251), 354)
        c.send(t.message(t.marker()) + b".\r\n")
        t.finish(c, 1)
        t.bounds(c)


@check("pipelining.split_anywhere", "RFC 2920 3.2", MUST, "a group may be cut between segments anywhere")
def split(t):
    for size in (2, 3, 7, 31):
        with t.open() as c:
            c.send(group(t, f"MAIL FROM:<{t.sender}>", f"RCPT TO:<{t.to[0]}>", f"RCPT TO:<{t.unknown}>", "DATA"), pieces_of=size)
            codes_are(c.replies(4), 250, (250, 251), 550, 354)
            c.send(t.message(t.marker()) + b".\r\n", pieces_of=size)
            t.finish(c, 1)
            t.bounds(c)
