"""Greeting, LHLO, and the commands that belong to no transaction."""
import re

from suite import MUST, SHOULD, check, expect, keywords_of

DOMAIN = re.compile(r"(\[[^\]]+\]|[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*)")


@check("greeting.220", "RFC 5321 4.3.1", MUST, "the server speaks first, and says 220")
def greeting_220(t):
    with t.raw() as c:
        reply = c.reply(b"(greeting)")
        expect(reply.code == 220, f"greeted with {reply}")


@check("greeting.domain", "RFC 5321 4.2", MUST, "the greeting begins with the server's domain or address literal")
def greeting_domain(t):
    with t.raw() as c:
        text = c.reply(b"(greeting)").texts[0]
        expect(DOMAIN.fullmatch(text.split(" ")[0]), f"the greeting begins with \"{text.split(' ')[0]}\"")


for _verb in ("HELO", "EHLO"):
    @check(f"lhlo.no_{_verb.lower()}", "RFC 2033 4.1", MUST, f"{_verb} gets no positive completion")
    def no_helo(t, verb=_verb):
        with t.greeted() as c:
            reply = c.command(f"{verb} conform.example")
            expect(not reply.positive, f"{verb} gets {reply}")

    @check(f"lhlo.{_verb.lower()}_500", "RFC 2033 4.1", SHOULD, f"{_verb} gets 500")
    def helo_500(t, verb=_verb):
        with t.greeted() as c:
            reply = c.command(f"{verb} conform.example")
            expect(reply.code == 500, f"{verb} gets {reply}")


@check("lhlo.250", "RFC 2033 4.1", MUST, "LHLO gets 250")
def lhlo_250(t):
    with t.greeted() as c:
        t.lhlo(c)


@check("lhlo.domain", "RFC 5321 4.1.1.1", MUST, "the reply's first line begins with the server's domain")
def lhlo_domain(t):
    with t.greeted() as c:
        text = t.lhlo(c).texts[0]
        expect(DOMAIN.fullmatch(text.split(" ")[0]), f"the first line is \"{text}\"")


@check("lhlo.keyword_syntax", "RFC 5321 4.1.1.1", MUST, "every further line is a keyword and its parameters")
def lhlo_keywords(t):
    with t.greeted() as c:
        for text in t.lhlo(c).texts[1:]:
            expect(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*( [!-~]+)*", text), f"a line is \"{text}\"")


@check("lhlo.pipelining", "RFC 2033 5", MUST, "PIPELINING is offered, without parameters")
def lhlo_pipelining(t):
    expect(t.keywords.get("PIPELINING") == [], f"offered: {' '.join(t.keywords)}")


@check("lhlo.enhanced_status_codes", "RFC 2033 5", MUST, "ENHANCEDSTATUSCODES is offered, without parameters")
def lhlo_enhanced(t):
    expect(t.keywords.get("ENHANCEDSTATUSCODES") == [], f"offered: {' '.join(t.keywords)}")


@check("lhlo.8bitmime", "RFC 2033 5", SHOULD, "8BITMIME is offered, without parameters")
def lhlo_8bitmime(t):
    expect(t.keywords.get("8BITMIME") == [], f"offered: {' '.join(t.keywords)}")


@check("lhlo.size_parameter", "RFC 1870 3", MUST, "SIZE announces one decimal number, or none")
def lhlo_size(t):
    t.needs("SIZE")
    words = t.keywords["SIZE"]
    expect(not words or (len(words) == 1 and words[0].isdigit() and len(words[0]) <= 20), f"SIZE {' '.join(words)}")


for _name, _argument in (("ipv4", "[192.0.2.1]"), ("ipv6", "[IPv6:2001:db8::1]")):
    @check(f"lhlo.literal_{_name}", "RFC 5321 4.1.3", MUST, f"LHLO {_argument}, an address literal, gets 250")
    def lhlo_literal(t, argument=_argument):
        with t.greeted() as c:
            reply = c.command(f"LHLO {argument}")
            expect(reply.code == 250, f"LHLO {argument} gets {reply}")


@check("lhlo.no_argument", "RFC 5321 4.1.1.1", MUST, "LHLO without a name is refused")
def lhlo_no_argument(t):
    with t.greeted() as c:
        reply = c.command("LHLO")
        expect(reply.permanent, f"LHLO gets {reply}")


@check("lhlo.case", "RFC 5321 2.4", MUST, "a verb is the same in capitals and small letters")
def lhlo_case(t):
    with t.greeted() as c:
        reply = c.command("lHlO conform.example")
        expect(reply.code == 250, f"lHlO gets {reply}")
        for line in (f"mail from:<{t.sender}>", f"rCPt tO:<{t.to[0]}>", "rset", "Noop", "qUIt"):
            reply = c.command(line)
            expect(reply.positive, f"{line} gets {reply}")


@check("lhlo.again", "RFC 5321 4.1.4", MUST, "LHLO may be repeated, and discards an open transaction")
def lhlo_again(t):
    with t.open() as c:
        t.envelope(c)
        first = t.lhlo(c)
        reply = c.command(f"RCPT TO:<{t.to[0]}>")
        expect(reply.code == 503, f"RCPT for the earlier transaction gets {reply}")
        t.envelope(c)
        expect(keywords_of(first) == t.keywords, "the second LHLO offers other keywords")


