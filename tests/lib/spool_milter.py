"""spool-milter, an MTA's side of the milter protocol, and a volume's state file."""
import fcntl, json, os, signal, socket, struct, time

import mail
import mta
import twinloft as tl
from twinloft import BIN, expect

F_OFD_SETLK = 37  # fcntl.h
LOCK = "hhqqi4x"  # struct flock of fcntl.h: l_type, l_whence, l_start, l_len, l_pid
# The MTA offers all steps and actions of version 6, without SMFIP_TEST and what depends on body sizes.
OFFER = struct.pack("!III", 6, 0x1FF, 0x1FFFFF)


def section(address, *lines):
    """[spool_milter], as conf/lmtpd/spool-milter.toml has it, with this address and further lines."""
    example = (tl.ROOT / "conf/lmtpd/spool-milter.toml").read_text()
    changed = mta.substituted(example, {'address = "unix:/var/spool/postfix/private/spool-milter"\n': f'address = "{address}"\n'}, "spool-milter.toml")
    if not address.startswith("unix:"):
        changed = mta.substituted(changed, {'group = "postfix"\nmode = "0660"\n': ""}, "spool-milter.toml")
    return changed + "".join(f"{line}\n" for line in lines)


class SpoolMilter:
    """A running spool-milter with the configuration of an mta.Lmtpd."""

    def __init__(self, stage, lmtpd):
        self.lmtpd = lmtpd
        self.run = [BIN / "spool-milter", "run", "--config", lmtpd.config]
        checked = tl.run(BIN / "spool-milter", "check-config", "--config", lmtpd.config, check=False)
        expect(checked.returncode == 0 and checked.stdout.startswith("ok\n"), f"check-config: {checked.stdout}")
        self.process = stage.start("spool-milter", self.run)
        mail.wait_listening(self.process)

    def log(self):
        return self.process.log.read_text()

    def servers(self):
        return tl.children_named(self.process.pid, "milter-server")

    def reload(self, old, new, refused=False):
        """Replaces a text of the configuration, and waits until spool-milter serves with it, or has refused
        it.
        """
        event = "refused; keeping" if refused else "serving with the configuration"
        before = self.log().count(event)
        self.lmtpd.config.write_text(mta.substituted(self.lmtpd.config.read_text(), {old: new}, "lmtpd.toml"))
        self.process.process.send_signal(signal.SIGHUP)
        tl.wait_for(lambda: self.log().count(event) > before or self.process.check_alive(), "spool-milter to have reloaded")


class Mta:
    """A connection of an MTA to a milter."""

    def __init__(self, address, negotiate=True):
        unix = not isinstance(address, tuple)
        self.socket = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        self.socket.settimeout(120)
        self.socket.connect(str(address) if unix else address)
        self.agreed = negotiate and self.negotiate()

    def negotiate(self):
        self.send(b"O", OFFER)
        return self.receive()

    def send(self, command, data=b""):
        self.socket.sendall(struct.pack("!I", len(data) + 1) + command + data)

    def take(self, size):
        out = b""
        while len(out) < size and (more := self.socket.recv(size - len(out))):
            out += more
        return out

    def receive(self):
        """None: the milter has closed the connection."""
        head = self.take(4)
        return self.take(struct.unpack("!I", head)[0]) if len(head) == 4 else None

    def macros(self, stage, values):
        self.send(b"D", stage + b"".join(f"{name}\0{value}\0".encode() for name, value in values.items()))

    def mail(self, *words, **macros):
        if macros:
            self.macros(b"M", {"{" + name + "}": value for name, value in macros.items()})
        self.send(b"M", b"".join(word.encode() + b"\0" for word in words or ("<s@example.net>",)))

    def rcpt(self, address, **macros):
        """"continue", or the reply's text."""
        if macros:
            self.macros(b"R", {"{" + name + "}": value for name, value in macros.items()})
        self.send(b"R", f"<{address}>".encode() + b"\0")
        reply = self.receive()
        if reply is None:
            raise ConnectionResetError("the milter has closed the connection")
        expect(reply[:1] in b"cy", f"the answer to RCPT: {reply}")
        return "continue" if reply == b"c" else reply[1:].rstrip(b"\0").decode()

    def once(self, address, *words, **macros):
        """In a transaction of its own. The macros are those of MAIL."""
        self.mail(*words, **macros)
        said = self.rcpt(address)
        self.send(b"A")
        return said

    def quit(self):
        self.send(b"Q")
        self.socket.close()


class StateFile:
    """The state file of a volume as spool-repl writes it (docs/formats/spool-state.md), with its lock."""

    def __init__(self, path, uuid):
        self.path, self.uuid, self.number, self.file = path, uuid, 0, None

    def write(self, state):
        self.number += 1
        new = self.path.with_suffix(".new")
        file = open(new, "w")
        fcntl.fcntl(file, F_OFD_SETLK, struct.pack(LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        boot_id = open("/proc/sys/kernel/random/boot_id").read().strip()
        json.dump({"format": 1, "volume": "mail", "uuid": self.uuid, "state": state, "role": "primary", "reason": "", "since": "2026-01-01T00:00:00Z",
                   "since_boottime_ms": int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000), "number": self.number, "pid": os.getpid(),
                   "boot_id": boot_id}, file)
        file.flush()
        new.chmod(0o644)
        new.rename(self.path)
        self.release()
        self.file = file

    def release(self):
        """As if the writer was killed: the text stays, without the lock."""
        if self.file:
            self.file.close()
        self.file = None
