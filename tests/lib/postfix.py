"""A private Postfix with conf/postfix/main.cf as shipped, for the steps of mta.py."""
import json, shutil, subprocess

import mta
import twinloft as tl

NEEDS = ("postfix", "sqlite3")
# The services of every instance here.
SERVICES = """pickup    unix n - n 60 1 pickup
cleanup   unix n - n - 0 cleanup
qmgr      unix n - n 300 1 qmgr
rewrite   unix - - n - - trivial-rewrite
bounce    unix - - n - 0 bounce
defer     unix - - n - 0 bounce
trace     unix - - n - 0 bounce
proxymap  unix - - n - - proxymap
showq     unix n - n - - showq
error     unix - - n - - error
retry     unix - - n - - error
anvil     unix - - n - 1 anvil
postlog   unix-dgram n - n - 1 postlogd
"""
MASTER = f"""
{{smtp}}    inet n - {{smtpd_chroot}} - - smtpd
{{trusted}} inet n - n - - smtpd -o smtpd_recipient_restrictions=reject_unauth_destination
verify    unix - - n - 1 verify
smtp      unix - - n - - smtp
lmtp      unix - - {{chroot}} - - lmtp
scache    unix - - n - 1 scache
{SERVICES}"""


class Postfix:
    """A private instance: configuration, queue and data are in `directory`, SMTP is on two loopback ports."""

    def __init__(self, stage, directory, chroot="y", example="main.cf", changes=None, smtpd_chroot="n"):
        """example: the file in conf/postfix. changes: texts that are replaced in it."""
        self.stage, self.dir = stage, directory
        self.etc, self.queue, self.data = directory / "etc", directory / "queue", directory / "data"
        for d in (self.etc, self.queue, self.data):
            d.mkdir(parents=True)
        shutil.chown(self.data, "postfix")
        self.port, self.trusted_port = tl.free_port(), tl.free_port()
        self.log = directory / "mail.log"
        stage.tell(self.log)
        # One second in place of minutes, as for the two settings of the queue below.
        sooner = {"address_verify_negative_refresh_time = 5m\n": "address_verify_negative_refresh_time = 1s\n"}
        main = mta.substituted((tl.ROOT / "conf/postfix" / example).read_text(), sooner if changes is None else changes, example)
        main += f"""
compatibility_level = 3.6
queue_directory = {self.queue}
data_directory = {self.data}
maillog_file = {self.log}
maillog_file_prefixes = {directory}
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mx.example.net
mydestination =
mynetworks =
alias_maps =
local_recipient_maps =
smtp_dns_support_level = disabled
address_verify_map = btree:$data_directory/verify_cache
recipient_delimiter = +
minimal_backoff_time = 1s
queue_run_delay = 1s
"""
        (self.etc / "main.cf").write_text(main)
        (self.etc / "master.cf").write_text(MASTER.format(smtp=f"127.0.0.1:{self.port}", chroot=chroot, smtpd_chroot=smtpd_chroot,
                                                          trusted=f"127.0.0.1:{self.trusted_port}"))
        self.command("check")

    def command(self, *words):
        return tl.run("postfix", "-c", self.etc, *words)

    def start(self):
        self.command("start")
        self.stage.on_close(self.stop)

    def stop(self):
        # Postfix's stop uses the PID in its own queue directory, and waits for the end.
        if tl.run("postfix", "-c", self.etc, "status", check=False).returncode == 0:
            self.command("stop")

    def flush(self):
        tl.run("postqueue", "-c", self.etc, "-f")

    def queued(self):
        """The queued messages from postqueue -j: one object for each message."""
        out = subprocess.run(["postqueue", "-c", self.etc, "-j"], capture_output=True, text=True, check=True).stdout
        return [json.loads(line) for line in out.splitlines()]

    def waiting(self):
        return [r["address"] for message in self.queued() for r in message["recipients"]]

    def reason(self):
        return "\n".join(r.get("delay_reason", "") for message in self.queued() for r in message["recipients"])

    def submit(self, recipients, subject):
        return mta.send(self.trusted_port, recipients, subject)

    def smtp(self, recipients, subject):
        return mta.send(self.port, recipients, subject)

    def lmtpd(self):
        """An lmtpd as main.cf needs it."""
        return mta.Lmtpd(self.stage, f'address = "unix:{self.queue}/private/twinloft"\ngroup = "postfix"\nmode = "0660"')
