"""BDAT (RFC 3030), with LMTP's replies (RFC 2033 section 4.3)."""
import contextlib
import threading

from suite import MUST, SHOULD, Skipped, check, expect


def bdat(c, data, last=False, to=b"BDAT"):
    c.send(f"BDAT {len(data)}{' LAST' if last else ''}\r\n".encode() + data)
    return None if last else c.reply(to)


def begun(t, c, *recipients):
    t.needs("CHUNKING")
    t.envelope(c, *recipients)


@check("chunking.one", "RFC 3030 2", MUST, "a message in one chunk")
def one(t):
    with t.open() as c:
        begun(t, c)
        bdat(c, t.message(t.marker()), last=True)
        t.finish(c, 1, b"BDAT LAST")
        t.bounds(c)


@check("chunking.replies", "RFC 2033 4.3", MUST, "the last chunk gets a reply for each accepted recipient, each other chunk gets one")
def replies(t):
    with t.open() as c:
        begun(t, c, t.to[0], t.to[1], t.to[0])
        content = t.message(t.marker())
        for at in range(0, 40, 10):
            reply = bdat(c, content[at:at + 10])
            expect(reply.code == 250, f"a chunk gets {reply}")
        bdat(c, content[40:], last=True)
        t.finish(c, 3, b"BDAT LAST")
        t.bounds(c)


@check("chunking.last_empty", "RFC 3030 2", MUST, "BDAT 0 LAST ends a message")
def last_empty(t):
    with t.open() as c:
        begun(t, c)
        expect(bdat(c, t.message(t.marker())).code == 250, "the chunk is refused")
        bdat(c, b"", last=True)
        t.finish(c, 1, b"BDAT LAST")
        t.bounds(c)


@check("chunking.case", "RFC 5321 2.4", MUST, "bdat and last may be written in small letters")
def case(t):
    with t.open() as c:
        begun(t, c)
        content = t.message(t.marker())
        c.send(f"bdat {len(content)} last\r\n".encode() + content)
        t.finish(c, 1, b"BDAT LAST")
        t.bounds(c)


@check("chunking.pipelined", "RFC 3030 4.2", MUST, "MAIL, RCPT and all chunks in one segment")
def pipelined(t):
    t.needs("CHUNKING")
    with t.open() as c:
        content = t.message(t.marker())
        c.send(f"MAIL FROM:<{t.sender}>\r\nRCPT TO:<{t.to[0]}>\r\nBDAT 20\r\n".encode() + content[:20]
               + f"BDAT {len(content) - 20} LAST\r\n".encode() + content[20:] + b"QUIT\r\n")
        got = [r.code for r in c.replies(5)]
        expect(got in ([250, 250, 250, 250, 221], [250, 251, 250, 250, 221]), f"the replies are {got}")
        expect(c.ended(), "there is more input after the reply to QUIT")


