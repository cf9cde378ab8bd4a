"""Only CR LF . CR LF ends a message: text that another server treats as a message's end starts no command
here (CVE-2023-51764 and others).
"""
from suite import MUST, check, expect
from wire import ConnectionEnded

SEQUENCES = (
    ("lf_lf", b"\n.\n"), ("lf_crlf", b"\n.\r\n"), ("crlf_lf", b"\r\n.\n"), ("cr_cr", b"\r.\r"), ("crlf_cr", b"\r\n.\r"),
    ("cr_crlf", b"\r.\r\n"), ("lf_cr", b"\n.\r"), ("cr_lf", b"\r.\n"), ("nul_before_crlf", b"\r\n.\0\r\n"),
    ("nul_before_dot", b"\r\n\0.\r\n"), ("dot_blank", b"\r\n. \r\n"), ("crcrlf", b"\r\n.\r\r\n"), ("cr_dot_crlf", b"\r\r.\r\n"))


def no_end(t, sequence, pieces_of):
    with t.open() as c:
        t.envelope(c)
        t.data(c)
        smuggled = f"MAIL FROM:<smuggled@conform.example>\r\nRCPT TO:<{t.to[0]}>\r\nDATA\r\nSubject: smuggled\r\n\r\nsmuggled\r\n"
        c.send(t.message(t.marker(), b"text" + sequence + smuggled.encode()) + b".\r\n", pieces_of)
        try:
            reply = c.reply(b"(end of data)")
            expect(reply.positive or reply.permanent, f"the message gets {reply}")
            t.bounds(c)
        except ConnectionEnded:
            pass  # refused, with all of the input


for _name, _sequence in SEQUENCES:
    for _pieces, _how in ((0, ""), (1, "_one_byte_at_a_time")):
        @check(f"smuggling.{_name}{_how}", "RFC 5321 4.1.1.4", MUST,
               f"{_sequence!r} ends no message" + (", one byte at a time" if _pieces else ""))
        def smuggling(t, sequence=_sequence, pieces=_pieces):
            no_end(t, sequence, pieces)


@check("smuggling.first_line", "RFC 5321 4.1.1.4", MUST, "a dot and LF as the first line of a message do not end the message")
def smuggling_first(t):
    with t.open() as c:
        t.envelope(c)
        t.data(c)
        c.send(b".\nMAIL FROM:<smuggled@conform.example>\r\n.\r\n")
        try:
            c.reply(b"(end of data)")
            t.bounds(c)
        except ConnectionEnded:
            pass
