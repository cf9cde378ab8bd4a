"""MAIL: reverse-paths and parameters."""
from suite import MUST, SHOULD, check, expect


def accepted(t, path, parameters=""):
    with t.open() as c:
        reply = c.command(f"MAIL FROM:{path}{parameters}")
        expect(reply.code == 250, f"MAIL FROM:{path}{parameters} gets {reply}")
        t.rcpt(c)


def refused(t, line, *codes):
    with t.open() as c:
        reply = c.command(line)
        expect(reply.code in codes, f"{line!r} gets {reply}")
        t.mail(c)  # a refused MAIL begins no transaction


@check("mail.250", "RFC 5321 4.1.1.2", MUST, "MAIL gets 250")
def mail_250(t):
    accepted(t, f"<{t.sender}>")


@check("mail.enhanced", "RFC 3463 3.2", SHOULD, "its enhanced code is 2.1.0 or 2.0.0")
def mail_enhanced(t):
    with t.open() as c:
        reply = c.command(f"MAIL FROM:<{t.sender}>")
        expect(reply.enhanced in ("2.1.0", "2.0.0"), f"MAIL gets {reply}")


@check("mail.null", "RFC 5321 4.5.5", MUST, "the null reverse-path is accepted")
def mail_null(t):
    accepted(t, "<>")


for _name, _path, _title in (
        ("quoted", '<"a b"@conform.example>', "a quoted local part"),
        ("quoted_pair", '<"a\\"b\\\\c"@conform.example>', "quoted pairs in a local part"),
        ("quoted_at", '<"a@b>c"@conform.example>', "an at sign and a bracket within quotes"),
        ("atext", "<!#$%&'*+-/=?^_`{|}~@conform.example>", "every byte of atext in a local part"),
        ("dots", "<a.b.c@conform.example>", "a dot-string"),
        ("literal_ipv4", "<a@[192.0.2.1]>", "an IPv4 address literal as domain"),
        ("literal_ipv6", "<a@[IPv6:2001:db8::1]>", "an IPv6 address literal as domain")):
    @check(f"mail.{_name}", "RFC 5321 4.1.2", MUST, f"{_title} is accepted")
    def mail_path(t, path=_path):
        accepted(t, path)


@check("mail.source_route", "RFC 5321 C", MUST, "a source route is accepted")
def mail_source_route(t):
    accepted(t, f"<@one.example,@two.example:{t.sender}>")


@check("mail.local_part_64", "RFC 5321 4.5.3.1.1", MUST, "a local part of 64 bytes is accepted")
def mail_local_64(t):
    accepted(t, f"<{'l' * 64}@conform.example>")


@check("mail.domain_255", "RFC 5321 4.5.3.1.2", MUST, "a path of 256 bytes, most of it domain, is accepted")
def mail_domain_255(t):
    label = "d" * 62 + "."
    domain = label * 3 + "d" * 48 + ".example"
    path = f"<{'a' * (256 - len(domain) - 3)}@{domain}>"
    expect(len(path) == 256, "the check is wrong")
    accepted(t, path)


for _name, _line in (
        ("no_colon", "MAIL FROM <a@conform.example>"),
        ("no_keyword", "MAIL <a@conform.example>"),
        ("no_argument", "MAIL"),
        ("no_path", "MAIL FROM:"),
        ("no_end", "MAIL FROM:<a@conform.example"),
        ("two_ats", "MAIL FROM:<a@b@conform.example>"),
        ("open_quote", 'MAIL FROM:<"a@conform.example>'),
        ("no_local_part", "MAIL FROM:<@conform.example>"),
        ("blank", "MAIL FROM:<a b@conform.example>"),
        ("tail", "MAIL FROM:<a@conform.example>b"),
        ("control", "MAIL FROM:<a\x07@conform.example>")):
    @check(f"mail.syntax_{_name}", "RFC 5321 4.1.2", SHOULD, f"{_line!r} is refused, and begins no transaction")
    def mail_syntax(t, line=_line):
        refused(t, line, 500, 501, 503, 550, 553, 555)


