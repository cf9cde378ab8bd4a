"""lmtpd on a spool, mailbench as its load, and the proof of what was acknowledged."""
import os, pathlib

import twinloft as tl
from twinloft import BIN, ROOT, Failed, expect, run, wait_for


def make_users():
    run("bash", "-c", f'. "{ROOT}/tests/e2e/lib/dovecot.sh" && dovecot_users')


def make_spool(stage, v, device, spool, *mkfs):
    run("mkfs.ext4", "-q", *mkfs, device)
    stage.mount(device, spool)
    (spool / ".twinloft-spool").write_text(v.uuid + "\n")
    os.chown(spool, *tl.uid_of("vmail"))
    run("sync", "-f", spool)  # without it a crash may leave a spool without its marker


def start_lmtpd(stage, volume, spool, name, ns=None, more=""):
    """On a Unix socket that everybody may use. volume: its UUID; None: the spool is a plain directory. Returns process and
    socket."""
    path, config = stage.dir / f"{name}.sock", stage.dir / f"{name}.toml"
    marker = f'volume = "{volume}"' if volume else "require_marker = false"
    config.write_text(f"""hostname = "stack.example.org"
user = "vmail"
log_level = "warning"
[[listen]]
address = "unix:{path}"
mode = "0666"
[users]
driver = "static"
accept_all = true
home = "{spool}/%domain%/%user%"
maildir = "{spool}/%domain%/%user%/Maildir"
[spool]
path = "{spool}"
{marker}
{more}""")
    run(BIN / "lmtpd", "check-config", "--config", config)
    p = stage.start(name, [BIN / "lmtpd", "serve", "--config", config], ns)
    wait_for(lambda: tl.accepts(path) or p.check_alive(), f"{name} to listen")
    return p, path


def serving_pid(lmtpd):
    """Of the process that serves: lmtpd itself holds the sockets only. lmtpd: its Process, of which one is serving."""
    def found():
        servers = tl.children_named(lmtpd.pid, "lmtpd-server")
        return servers[0] if len(servers) == 1 else lmtpd.check_alive()
    return wait_for(found, "lmtpd's serving process")


class Load:
    """mailbench, and its account as it grows."""

    def __init__(self, stage, path, name, first_user, *more, clients=8):
        self.account, self._seen, self._rest, self._acknowledged = stage.dir / f"{name}.account", 0, b"", 0
        self.process = stage.start(name, [
            BIN / "mailbench", "load", "--to", path, "--clients", str(clients), "--users", "50", "--first-user", str(first_user),
            "--account", self.account, "--drain", "5s", "--timeout", "20s", "--quiet", *more])

    def acknowledged(self):
        """How many recipients have been told 250 until now."""
        if self.account.exists():
            with open(self.account, "rb") as f:
                f.seek(self._seen)
                text = f.read()
            self._seen += len(text)
            lines = (self._rest + text).split(b"\n")
            self._rest = lines.pop()
            self._acknowledged += sum(b" acknowledged " in line for line in lines)
        return self._acknowledged

    def wait_for_more(self, count=1):
        wanted = self.acknowledged() + count
        wait_for(lambda: self.acknowledged() >= wanted or self.process.check_alive(), f"{count} more messages to be acknowledged")

    def wait(self):
        """Until it ends by itself."""
        wait_for(lambda: not self.process.alive(), f"{self.process.name} to end", 600)

    def end(self):
        """In good order: the account is complete then."""
        code = self.process.stop()
        expect(code in (0, 1), f"{self.process.name} ended with {code}: {self.process.log.read_text()[-2000:]}")


def verify(accounts, spool):
    """Every message of the accounts that was acknowledged is in the spool, whole, and once. Returns what mailbench says."""
    which = [word for account in accounts for word in ("--account", account)]
    r = run(BIN / "mailbench", "verify", *which, "--spool", spool, "--maildir-format", "%d/%n/Maildir", check=False)
    if r.returncode != 0:
        raise Failed(f"acknowledged mail is lost or damaged: {r.stdout}")
    return r.stdout
