"""SMTPUTF8 (RFC 6531) and delivery status notifications (RFC 3461)."""
from suite import MUST, SHOULD, Skipped, check, expect

UTF8_SENDER = "j\u00f6rg@b\u00fccher.example"


@check("smtputf8.8bitmime", "RFC 6531 3.1", MUST, "a server that offers SMTPUTF8 offers 8BITMIME")
def with_8bitmime(t):
    t.needs("SMTPUTF8")
    expect("8BITMIME" in t.keywords, "8BITMIME is not offered")


@check("smtputf8.no_parameters", "RFC 6531 3.1", MUST, "the keyword has no parameters")
def no_parameters(t):
    t.needs("SMTPUTF8")
    expect(t.keywords["SMTPUTF8"] == [], f"SMTPUTF8 {t.keywords['SMTPUTF8']}")


@check("smtputf8.sender", "RFC 6531 3.3", MUST, "a sender beyond ASCII is accepted with SMTPUTF8")
def sender(t):
    t.needs("SMTPUTF8")
    with t.open() as c:
        t.mail(c, " SMTPUTF8", UTF8_SENDER)


@check("smtputf8.ascii", "RFC 6531 3.4", MUST, "SMTPUTF8 may be given with addresses of ASCII")
def ascii_only(t):
    t.needs("SMTPUTF8")
    with t.open() as c:
        t.mail(c, " SMTPUTF8")
        reply = c.command(f"RCPT TO:<{t.to[0]}>")
        if reply.code == 553:
            raise Skipped(f"the recipient's agent lacks SMTPUTF8: {reply}")
        expect(reply.code in (250, 251), f"RCPT gets {reply}")
        t.data(c)
        c.send(t.message(t.marker(), fields="X-Conform: \u00e4\u00f6\u00fc\r\n".encode()) + b".\r\n")
        t.finish(c, 1)
        t.bounds(c)


@check("smtputf8.sender_without", "RFC 6531 3.5", SHOULD, "a sender beyond ASCII without SMTPUTF8 is refused, or kept byte for byte")
def sender_without(t):
    for sender in (UTF8_SENDER.encode(), b"j\xf6rg@conform.example"):
        with t.open() as c:
            reply = c.command(b"MAIL FROM:<" + sender + b">")
            if reply.permanent:
                t.mail(c)
                continue
            expect(reply.code == 250, f"MAIL gets {reply}")
            t.rcpt(c)
            t.send(c, 1)
            t.bounds(c)


@check("smtputf8.recipient_without", "RFC 6531 3.5", SHOULD, "an unknown recipient beyond ASCII without SMTPUTF8 is refused")
def recipient_without(t):
    with t.open() as c:
        t.mail(c)
        reply = c.command("RCPT TO:<nobody-\u00f6@conform.example>")
        expect(reply.permanent, f"RCPT gets {reply}")
        t.rcpt(c)


@check("smtputf8.recipient", "RFC 6531 3.3", MUST, "a recipient beyond ASCII is accepted with SMTPUTF8")
def recipient(t):
    t.needs("SMTPUTF8")
    if not t.utf8_recipient:
        raise Skipped("needs --utf8-recipient")
    with t.open() as c:
        t.mail(c, " SMTPUTF8", UTF8_SENDER)
        t.rcpt(c, t.utf8_recipient)
        t.send(c, 1)
        t.bounds(c)


@check("smtputf8.value", "RFC 6531 3.4", MUST, "SMTPUTF8 with a value gets 501")
def value(t):
    t.needs("SMTPUTF8")
    with t.open() as c:
        reply = c.command(f"MAIL FROM:<{t.sender}> SMTPUTF8=yes")
        expect(reply.code == 501, f"MAIL gets {reply}")


for _name, _bytes in (("cut", b"j\xc3"), ("overlong", b"\xc0\xaf"), ("surrogate", b"\xed\xa0\x80"), ("lone", b"\x80"), ("beyond", b"\xf5\x80\x80\x80")):
    @check(f"smtputf8.invalid_{_name}", "RFC 6531 3.3", MUST, f"a recipient with {_bytes!r}, which is not UTF-8, is refused")
    def invalid(t, broken=_bytes):
        t.needs("SMTPUTF8")
        with t.open() as c:
            t.mail(c, " SMTPUTF8")
            reply = c.command(b"RCPT TO:<" + broken + b"@conform.example>")
            expect(reply.permanent, f"RCPT gets {reply}")
            t.rcpt(c)


@check("smtputf8.not_offered", "RFC 5321 4.1.1.11", MUST, "SMTPUTF8 is an unknown parameter if it is not offered")
def not_offered(t):
    t.must_not_offer("SMTPUTF8")
    with t.open() as c:
        reply = c.command(f"MAIL FROM:<{t.sender}> SMTPUTF8")
        expect(reply.code == 555, f"MAIL gets {reply}")


# --- DSN ---------------------------------------------------------------------------------------------------------------

for _parameters in ("RET=FULL", "RET=HDRS", "ENVID=conform+2B1", "ret=full ENVID=a"):
    @check(f"dsn.mail_{_parameters.replace(' ', '_')}", "RFC 3461 4", MUST, f"MAIL with {_parameters} is accepted")
    def mail_parameters(t, parameters=_parameters):
        t.needs("DSN")
        with t.open() as c:
            t.mail(c, " " + parameters)


for _parameters in ("NOTIFY=NEVER", "NOTIFY=SUCCESS,FAILURE,DELAY", "notify=failure", "ORCPT=rfc822;ann+2Blists@conform.example"):
    @check(f"dsn.rcpt_{_parameters}", "RFC 3461 4", MUST, f"RCPT with {_parameters} is accepted")
    def rcpt_parameters(t, parameters=_parameters):
        t.needs("DSN")
        with t.open() as c:
            t.mail(c)
            reply = c.command(f"RCPT TO:<{t.to[0]}> {parameters}")
            expect(reply.code in (250, 251), f"RCPT gets {reply}")


for _line in ("MAIL FROM:<{sender}> RET=SOME", "MAIL FROM:<{sender}> RET=FULL RET=HDRS", "MAIL FROM:<{sender}> ENVID=a+ZZ"):
    @check(f"dsn.{_line.partition('> ')[2].replace(' ', '_')}", "RFC 3461 4", MUST, f"MAIL with {_line.partition('> ')[2]} gets 501")
    def mail_bad(t, line=_line):
        t.needs("DSN")
        with t.open() as c:
            reply = c.command(line.format(sender=t.sender))
            expect(reply.code == 501, f"MAIL gets {reply}")


for _parameters in ("NOTIFY=NEVER,SUCCESS", "NOTIFY=SOMETIMES", "NOTIFY=", "ORCPT=rfc822", "ORCPT=rfc822;a+zz@b"):
    @check(f"dsn.{_parameters}", "RFC 3461 4", MUST, f"RCPT with {_parameters} gets 501")
    def rcpt_bad(t, parameters=_parameters):
        t.needs("DSN")
        with t.open() as c:
            t.mail(c)
            reply = c.command(f"RCPT TO:<{t.to[0]}> {parameters}")
            expect(reply.code == 501, f"RCPT gets {reply}")
