"""DATA: the message, one reply for each recipient, and the stored message."""
from suite import MUST, SHOULD, check, expect


@check("data.354", "RFC 5321 4.1.1.4", MUST, "DATA gets 354")
def data_354(t):
    with t.open() as c:
        t.envelope(c)
        t.data(c)


@check("data.without_mail", "RFC 5321 4.1.4", MUST, "DATA without MAIL gets 503 or 554")
def data_without_mail(t):
    with t.open() as c:
        reply = c.command("DATA")
        expect(reply.code in (503, 554), f"DATA gets {reply}")
        t.alive(c)


@check("data.without_rcpt", "RFC 2033 4.2", MUST, "DATA without a recipient gets 503")
def data_without_rcpt(t):
    with t.open() as c:
        t.mail(c)
        reply = c.command("DATA")
        expect(reply.code == 503, f"DATA gets {reply}")
        t.rcpt(c)


@check("data.argument", "RFC 5321 4.1.1", SHOULD, "DATA with an argument gets 501")
def data_argument(t):
    with t.open() as c:
        t.envelope(c)
        reply = c.command("DATA now")
        expect(reply.code == 501, f"DATA now gets {reply}")
        t.data(c)


@check("data.trailing_blank", "RFC 5321 4.1.1", SHOULD, "blanks at the end are tolerated")
def data_trailing_blank(t):
    with t.open() as c:
        t.envelope(c)
        reply = c.command("DATA  ")
        expect(reply.code == 354, f"\"DATA  \" gets {reply}")


for _count in (1, 2, 5):
    @check(f"data.replies_{_count}", "RFC 2033 4.2", MUST, f"{_count} accepted: {_count} replies after the message, no more and no less")
    def data_replies(t, count=_count):
        with t.open() as c:
            t.envelope(c, *[t.to[i % len(t.to)] for i in range(count)])
            t.send(c, count)
            t.bounds(c)


@check("data.replies_twice_the_same", "RFC 2033 4.2", MUST, "a recipient given twice gets two replies")
def data_replies_same(t):
    with t.open() as c:
        t.envelope(c, t.to[0], t.to[0])
        t.send(c, 2)
        t.bounds(c)


@check("data.replies_some_refused", "RFC 2033 4.2", MUST, "refused recipients get no reply after the message")
def data_replies_refused(t):
    with t.open() as c:
        t.mail(c)
        c.command(f"RCPT TO:<{t.unknown}>")
        t.rcpt(c, t.to[0])
        c.command("RCPT TO:<@conform.example>")
        t.rcpt(c, t.to[1])
        c.command(f"RCPT TO:<{t.unknown}>")
        t.send(c, 2)
        t.bounds(c)


@check("data.ends_transaction", "RFC 5321 4.1.1.4", MUST, "the message ends the transaction")
def data_ends(t):
    with t.open() as c:
        t.envelope(c)
        t.send(c, 1)
        for line in (f"RCPT TO:<{t.to[0]}>", "DATA"):
            reply = c.command(line)
            expect(reply.code == 503, f"{line} gets {reply}")
        t.envelope(c)


@check("data.empty", "RFC 5321 4.1.1.4", MUST, "a message without a byte ends with its first line, a dot")
def data_empty(t):
    with t.open() as c:
        t.envelope(c)
        t.data(c)
        c.send(b".\r\n")
        c.reply(b"(end of data)")
        t.bounds(c)


@check("data.one_byte_at_a_time", "RFC 5321 4.1.1.4", MUST, "a message and its end may come one byte at a time")
def data_trickled(t):
    with t.open() as c:
        t.envelope(c)
        t.data(c)
        c.send(t.message(t.marker(), b"..a\r\n...\r\n") + b".\r\n", pieces_of=1)
        t.finish(c, 1)
        t.bounds(c)


@check("data.commands_are_text", "RFC 5321 4.1.1.4", MUST, "lines that look like commands are part of the message")
def data_commands(t):
    with t.open() as c:
        t.envelope(c)
        t.data(c)
        c.send(t.message(t.marker(), b"RSET\r\nQUIT\r\nLHLO conform.example\r\nBDAT 3 LAST\r\n") + b".\r\n")
        t.finish(c, 1)
        t.bounds(c)


