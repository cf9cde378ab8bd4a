"""LMTP sessions of tests with lmtpd: the greeting, LHLO, and whole transactions. The bytes are those of
conform/wire.py.
"""
import pathlib, sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "conform"))
from twinloft import expect  # noqa: E402
from wire import Address, Connection  # noqa: E402


def opened(address, client="c", seconds=120):
    """A connection after LHLO. address: the path of a Unix socket, or an Address. Its greeting is in
    `greeting`.
    """
    c = Connection(address if isinstance(address, Address) else Address(f"unix:{address}"), seconds, [])
    c.greeting = c.reply()
    reply = c.command(f"LHLO {client}")
    expect(reply.code == 250, f"LHLO: {reply}")
    return c


def stuffed(text):
    """The bytes to send after DATA for a message with CRLF at each line's end (RFC 5321, 4.5.2)."""
    return (b"\r\n" + text).replace(b"\r\n.", b"\r\n..")[2:] + b".\r\n"


def transaction(c, recipients, text, sender="a@d", parameters=""):
    """Sends a message. Returns a pair for each recipient: "RCPT" and the reply if it is a refusal, otherwise
    "DATA" and the reply to the message.

    text: the message as bytes, with CRLF at each line's end. parameters: of MAIL, such as "BODY=8BITMIME".
    """
    reply = c.command(f"MAIL FROM:<{sender}>" + (f" {parameters}" if parameters else ""))
    expect(reply.code == 250, f"MAIL FROM:<{sender}>: {reply}")
    asked = [c.command(f"RCPT TO:<{r}>") for r in recipients]
    if any(r.positive for r in asked):
        reply = c.command("DATA")
        expect(reply.code == 354, f"DATA: {reply}")
        c.send(stuffed(text))
    return [("DATA", c.reply()) if r.positive else ("RCPT", r) for r in asked]


def replies(c, recipients, text, **how):
    """The last reply to each recipient, of a transaction as above."""
    return [reply for _, reply in transaction(c, recipients, text, **how)]
