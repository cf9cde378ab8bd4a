"""RCPT: forward-paths, and which recipients are accepted."""
from suite import MUST, SHOULD, check, expect


def refused(t, line, *codes):
    """A refused recipient leaves the transaction as it was."""
    with t.open() as c:
        t.mail(c)
        reply = c.command(line)
        expect(reply.code in codes, f"{line!r} gets {reply}")
        t.rcpt(c)
        t.send(c, 1)
        t.bounds(c)


def accepted(t, path, parameters=""):
    with t.open() as c:
        t.mail(c)
        reply = c.command(f"RCPT TO:{path}{parameters}")
        expect(reply.code in (250, 251), f"RCPT TO:{path}{parameters} gets {reply}")
        t.send(c, 1)
        t.bounds(c)


@check("rcpt.250", "RFC 5321 4.1.1.3", MUST, "a recipient that exists gets 250")
def rcpt_250(t):
    accepted(t, f"<{t.to[0]}>")


@check("rcpt.enhanced", "RFC 3463 3.2", SHOULD, "its enhanced code is 2.1.5")
def rcpt_enhanced(t):
    with t.open() as c:
        t.mail(c)
        reply = c.command(f"RCPT TO:<{t.to[0]}>")
        expect(reply.enhanced == "2.1.5", f"RCPT gets {reply}")


@check("rcpt.before_mail", "RFC 5321 4.1.1.3", MUST, "RCPT before MAIL gets 503")
def rcpt_before_mail(t):
    with t.open() as c:
        reply = c.command(f"RCPT TO:<{t.to[0]}>")
        expect(reply.code == 503, f"RCPT gets {reply}")


@check("rcpt.unknown", "RFC 5321 3.3", MUST, "a recipient that does not exist gets 550, and the transaction continues")
def rcpt_unknown(t):
    refused(t, f"RCPT TO:<{t.unknown}>", 550)


@check("rcpt.unknown_enhanced", "RFC 3463 3.2", SHOULD, "its enhanced code is 5.1.1")
def rcpt_unknown_enhanced(t):
    with t.open() as c:
        t.mail(c)
        reply = c.command(f"RCPT TO:<{t.unknown}>")
        expect(reply.enhanced == "5.1.1", f"RCPT of the unknown recipient gets {reply}")


@check("rcpt.null", "RFC 5321 4.1.1.3", MUST, "the null path is not a recipient")
def rcpt_null(t):
    refused(t, "RCPT TO:<>", 501, 550, 553)


for _name, _line in (
        ("no_colon", "RCPT TO <{to}>"),
        ("no_keyword", "RCPT <{to}>"),
        ("no_argument", "RCPT"),
        ("no_path", "RCPT TO:"),
        ("no_end", "RCPT TO:<{to}"),
        ("tail", "RCPT TO:<{to}>b"),
        ("open_quote", 'RCPT TO:<"{to}>'),
        ("no_local_part", "RCPT TO:<@conform.example>"),
        ("two", "RCPT TO:<{to}>,<{to}>"),
        ("control", "RCPT TO:<\x07{to}>")):
    @check(f"rcpt.syntax_{_name}", "RFC 5321 4.1.2", SHOULD, f"{_line.format(to='...')!r} is refused, and the transaction continues")
    def rcpt_syntax(t, line=_line):
        refused(t, line.format(to=t.to[0]), 500, 501, 503, 550, 553, 555)


@check("rcpt.unknown_parameter", "RFC 5321 4.1.1.11", MUST, "an unknown parameter gets 555")
def rcpt_unknown_parameter(t):
    refused(t, f"RCPT TO:<{t.to[0]}> XYZZY=1", 555)


@check("rcpt.source_route", "RFC 5321 C", MUST, "a source route is accepted, and ignored")
def rcpt_source_route(t):
    accepted(t, f"<@one.example,@two.example:{t.to[0]}>")


@check("rcpt.quoted", "RFC 5321 4.1.2", MUST, "a local part in quotes is the same mailbox as without")
def rcpt_quoted(t):
    local, at, domain = t.to[0].rpartition("@")
    accepted(t, f'<"{local}"{at}{domain}>')


@check("rcpt.quoted_pair", "RFC 5321 4.1.2", MUST, "a quoted pair is the same mailbox as the byte itself")
def rcpt_quoted_pair(t):
    local, at, domain = t.to[0].rpartition("@")
    accepted(t, f'<"\\{local[0]}{local[1:]}"{at}{domain}>')


@check("rcpt.domain_case", "RFC 5321 2.4", MUST, "domains are the same in capitals and small letters")
def rcpt_domain_case(t):
    local, at, domain = t.to[0].rpartition("@")
    accepted(t, f"<{local}{at}{domain.upper()}>")


@check("rcpt.trailing_blank", "RFC 5321 4.1.1", SHOULD, "blanks at the end are tolerated")
def rcpt_trailing_blank(t):
    accepted(t, f"<{t.to[0]}>", "  ")


@check("rcpt.100", "RFC 5321 4.5.3.1.8", MUST, "100 recipients are accepted, and each gets its reply")
def rcpt_100(t):
    with t.open() as c:
        t.mail(c)
        t.rcpt(c, *[t.to[i % len(t.to)] for i in range(100)])
        t.send(c, 100)
        t.bounds(c)


@check("rcpt.refused_only", "RFC 2033 4.2", MUST, "all recipients were refused: DATA gets 503")
def rcpt_refused_only(t):
    with t.open() as c:
        t.mail(c)
        c.command(f"RCPT TO:<{t.unknown}>")
        c.command("RCPT TO:<@conform.example>")
        reply = c.command("DATA")
        expect(reply.code == 503, f"DATA gets {reply}")
        t.bounds(c)


@check("rcpt.after_refusal", "RFC 5321 3.3", MUST, "a recipient may follow a refused recipient, and a refused DATA")
def rcpt_after_refusal(t):
    with t.open() as c:
        t.mail(c)
        c.command(f"RCPT TO:<{t.unknown}>")
        c.command("DATA")
        t.rcpt(c)
        t.send(c, 1)
        t.bounds(c)