def numbered(t, marker, size):
    """A message in which every line is different, and its body as it is stored."""
    if "SIZE" in t.keywords and 0 < int((t.keywords["SIZE"] or ["0"])[0]) < size + 1000:
        raise Skipped(f"SIZE does not allow {size} bytes")
    body = b"".join(b"L%08d\r\n" % i for i in range(size // 11))
    return t.message(marker, body=body), body.replace(b"\r\n", b"\n")


def small_chunks(content, size, last=True):
    pieces = [content[at:at + size] for at in range(0, len(content), size)]
    return [f"BDAT {len(p)}{' LAST' if last and i == len(pieces) - 1 else ''}\r\n".encode() + p for i, p in enumerate(pieces)]


class Sending(threading.Thread):
    """Sends all data while the creator reads replies: a server may stop reading while its replies are not
    read.
    """

    def __init__(self, c, data):
        super().__init__(daemon=True)
        self._c, self._data, self.problem = c, data, None
        self.start()

    def run(self):
        try:
            self._c.send(self._data)
        except Exception as e:  # missing replies show it, too
            self.problem = e

    def done(self):
        self.join()
        if self.problem:
            raise self.problem


def expect_all_250(c, count):
    for n, reply in enumerate(c.replies(count)):
        expect(reply.code in (250, 251), f"reply {n + 1} of {count} is {reply}")


@check("chunking.small_and_pipelined", "RFC 3030 2", MUST, "a large message in small chunks, all sent ahead, is stored complete and in order")
def small_and_pipelined(t):
    t.needs("CHUNKING")
    t.needs("PIPELINING")
    # a large message, and many small ones: parts get out of order only now and then
    rounds = [(14, 200_000)] + [(5, 12_000)] * 15
    for size, count in rounds:
        messages = []
        for _ in range(4):  # at once, since load provokes the fault
            marker = t.marker()
            content, body = numbered(t, marker, count)
            messages.append((marker, body, small_chunks(content, size)))
        with contextlib.ExitStack() as all_of_them:
            connections = [all_of_them.enter_context(t.open()) for _ in messages]
            for c in connections:
                begun(t, c)
            sending = [Sending(c, b"".join(chunks)) for c, (_, _, chunks) in zip(connections, messages)]
            for c, thread, (_, _, chunks) in zip(connections, sending, messages):
                expect_all_250(c, len(chunks))
                thread.done()
                t.bounds(c)
        for marker, body, _ in messages if t.stored_under else ():
            expect(t.stored_body(marker) == body, "the stored message differs from the sent message")


@check("chunking.reset_in_pipeline", "RFC 3030 2", MUST, "RSET after many small chunks, and another message, all sent ahead: only that message is stored, complete")
def reset_in_pipeline(t):
    t.needs("CHUNKING")
    t.needs("PIPELINING")
    lost, kept = t.marker(), t.marker()
    first = small_chunks(numbered(t, lost, 150_000)[0], 14, last=False)
    content, body = numbered(t, kept, 150_000)
    second = small_chunks(content, 500)
    envelope = f"MAIL FROM:<{t.sender}>\r\nRCPT TO:<{t.to[0]}>\r\n".encode()
    with t.open() as c:
        sending = Sending(c, envelope + b"".join(first) + b"RSET\r\n" + envelope + b"".join(second))
        expect_all_250(c, 2 + len(first) + 1 + 2 + len(second))
        sending.done()
        t.bounds(c)
    if t.stored_under:
        expect(t.stored_body(kept) == body, "the stored message differs from the sent message")
        expect(t.copies(lost) == 0, "a reset message was delivered")


@check("chunking.one_byte_at_a_time", "RFC 3030 2", MUST, "a chunk and its command may come one byte at a time")
def trickled(t):
    with t.open() as c:
        begun(t, c)
        content = t.message(t.marker())
        c.send(f"BDAT {len(content)} LAST\r\n".encode() + content, pieces_of=1)
        t.finish(c, 1, b"BDAT LAST")
        t.bounds(c)


@check("chunking.text_is_not_read", "RFC 3030 2", MUST, "dots and commands in a chunk are text")
def text(t):
    with t.open() as c:
        begun(t, c)
        bdat(c, t.message(t.marker(), b"a\r\n.\r\nRSET\r\nQUIT\r\n"), last=True)
        t.finish(c, 1, b"BDAT LAST")
        t.bounds(c)


@check("chunking.stored", "RFC 3030 2", MUST, "the content of chunks is stored as it was sent, dots included")
def stored(t):
    t.needs_store()
    marker = t.marker()
    with t.open() as c:
        begun(t, c)
        content = t.message(marker, b".\r\n..\r\n.a\r\n")
        for at in range(0, len(content), 7):
            expect(bdat(c, content[at:at + 7]).code == 250, "a chunk is refused")
        bdat(c, b"", last=True)
        t.finish(c, 1, b"BDAT LAST")
    expect(t.stored_body(marker) == b".\n..\n.a\n", f"stored {t.stored_body(marker)!r}")


@check("chunking.no_recipient", "RFC 3030 2", MUST, "BDAT without an accepted recipient gets 503, and its chunk is skipped")
def no_recipient(t):
    t.needs("CHUNKING")
    with t.open() as c:
        t.mail(c)
        c.command(f"RCPT TO:<{t.unknown}>")
        reply = bdat(c, b"RSET\r\n")
        expect(reply.code == 503, f"BDAT gets {reply}")
        t.bounds(c)


@check("chunking.no_recipient_last", "RFC 2033 4.3", MUST, "the last chunk without an accepted recipient is skipped, and gets no reply")
def no_recipient_last(t):
    t.needs("CHUNKING")
    with t.open() as c:
        t.mail(c)
        c.command(f"RCPT TO:<{t.unknown}>")
        bdat(c, b"RSET\r\n", last=True)
        t.bounds(c)


@check("chunking.no_mail", "RFC 3030 2", MUST, "BDAT without MAIL gets 503, and its chunk is skipped")
def no_mail(t):
    t.needs("CHUNKING")
    with t.open() as c:
        reply = bdat(c, b"RSET\r\nRSET\r\n")
        expect(reply.code == 503, f"BDAT gets {reply}")
        t.bounds(c)


@check("chunking.data_after", "RFC 3030 2", MUST, "DATA within a message of chunks gets 503")
def data_after(t):
    with t.open() as c:
        begun(t, c)
        expect(bdat(c, b"Subject: x\r\n\r\n").code == 250, "the chunk is refused")
        reply = c.command("DATA")
        expect(reply.code == 503, f"DATA gets {reply}")
        t.bounds(c)


for _line in ("MAIL FROM:<a@conform.example>", "RCPT TO:<{to}>"):
    @check(f"chunking.{_line[:4].lower()}_after", "RFC 3030 2", SHOULD, f"{_line[:4]} within a message of chunks gets 503")
    def command_after(t, line=_line):
        with t.open() as c:
            begun(t, c)
            expect(bdat(c, b"Subject: x\r\n\r\n").code == 250, "the chunk is refused")
            reply = c.command(line.format(to=t.to[0]))
            expect(reply.code == 503, f"{line[:4]} gets {reply}")


@check("chunking.rset", "RFC 3030 2", MUST, "RSET between chunks discards the message")
def rset(t):
    with t.open() as c:
        begun(t, c)
        expect(bdat(c, b"Subject: x\r\n\r\n").code == 250, "the chunk is refused")
        expect(c.command("RSET").code == 250, "RSET is refused")
        reply = bdat(c, b"more\r\n")
        expect(reply.code == 503, f"the next chunk gets {reply}")
        c.command("RSET")
        t.envelope(c)
        bdat(c, t.message(t.marker()), last=True)
        t.finish(c, 1, b"BDAT LAST")
        t.bounds(c)


@check("chunking.ends_transaction", "RFC 3030 2", MUST, "the last chunk ends the transaction")
def ends(t):
    with t.open() as c:
        begun(t, c)
        bdat(c, t.message(t.marker()), last=True)
        t.finish(c, 1, b"BDAT LAST")
        reply = bdat(c, b"more\r\n")
        expect(reply.code == 503, f"the next chunk gets {reply}")
        t.envelope(c)


for _name, _line in (("no_size", "BDAT"), ("no_number", "BDAT many"), ("negative", "BDAT -5"), ("hex", "BDAT 0x10"), ("tail", "BDAT 0 FIRST"),
                     ("overflow", "BDAT 99999999999999999999999999")):
    @check(f"chunking.syntax_{_name}", "RFC 3030 2", MUST, f"{_line!r} is refused")
    def syntax(t, line=_line):
        with t.open() as c:
            begun(t, c)
            reply = c.command(line)
            # After such a line the start of the data is unknown: a server may also close the connection.
            expect(reply.permanent or reply.code == 421, f"{line} gets {reply}")


@check("chunking.too_large", "RFC 1870 6.3", MUST, "chunks above SIZE's limit are refused and skipped, each with a reply")
def too_large(t):
    t.needs("CHUNKING")
    limit = t.sendable_limit()
    with t.open() as c:
        t.envelope(c, *t.to[:2])
        chunk = (b"x" * 998 + b"\r\n") * (limit // 1000 // 2 + 1)
        codes = [bdat(c, chunk).code for _ in range(3)]  # two chunks exceed the limit
        expect(codes[0] == 250 and codes[1] == 552 and codes[2] in (503, 552), f"the chunks get {codes}")
        t.lhlo(c)
        t.envelope(c)
        t.bounds(c)


@check("chunking.too_large_last", "RFC 2033 4.3", MUST, "a last chunk above SIZE's limit gets a reply for each recipient")
def too_large_last(t):
    t.needs("CHUNKING")
    limit = t.sendable_limit()
    with t.open() as c:
        t.envelope(c, *t.to[:2])
        bdat(c, (b"x" * 998 + b"\r\n") * (limit // 1000 + 2), last=True)
        for reply in c.replies(2, b"BDAT LAST"):
            expect(reply.permanent, f"the message gets {reply}")
        t.bounds(c)


@check("chunking.binarymime_needs_it", "RFC 3030 3", MUST, "BODY=BINARYMIME is refused if BINARYMIME is not offered")
def binarymime(t):
    t.must_not_offer("BINARYMIME")
    with t.open() as c:
        reply = c.command(f"MAIL FROM:<{t.sender}> BODY=BINARYMIME")
        expect(reply.code in (501, 504, 555), f"MAIL gets {reply}")
        t.mail(c)


@check("chunking.binarymime_data", "RFC 3030 3", MUST, "DATA after BODY=BINARYMIME gets 503")
def binarymime_data(t):
    t.needs("BINARYMIME")
    with t.open() as c:
        t.mail(c, " BODY=BINARYMIME")
        t.rcpt(c)
        reply = c.command("DATA")
        expect(reply.code == 503, f"DATA gets {reply}")


@check("chunking.not_offered", "RFC 3030 2", MUST, "BDAT is unknown if CHUNKING is not offered")
def not_offered(t):
    t.must_not_offer("CHUNKING")
    with t.open() as c:
        t.envelope(c)
        reply = c.command("BDAT 0 LAST")
        expect(reply.permanent, f"BDAT gets {reply}")