@check("lhlo.refused_changes_nothing", "RFC 5321 4.1.4", MUST, "a refused LHLO changes nothing")
def lhlo_refused(t):
    with t.open() as c:
        t.mail(c)
        reply = c.command("LHLO")
        expect(reply.permanent, f"LHLO without a name gets {reply}")
        t.rcpt(c)


@check("order.mail_before_lhlo", "RFC 5321 4.1.4", SHOULD, "MAIL before LHLO gets 503")
def mail_before_lhlo(t):
    with t.greeted() as c:
        reply = c.command(f"MAIL FROM:<{t.sender}>")
        expect(reply.code == 503, f"MAIL gets {reply}")


for _line in ("NOOP", "RSET", "HELP", "VRFY postmaster"):
    @check(f"order.{_line.split()[0].lower()}_before_lhlo", "RFC 5321 4.1.4", SHOULD, f"{_line.split()[0]} works before LHLO")
    def before_lhlo(t, line=_line):
        with t.greeted() as c:
            reply = c.command(line)
            expect(reply.code != 503, f"{line} gets {reply}")


@check("command.unknown", "RFC 5321 4.2.4", MUST, "an unknown command gets 500, and the session continues")
def command_unknown(t):
    with t.open() as c:
        for line in ("XYZZY", "FOO bar", "NOOPX", "MAI FROM:<a@b.example>", "RCPTX TO:<a@b.example>"):
            reply = c.command(line)
            expect(reply.code == 500, f"{line} gets {reply}")
        t.alive(c)


@check("command.unknown_code", "RFC 3463 3.6", SHOULD, "an unknown command's enhanced code is 5.5.1 or 5.5.2")
def command_unknown_code(t):
    with t.open() as c:
        reply = c.command("XYZZY")
        expect(reply.enhanced in ("5.5.1", "5.5.2"), f"XYZZY gets {reply}")


@check("command.empty", "RFC 5321 4.1.1", MUST, "an empty line gets one reply, a refusal")
def command_empty(t):
    with t.open() as c:
        reply = c.command("")
        expect(reply.permanent, f"an empty line gets {reply}")
        t.bounds(c)


@check("command.512_bytes", "RFC 5321 4.5.3.1.4", MUST, "a command line of 512 bytes is accepted")
def command_512(t):
    with t.open() as c:
        reply = c.command("NOOP " + "x" * 505)
        expect(reply.code == 250, f"a line of 512 bytes gets {reply}")


@check("command.too_long", "RFC 5321 4.5.3.1.9", SHOULD, "a line of 64 KiB gets a single 500, and the session continues")
def command_too_long(t):
    with t.open() as c:
        reply = c.command("NOOP " + "x" * 65536)
        expect(reply.code == 500, f"a line of 64 KiB gets {reply}")
        t.bounds(c)


@check("command.one_byte_at_a_time", "RFC 5321 4.1.1", MUST, "commands may come one byte at a time")
def command_trickled(t):
    with t.greeted() as c:
        for line in ("LHLO conform.example", f"MAIL FROM:<{t.sender}>", f"RCPT TO:<{t.to[0]}>", "RSET"):
            reply = c.command(line, pieces_of=1)
            expect(reply.positive, f"{line} gets {reply}")


for _name, _end in (("lf", b"\n"), ("cr", b"\r")):
    @check(f"command.bare_{_name}", "RFC 5321 2.3.8", MUST, f"a bare {_name.upper()} does not end a command")
    def command_bare(t, end=_end):
        with t.open() as c:
            c.send(b"NOOP" + end + b"NOOP\r\n")
            c.reply(b"NOOP")
            t.bounds(c)


@check("command.nul", "RFC 5321 4.1.2", MUST, "a NUL in a command gets one reply, a refusal or the command's own")
def command_nul(t):
    with t.open() as c:
        reply = c.command("MAIL FROM:<a\0b@conform.example>")
        expect(reply.permanent, f"an address with a NUL gets {reply}")
        t.bounds(c)


@check("command.8bit", "RFC 5321 2.4", MUST, "a byte above 127 in a verb is refused, and the session continues")
def command_8bit(t):
    with t.open() as c:
        reply = c.command(b"N\xc3\x96OP")
        expect(reply.permanent, f"the line gets {reply}")
        t.alive(c)


for _line in ("LHLO conform.example", "RSET", "NOOP", "QUIT"):
    @check(f"command.trailing_blank_{_line.split()[0].lower()}", "RFC 5321 4.1.1", SHOULD, f"blanks at the end of {_line.split()[0]} are tolerated")
    def trailing_blank(t, line=_line):
        with t.greeted() as c:
            reply = c.command(line + "  ")
            expect(reply.positive, f"\"{line}  \" gets {reply}")