@check("mail.syntax_501", "RFC 5321 4.2.2", SHOULD, "a malformed reverse-path gets 501 or 553")
def mail_501(t):
    refused(t, "MAIL FROM:<a b@conform.example>", 501, 553)


@check("mail.nested", "RFC 5321 4.1.4", MUST, "MAIL within a transaction gets 503, and the transaction stays")
def mail_nested(t):
    with t.open() as c:
        t.mail(c)
        reply = c.command("MAIL FROM:<other@conform.example>")
        expect(reply.code == 503, f"the second MAIL gets {reply}")
        t.rcpt(c)
        reply = c.command("MAIL FROM:<other@conform.example>")
        expect(reply.code == 503, f"MAIL after RCPT gets {reply}")
        t.send(c, 1)


@check("mail.unknown_parameter", "RFC 5321 4.1.1.11", MUST, "an unknown parameter gets 555, and begins no transaction")
def mail_unknown_parameter(t):
    refused(t, f"MAIL FROM:<{t.sender}> XYZZY=1", 555)


@check("mail.parameter_case", "RFC 5321 4.1.1.11", MUST, "keywords of parameters are the same in capitals and small letters")
def mail_parameter_case(t):
    t.needs("SIZE")
    accepted(t, f"<{t.sender}>", " size=100")


@check("mail.size", "RFC 1870 4", MUST, "SIZE=100 is accepted")
def mail_size(t):
    t.needs("SIZE")
    accepted(t, f"<{t.sender}>", " SIZE=100")


@check("mail.size_0", "RFC 1870 4", MUST, "SIZE=0 is accepted")
def mail_size_0(t):
    t.needs("SIZE")
    accepted(t, f"<{t.sender}>", " SIZE=0")


@check("mail.size_wrong", "RFC 1870 6.1", SHOULD, "a message that is larger than announced in MAIL is accepted")
def mail_size_wrong(t):
    t.needs("SIZE")
    t.deliver(t.message(t.marker(), b"More than one byte.\r\n" * 100), parameters=" SIZE=1")


@check("mail.size_above", "RFC 1870 6.1", MUST, "more than SIZE allows gets 552 at MAIL")
def mail_size_above(t):
    limit = t.size_limit()
    refused(t, f"MAIL FROM:<{t.sender}> SIZE={limit + 1}", 552)


@check("mail.size_huge", "RFC 1870 4", MUST, "a SIZE of 20 digits gets 552")
def mail_size_huge(t):
    t.size_limit()
    refused(t, f"MAIL FROM:<{t.sender}> SIZE={'9' * 20}", 552)


@check("mail.size_syntax", "RFC 1870 6.1", MUST, "a SIZE that is not a number gets 501")
def mail_size_syntax(t):
    t.needs("SIZE")
    refused(t, f"MAIL FROM:<{t.sender}> SIZE=many", 501)


@check("mail.size_negative", "RFC 1870 6.1", MUST, "a negative SIZE gets 501")
def mail_size_negative(t):
    t.needs("SIZE")
    refused(t, f"MAIL FROM:<{t.sender}> SIZE=-1", 501)


for _value in ("7BIT", "8BITMIME", "8bitmime"):
    @check(f"mail.body_{_value}", "RFC 6152 2", MUST, f"BODY={_value} is accepted")
    def mail_body(t, value=_value):
        t.needs("8BITMIME")
        accepted(t, f"<{t.sender}>", f" BODY={value}")


@check("mail.body_unknown", "RFC 5321 4.1.1.11", MUST, "a BODY of another kind is refused")
def mail_body_unknown(t):
    refused(t, f"MAIL FROM:<{t.sender}> BODY=9BIT", 501, 504, 555)


@check("mail.trailing_blank", "RFC 5321 4.1.1", SHOULD, "blanks at the end are tolerated")
def mail_trailing_blank(t):
    accepted(t, f"<{t.sender}>", "  ")
