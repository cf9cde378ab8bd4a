"""lmtpd on a spool, mailbench as its load, and the verification of acknowledged mail."""
import os, pathlib, tomllib

import twinloft as tl
from twinloft import BIN, ROOT, Failed, expect, run, wait_for


def make_users():
    run("bash", "-c", f'. "{ROOT}/tests/e2e/lib/dovecot.sh" && dovecot_users')


def make_spool(stage, v, device, spool, *mkfs):
    run("mkfs.ext4", "-q", *mkfs, device)
    stage.mount(device, spool)
    (spool / ".twinloft-spool").write_text(v.uuid + "\n")
    os.chown(spool, *tl.uid_of("vmail"))
    run("sync", "-f", spool)  # without it, a crash may leave a spool without its marker


def serve(stage, name, config, at=None, ns=None, checked=True):
    """Checks this configuration of lmtpd, starts lmtpd with it, and waits until it listens. Returns its
    Process.

    at: the path of its socket, or its address as in the configuration. lmtpd is then asked at each of its addresses.
    None: its log says where it listens (log_level "info"). checked: check-config must find no problem.
    """
    said = run(BIN / "lmtpd", "check-config", "--config", config, check=False)
    expect(said.returncode == 0 or not checked, f"check-config of {name}: {said.stdout}")
    p = stage.start(name, [BIN / "lmtpd", "serve", "--config", config], ns)
    wait_listening(p, at, config)
    return p


def wait_listening(lmtpd, at=None, config=None):
    """lmtpd: its Process. at: as for serve(). config: None if it has one address, or only this one is used."""
    addresses = [listen["address"] for listen in tomllib.loads(pathlib.Path(config).read_text())["listen"]] if config else []
    listens = lambda: all(map(tl.accepts, [at, *addresses])) if at else lmtpd.own_log().count("listening on") >= max(1, len(addresses))
    wait_for(lambda: listens() or lmtpd.check_alive(), f"{lmtpd.name} to listen")


def start_lmtpd(stage, volume, spool, name, ns=None, more="", log_level="warning", checked=True):
    """Starts lmtpd on a Unix socket that every user may use. Returns process and socket. volume: as for write_config()."""
    config, path = write_config(stage, volume, spool, name, more, log_level)
    return serve(stage, name, config, path, ns, checked), path


def write_config(stage, volume, spool, name, more="", log_level="warning"):
    """The configuration of an lmtpd on a Unix socket. Returns file and socket.

    volume: its UUID. None: the spool is a plain directory.
    """
    path, config = stage.dir / f"{name}.sock", stage.dir / f"{name}.toml"
    marker = f'volume = "{volume}"' if volume else "require_marker = false"
    config.write_text(f"""hostname = "stack.example.org"
user = "vmail"
log_level = "{log_level}"
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
    return config, path


def serving_pid(lmtpd):
    """The pid of the server process: the supervisor lmtpd itself only holds the sockets. lmtpd: its Process.
    Waits until there is one server process.
    """
    def found():
        servers = tl.children_named(lmtpd.pid, "lmtpd-server")
        return servers[0] if len(servers) == 1 else lmtpd.check_alive()
    return wait_for(found, "lmtpd's server process")


class Load:
    """mailbench, and its account as it grows."""

    def __init__(self, stage, path, name, first_user, *more, clients=8):
        self.account, self._seen, self._rest, self._acknowledged = stage.dir / f"{name}.account", 0, b"", 0
        self.process = stage.start(name, [
            BIN / "mailbench", "load", "--to", path, "--clients", str(clients), "--users", "50", "--first-user", str(first_user),
            "--account", self.account, "--drain", "5s", "--timeout", "20s", "--quiet", *more])

    def acknowledged(self):
        """The number of recipients that got 250 so far."""
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
        """Waits until mailbench ends by itself."""
        wait_for(lambda: not self.process.alive(), f"{self.process.name} to end", 600)

    def end(self):
        """Stops mailbench cleanly, so that the account is complete."""
        code = self.process.stop()
        expect(code in (0, 1), f"{self.process.name} ended with {code}: {self.process.log.read_text()[-2000:]}")


def verify(accounts, spool):
    """Every acknowledged message of the accounts is in the spool, complete, and once. Returns mailbench's
    output.
    """
    which = [word for account in accounts for word in ("--account", account)]
    r = run(BIN / "mailbench", "verify", *which, "--spool", spool, "--maildir-format", "%d/%n/Maildir", check=False)
    if r.returncode != 0:
        raise Failed(f"acknowledged mail is lost or damaged: {r.stdout}")
    return r.stdout