for _verb in ("RSET", "QUIT"):
    @check(f"command.argument_{_verb.lower()}", "RFC 5321 4.1.1", SHOULD, f"{_verb} with an argument gets 501")
    def argument(t, verb=_verb):
        with t.open() as c:
            reply = c.command(f"{verb} now")
            expect(reply.code == 501, f"{verb} now gets {reply}")


@check("noop.argument", "RFC 5321 4.1.1.9", SHOULD, "NOOP ignores an argument")
def noop_argument(t):
    with t.open() as c:
        reply = c.command("NOOP nothing")
        expect(reply.code == 250, f"NOOP gets {reply}")


for _line in ("NOOP", "HELP", "VRFY postmaster"):
    @check(f"{_line.split()[0].lower()}.in_transaction", "RFC 5321 4.1.1", MUST, f"{_line.split()[0]} does not disturb an open transaction")
    def in_transaction(t, line=_line):
        with t.open() as c:
            t.mail(c)
            c.command(line)
            t.rcpt(c)
            c.command(line)
            t.send(c, 1)
            t.bounds(c)


@check("help.code", "RFC 5321 4.1.1.8", SHOULD, "HELP gets 211 or 214")
def help_code(t):
    with t.open() as c:
        reply = c.command("HELP")
        expect(reply.code in (211, 214), f"HELP gets {reply}")


@check("vrfy.known", "RFC 5321 4.5.1", MUST, "VRFY is known: 250, 251 or 252, or a refusal by policy")
def vrfy_known(t):
    with t.open() as c:
        reply = c.command("VRFY postmaster")
        expect(reply.code in (250, 251, 252, 502, 550, 553), f"VRFY gets {reply}")


@check("vrfy.honest", "RFC 5321 3.5.3", MUST, "VRFY does not reply 250 about a recipient that does not exist")
def vrfy_honest(t):
    with t.open() as c:
        reply = c.command(f'VRFY "{t.unknown}"')
        expect(reply.code not in (250, 251), f"VRFY of the unknown recipient gets {reply}")


@check("vrfy.no_argument", "RFC 5321 4.1.1.6", SHOULD, "VRFY without an argument is refused")
def vrfy_no_argument(t):
    with t.open() as c:
        reply = c.command("VRFY")
        expect(reply.permanent, f"VRFY gets {reply}")


@check("expn.code", "RFC 5321 3.5.2", SHOULD, "EXPN expands, or says that it does not: 250, 252, 500, 502 or 550")
def expn_code(t):
    with t.open() as c:
        reply = c.command("EXPN staff")
        expect(reply.code in (250, 252, 500, 502, 550), f"EXPN gets {reply}")


@check("quit.221", "RFC 5321 4.1.1.10", MUST, "QUIT gets 221, then the server closes")
def quit_221(t):
    with t.open() as c:
        t.bounds(c)


@check("quit.in_transaction", "RFC 5321 4.1.1.10", MUST, "QUIT within a transaction gets 221 too, and the server closes")
def quit_in_transaction(t):
    with t.open() as c:
        t.envelope(c)
        t.bounds(c)


@check("quit.nothing_after", "RFC 5321 4.1.1.10", MUST, "commands sent after QUIT are not executed")
def quit_nothing_after(t):
    with t.open() as c:
        c.send(b"QUIT\r\nNOOP\r\n")
        reply = c.reply(b"QUIT")
        expect(reply.code == 221, f"QUIT gets {reply}")
        expect(c.ended(), "there is more input after the reply to QUIT")


@check("session.stays", "RFC 5321 3.8", MUST, "three refused commands do not end the connection")
def session_stays(t):
    with t.open() as c:
        for line in ("XYZZY", "RCPT TO:<a@conform.example>", "MAIL"):
            c.command(line)
        t.alive(c)


@check("session.two_messages", "RFC 5321 3.3", MUST, "one connection may carry one transaction after the other")
def session_two(t):
    with t.open() as c:
        for _ in range(3):
            t.envelope(c)
            t.send(c, 1)
        t.bounds(c)


@check("session.two_connections", "RFC 5321 4.1.4", MUST, "connections do not see each other's transactions")
def session_two_connections(t):
    with t.open() as a, t.open() as b:
        t.envelope(a)
        reply = b.command(f"RCPT TO:<{t.to[0]}>")
        expect(reply.code == 503, f"RCPT without MAIL gets {reply}, while another connection has a transaction")
        t.mail(b)
        a.command("RSET")
        t.rcpt(b)


@check("rset.250", "RFC 5321 4.1.1.5", MUST, "RSET gets 250, also without a transaction")
def rset_250(t):
    with t.open() as c:
        reply = c.command("RSET")
        expect(reply.code == 250, f"RSET gets {reply}")


@check("rset.forgets", "RFC 5321 4.1.1.5", MUST, "RSET discards sender and recipients, but not LHLO")
def rset_forgets(t):
    with t.open() as c:
        t.envelope(c)
        reply = c.command("RSET")
        expect(reply.code == 250, f"RSET gets {reply}")
        for line in (f"RCPT TO:<{t.to[0]}>", "DATA"):
            reply = c.command(line)
            expect(reply.code == 503, f"{line} gets {reply} after RSET")
        t.envelope(c)
