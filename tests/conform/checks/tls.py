"""STARTTLS (RFC 3207)."""
from suite import MUST, SHOULD, Skipped, check, expect, keywords_of
from wire import ConnectionEnded


def secured(t):
    t.needs("STARTTLS")
    c = t.open()
    reply = c.command("STARTTLS")
    expect(reply.code == 220, f"STARTTLS gets {reply}")
    c.start_tls()
    return c


@check("tls.message", "RFC 3207 4", MUST, "a message over TLS")
def message(t):
    with secured(t) as c:
        t.lhlo(c)
        t.envelope(c)
        t.send(c, 1)
        t.bounds(c)


@check("tls.forgets", "RFC 3207 4.2", MUST, "the state from before TLS is discarded: MAIL needs a new LHLO")
def forgets(t):
    t.needs("STARTTLS")
    with t.greeted() as c:
        if c.command(f"MAIL FROM:<{t.sender}>").positive:
            raise Skipped("MAIL needs no LHLO here, so the check would show nothing")
    with secured(t) as c:
        reply = c.command(f"MAIL FROM:<{t.sender}>")
        expect(reply.code == 503, f"MAIL gets {reply}")


@check("tls.forgets_xclient", "RFC 3207 4.2", MUST, "the attributes of XCLIENT and XFORWARD from before TLS are discarded")
def forgets_xclient(t):
    t.needs("STARTTLS")
    t.needs("XCLIENT")
    t.needs_store()
    forged = b"192.0.2.99", b"forged.invalid"
    with t.open() as c:
        reply = c.command("XCLIENT ADDR=192.0.2.99 NAME=forged.invalid HELO=forged.invalid")
        expect(reply.code == 220, f"XCLIENT gets {reply}")
        t.lhlo(c)
        if "XFORWARD" in t.keywords:
            c.command("XFORWARD NAME=forged.invalid ADDR=192.0.2.99")
        reply = c.command("STARTTLS")
        expect(reply.code == 220, f"STARTTLS gets {reply}")
        c.start_tls()
        t.lhlo(c)
        t.envelope(c)
        t.data(c)
        marker = t.marker()
        c.send(t.message(marker) + b".\r\n")
        t.finish(c, 1)
    header = t.stored(marker).partition(b"\n\n")[0]
    expect(not any(word in header for word in forged), f"the forged client is in the message: {header!r}")


def before_required_tls(t):
    if not t.tls_required:
        raise Skipped("needs --tls-required")
    c = t.greeted(t.tls_required)
    t.lhlo(c)
    return c


@check("tls.required", "RFC 3207 4", MUST, "if TLS is required, every command except LHLO, NOOP, QUIT and STARTTLS gets 530 before TLS")
def required(t):
    with before_required_tls(t) as c:
        for command in (f"MAIL FROM:<{t.sender}>", f"RCPT TO:<{t.to[0]}>", "DATA", "RSET", "VRFY ann"):
            reply = c.command(command)
            expect(reply.code == 530, f"{command} gets {reply}")
        if "XCLIENT" in t.keywords:
            reply = c.command("XCLIENT ADDR=192.0.2.99")
            expect(reply.code == 530, f"XCLIENT gets {reply}")
        t.alive(c)
        reply = c.command("STARTTLS")
        expect(reply.code == 220, f"STARTTLS gets {reply}")
        c.start_tls()
        t.lhlo(c)
        t.envelope(c)
        t.send(c, 1)
        t.bounds(c)


@check("tls.required_chunk", "RFC 3207 4", MUST, "if TLS is required, a chunk is skipped, and not executed as commands")
def required_chunk(t):
    t.needs("CHUNKING")
    with before_required_tls(t) as c:
        c.send(b"BDAT 6\r\nQUIT\r\n")
        reply = c.reply(b"BDAT")
        expect(reply.permanent, f"BDAT gets {reply}")
        t.alive(c)


@check("tls.keyword_gone", "RFC 3207 4.2", MUST, "STARTTLS is not offered over TLS")
def keyword_gone(t):
    with secured(t) as c:
        expect("STARTTLS" not in keywords_of(t.lhlo(c)), "STARTTLS is offered again")


@check("tls.twice", "RFC 3207 4.2", MUST, "STARTTLS over TLS is refused")
def twice(t):
    with secured(t) as c:
        t.lhlo(c)
        reply = c.command("STARTTLS")
        expect(reply.permanent, f"STARTTLS gets {reply}")
        t.alive(c)


@check("tls.injection", "RFC 3207 6", MUST, "clear text after STARTTLS is not executed (CVE-2011-0411)")
def injection(t):
    t.needs("STARTTLS")
    with t.open() as c:
        c.send(b"STARTTLS\r\nLHLO injected.example\r\nMAIL FROM:<injected@conform.example>\r\n")
        reply = c.reply(b"STARTTLS")
        if reply.code != 220:
            return  # refused together with the text after it
        try:
            left = c.start_tls()
        except ConnectionEnded:
            return  # treated as a part of the handshake, which fails because of it
        expect(not left, f"a reply in clear text followed the reply to STARTTLS: {left[:80]!r}")
        reply = c.command(f"RCPT TO:<{t.to[0]}>")
        expect(reply.code == 503,
               f"RCPT gets {reply}: an injected command was executed, or this is its reply")


@check("tls.argument", "RFC 3207 4", MUST, "STARTTLS with an argument gets 501")
def argument(t):
    t.needs("STARTTLS")
    with t.open() as c:
        reply = c.command("STARTTLS now")
        expect(reply.code == 501, f"STARTTLS now gets {reply}")
        t.alive(c)


@check("tls.no_handshake", "RFC 3207 4.1", MUST, "a client that does not speak TLS loses its connection, and the server continues")
def no_handshake(t):
    t.needs("STARTTLS")
    with t.open() as c:
        expect(c.command("STARTTLS").code == 220, "STARTTLS is refused")
        c.send(b"LHLO conform.example\r\n" * 10)
        expect(c.ends_without(b"250"), "clear text is answered, or the connection stays")
    with t.open() as c:
        t.alive(c)


@check("tls.in_transaction", "RFC 3207 4.2", SHOULD, "STARTTLS within a transaction is refused, or discards the transaction")
def in_transaction(t):
    t.needs("STARTTLS")
    with t.open() as c:
        t.mail(c)
        reply = c.command("STARTTLS")
        if reply.code != 220:
            return
        c.start_tls()
        reply = c.command(f"RCPT TO:<{t.to[0]}>")
        expect(reply.code == 503, f"RCPT gets {reply}")


@check("tls.not_offered", "RFC 5321 4.2.4", MUST, "STARTTLS is refused if it is not offered")
def not_offered(t):
    t.must_not_offer("STARTTLS")
    with t.open() as c:
        reply = c.command("STARTTLS")
        expect(reply.permanent, f"STARTTLS gets {reply}")
        t.alive(c)