@check("data.line_1000", "RFC 5321 4.5.3.1.6", MUST, "a line of 1000 bytes is accepted")
def data_line_1000(t):
    t.deliver(t.message(t.marker(), b"x" * 998 + b"\r\n"))


@check("data.line_long", "RFC 5321 4.5.3.1.6", SHOULD, "a line of 100,000 bytes is accepted, or the message is refused; the session continues")
def data_line_long(t):
    with t.open() as c:
        t.envelope(c)
        t.data(c)
        c.send(t.message(t.marker(), b"x" * 100_000 + b"\r\n") + b".\r\n")
        c.reply(b"(end of data)")
        t.bounds(c)


@check("data.64k", "RFC 5321 4.5.3.1.7", MUST, "a message of 64 KiB is accepted")
def data_64k(t):
    t.deliver(t.message(t.marker(), (b"x" * 62 + b"\r\n") * 1024))


@check("data.too_large", "RFC 2033 4.2", MUST, "a message above SIZE's limit gets 552 for each recipient, and the session continues")
def data_too_large(t):
    limit = t.sendable_limit()
    with t.open() as c:
        t.envelope(c, *t.to[:2])
        t.data(c)
        c.send(t.message(t.marker()))
        piece = b"x" * 998 + b"\r\n"
        c.send(piece * (limit // len(piece) + 2))
        c.send(b".\r\n")
        for reply in c.replies(2, b"(end of data)"):
            expect(reply.code == 552, f"the message gets {reply}")
        t.envelope(c)
        t.bounds(c)


@check("data.cut", "RFC 5321 4.1.1.10", MUST, "a connection that ends within the message delivers nothing")
def data_cut(t):
    t.needs_store()
    marker = t.marker()
    with t.open() as c:
        t.envelope(c)
        t.data(c)
        c.send(t.message(marker) + b".\r")
    t.not_stored(marker)


@check("data.shut", "RFC 5321 4.1.1.4", MUST, "a connection that the client shuts within the message delivers nothing")
def data_shut(t):
    t.needs_store()
    marker = t.marker()
    with t.open() as c:
        t.envelope(c)
        t.data(c)
        c.send(t.message(marker))
        c.shut()
        t.not_stored(marker)


@check("data.rset_delivers_nothing", "RFC 5321 4.1.1.5", MUST, "a transaction that was reset before DATA is not delivered")
def data_rset(t):
    t.needs_store()
    marker = t.marker()
    with t.open() as c:
        t.envelope(c, t.to[1])
        c.command("RSET")
        t.envelope(c, t.to[0])
        t.data(c)
        c.send(t.message(marker) + b".\r\n")
        t.finish(c, 1)
        t.bounds(c)
    t.stored(marker)
    expect(t.copies(marker) == 1, f"{t.copies(marker)} copies were delivered")


# --- What is stored ----------------------------------------------------------------------------------------------------

def stored_as(t, sent, want, what):
    t.needs_store()
    marker = t.marker()
    t.deliver(t.message(marker, sent))
    got = t.stored_body(marker)
    expect(got == want, f"{what}: stored {got[:120]!r} instead of {want[:120]!r}")


@check("stored.text", "RFC 5321 4.1.1.4", MUST, "a message is stored as it was sent")
def stored_text(t):
    stored_as(t, b"One.\r\n\r\n  Two.  \r\n\tThree\r\n", b"One.\n\n  Two.  \n\tThree\n", "text")


@check("stored.dots", "RFC 5321 4.5.2", MUST, "one dot is removed from each line that begins with a dot")
def stored_dots(t):
    stored_as(t, b"..\r\n...\r\n..a\r\na.\r\n .\r\n", b".\n..\n.a\na.\n .\n", "dots")


@check("stored.dots_one_byte_at_a_time", "RFC 5321 4.5.2", MUST, "also if each byte comes alone")
def stored_dots_trickled(t):
    t.needs_store()
    marker = t.marker()
    with t.open() as c:
        t.envelope(c)
        t.data(c)
        c.send(t.message(marker, b"..\r\n...\r\n..a\r\na.\r\n") + b".\r\n", pieces_of=1)
        t.finish(c, 1)
    expect(t.stored_body(marker) == b".\n..\n.a\na.\n", f"stored {t.stored_body(marker)!r}")


@check("stored.8bit", "RFC 6152 3", MUST, "bytes above 127 are stored as they were sent")
def stored_8bit(t):
    t.needs("8BITMIME")
    t.needs_store()
    marker, every = t.marker(), bytes(range(128, 256))
    t.deliver(t.message(marker, every + b"\r\n", b"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=iso-8859-1\r\n"
                        b"Content-Transfer-Encoding: 8bit\r\n"), parameters=" BODY=8BITMIME")
    expect(t.stored_body(marker) == every + b"\n", f"stored {t.stored_body(marker)[:80]!r}")


@check("stored.nul", "RFC 5321 4.1.1.4", SHOULD, "a message with a NUL is refused, or stored to its end")
def stored_nul(t):
    t.needs_store()
    marker = t.marker()
    with t.open() as c:
        t.envelope(c)
        t.data(c)
        c.send(t.message(marker, b"before\0after\r\nlast line\r\n") + b".\r\n")
        reply = c.reply(b"(end of data)")
        t.bounds(c)
    expect(reply.permanent or b"last line" in t.stored_body(marker), "cut off at the NUL")


@check("stored.all_recipients", "RFC 2033 4.2", MUST, "every recipient that got 250 has the message")
def stored_all(t):
    t.needs_store()
    for to in t.to[:2]:
        marker = t.marker()
        t.deliver(t.message(marker), to)
        t.stored(marker)


@check("stored.return_path", "RFC 5321 4.4", MUST, "final delivery adds Return-Path with the sender before the message")
def stored_return_path(t):
    t.needs_store()
    marker = t.marker()
    t.deliver(t.message(marker))
    head = t.stored(marker).partition(b"\nSubject:")[0].lower()
    expect(f"return-path: <{t.sender}>".encode().lower() in head,
           f"the stored header begins with {head[:200]!r}")


@check("stored.return_path_bytes", "RFC 5321 4.4", MUST, "a sender beyond ASCII that was accepted is kept byte for byte")
def stored_return_path_bytes(t):
    t.needs_store()
    for sender in ("j\u00f6rg@b\u00fccher.example".encode(), b"j\xf6rg@conform.example"):
        marker = t.marker()
        with t.open() as c:
            if c.command(b"MAIL FROM:<" + sender + b">").permanent:
                continue
            t.rcpt(c)
            t.data(c)
            c.send(t.message(marker) + b".\r\n")
            t.finish(c, 1)
        head = t.stored(marker).partition(b"\nSubject:")[0]
        expect(b"<" + sender + b">" in head, f"the stored header begins with {head[:200]!r}")


@check("stored.return_path_null", "RFC 5321 4.4", MUST, "Return-Path is <> for the null reverse-path")
def stored_return_path_null(t):
    t.needs_store()
    marker = t.marker()
    with t.open() as c:
        t.mail(c, sender="")
        t.rcpt(c)
        t.data(c)
        c.send(t.message(marker) + b".\r\n")
        t.finish(c, 1)
    head = t.stored(marker).partition(b"\nSubject:")[0].lower()
    expect(b"return-path: <>" in head, f"the stored header begins with {head[:200]!r}")


@check("stored.received", "RFC 5321 4.4", MUST, "a Received field is added before the message, and no other is changed")
def stored_received(t):
    t.needs_store()
    marker = t.marker()
    old = b"Received: from one.example by two.example with ESMTP id 1;\r\n Mon, 23 Nov 2026 11:00:00 +0000\r\n"
    t.deliver(t.message(marker, fields=old))
    content = t.stored(marker)
    place = content.find(old.replace(b"\r\n", b"\n"))
    expect(place >= 0, "the existing Received field was changed")
    expect(b"received:" in content[:content.find(b"\nSubject:")].lower(), "no field was added before the message")


@check("stored.received_with", "RFC 3848 2", SHOULD, "the Received field says with LMTP, or a variant of LMTP")
def stored_received_with(t):
    t.needs_store()
    marker = t.marker()
    t.deliver(t.message(marker))
    head = b" ".join(t.stored(marker).partition(b"\nSubject:")[0].split())
    expect(b"with LMTP" in head, f"the stored header begins with {head[:300]!r}")
