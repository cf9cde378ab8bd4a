"""A private Sendmail with conf/sendmail/sendmail.mc as shipped, except for its ports, for the steps of mta.py.

Sendmail's package conflicts with Postfix's, so Sendmail runs in an unpacked root.
"""
import debian_root
import mta
import twinloft as tl

UIDS = {"smmta": 61121, "smmsp": 61122}
SENDMAIL = "/usr/libexec/sendmail/sendmail"


class Sendmail:
    """Listens on `port`. Its queue is in its root."""

    def __init__(self, stage, lmtp_port, more=lambda text: text):
        """more: changes the text of sendmail.mc."""
        self.root = debian_root.Root(stage, "sendmail", ["sendmail-bin", "sendmail-cf", "coreutils", "dash", "sed"])
        for name, uid in UIDS.items():
            self.root.user(name, uid)
        for d in ("etc/mail", "var/lib/sendmail/host_status", "var/run/sendmail/mta", "var/spool/mqueue"):
            self.root.directory(d)
        self.root.directory("var/spool/mqueue", mode=0o700)
        self.port = tl.free_port()
        text = mta.substituted((tl.ROOT / "conf/sendmail/sendmail.mc").read_text(), {
            "Name=MTA, Port=smtp'": f"Name=MTA, Port={self.port}, Addr=127.0.0.1'",
            "TCP $h 2400": f"TCP $h {lmtp_port}",
            # No name server answers here, not even for the sender's domain.
            "MAILER(`local')": "define(`confDOMAIN_NAME', `mx.example.net')dnl\nFEATURE(`accept_unresolvable_domains')dnl\nMAILER(`local')"}, "sendmail.mc")
        self.root.write("etc/mail/sendmail.mc", more(text))
        self.root.write("etc/mail/service.switch", "hosts files\naliases files\n")
        self.root.write("etc/mail/aliases", "")
        self.root.write("etc/mail/local-host-names", "")
        self.root.write("etc/mail/trusted-users", "")
        self.root.write("etc/mail/relay-domains", "")

    def start(self):
        made = self.root.run("sh", "-c", "m4 /etc/mail/sendmail.mc >/etc/mail/sendmail.cf").stdout
        tl.expect(not made, f"m4: {made}")
        tested = self.root.run(SENDMAIL, "-bt", input="3,0 ann+lists@example.org\n").stdout
        mta.check("$# lmtpd $@ [ 127 . 0 . 0 . 1 ] $: ann + lists < @ example . org" in tested,
                  "sendmail -bt routes ann+lists@ to lmtpd")
        process = self.root.start("sendmail", SENDMAIL, "-bD", "-q30m", "-X", "/var/log/traffic")
        tl.wait_for(lambda: tl.accepts(f"127.0.0.1:{self.port}") or process.check_alive(), "Sendmail to listen")

    def submit(self, recipients, subject):
        return mta.send(self.port, recipients, subject)

    smtp = submit

    def flush(self):
        self.root.run(SENDMAIL, "-q")

    def waiting(self):
        """The recipients of all queued messages: R lines in the queue's files, with flags before a colon."""
        lines = []
        for control in (self.root.dir / "var/spool/mqueue").glob("[qh]f*"):
            try:
                lines += control.read_text("latin-1").splitlines()
            except FileNotFoundError:
                pass
        return [line.rsplit(":", 1)[1].strip("<>") for line in lines if line.startswith("R")]

    def reason(self):
        return self.root.run(SENDMAIL, "-bp").stdout
