"""Two machines as two network namespaces, a replicated volume between them, and what runs on it.

Used by bench/demo and tests/e2e. Everything that is made is registered and taken away again by close(), also on
errors and signals. Processes are ended by PID; nothing is searched by name.
"""
import atexit, ctypes, json, os, pathlib, signal, socket, subprocess, sys, time, uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TWINLOFT_BIN", ROOT / "build/release/bin"))
_libc = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    pass


def run(*command, check=True, **kw):
    result = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)
    if check and result.returncode != 0:
        raise Failed(f"{' '.join(str(c) for c in command)}: exit {result.returncode}\n{result.stdout}")
    return result


def wait_for(condition, what, seconds=60):
    """The limit is there to end a broken run, not to judge a slow one."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"gave up after {seconds} s waiting for: {what}")
        time.sleep(0.02)


class Process:
    def __init__(self, name, command, log, netns=None, env=None):
        self.name, self.log = name, pathlib.Path(log)
        # nsenter --net and not `ip netns exec`: that one copies the mount table, and what is mounted by one process
        # would be invisible to the others and stay mounted.
        if netns:
            command = ["nsenter", f"--net=/run/netns/{netns}", "--"] + list(command)
        with open(log, "ab") as out:
            self.process = subprocess.Popen([str(c) for c in command], stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                            start_new_session=True, env=env)

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def check_alive(self):
        if not self.alive():
            raise Failed(f"{self.name} ended with {self.process.returncode}:\n{self.log.read_text()[-4000:]}")
        return False

    def kill(self):
        if self.alive():
            self.process.kill()
        self.process.wait()

    def stop(self, seconds=60):
        """SIGTERM; returns the exit code. A second one, then SIGKILL, where the first does not help."""
        for sig, limit in ((signal.SIGTERM, seconds), (signal.SIGTERM, 20), (signal.SIGKILL, 20)):
            if not self.alive():
                break
            self.process.send_signal(sig)
            try:
                self.process.wait(limit)
            except subprocess.TimeoutExpired:
                pass
        return self.process.returncode


class Stage:
    """Holds what has to be undone, newest first."""

    def __init__(self, directory):
        self.dir = pathlib.Path(directory)
        self.dir.mkdir(parents=True, exist_ok=True)
        self._undo = []
        self.processes = []
        atexit.register(self.close)
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, lambda number, frame: sys.exit(128 + number))

    def on_close(self, function, *args):
        self._undo.append((function, args))

    def close(self):
        while self._undo:
            function, args = self._undo.pop()
            try:
                function(*args)
            except Exception as e:  # the rest has to go all the same
                print(f"cleaning up: {e}", file=sys.stderr)

    def start(self, name, command, netns=None, env=None):
        p = Process(name, command, self.dir / f"{name}.log", netns, env)
        self.processes.append(p)
        self.on_close(p.stop)
        return p

    def mount(self, device, directory, *options):
        pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
        run("mount", *options, device, directory)
        self.on_close(self.unmount, directory)

    def unmount(self, directory):
        if not os.path.ismount(directory):
            return
        if run("umount", directory, check=False).returncode != 0:
            run("umount", "-l", directory, check=False)

    def namespaces(self, a, b, net="10.91.7"):
        for ns in (a, b):
            run("ip", "netns", "add", ns)
            self.on_close(run, "ip", "netns", "del", ns)
            run("ip", "-n", ns, "link", "set", "lo", "up")
        run("ip", "link", "add", "tl0", "netns", a, "type", "veth", "peer", "name", "tl0", "netns", b)
        for i, ns in enumerate((a, b), 1):
            run("ip", "-n", ns, "addr", "add", f"{net}.{i}/24", "dev", "tl0")
            run("ip", "-n", ns, "link", "set", "tl0", "up")
        return f"{net}.1", f"{net}.2"


class Volume:
    """A volume on two nodes, "a" (primary) and "b" (secondary)."""

    def __init__(self, stage, size="2GiB", journal_size="256MiB", protocol="C", fuse=True, nbd=False, extra="",
                 name="mail", netns=True, arena="256MiB"):
        self.stage, self.name = stage, name
        self.uuid = str(uuid.uuid4())
        self.size = size
        if netns:
            tag = f"tl{os.getpid() % 100000}"
            self.ns = {"a": tag + "a", "b": tag + "b"}
            a, b = stage.namespaces(self.ns["a"], self.ns["b"])
        else:
            self.ns = {"a": None, "b": None}
            a = b = "127.0.0.1"
        self.address = {"a": f"{a}:7710", "b": f"{b}:7711"}
        secret = stage.dir / "secret"
        secret.write_text("a secret that both machines share\n")
        secret.chmod(0o600)
        self.config, self.nodes = {}, {"a": None, "b": None}
        self.device_link = stage.dir / "device"
        self.nbd_socket = stage.dir / "nbd.sock"
        for node, role, own, peer in (("a", "primary", 1, 2), ("b", "secondary", 2, 1)):
            directory = stage.dir / node
            directory.mkdir(exist_ok=True)
            text = f"""[volume.{name}]
uuid = "{self.uuid}"
replica = {own}
role = "{role}"
size = {json.dumps(size)}
data = "{directory}/data"
journal = "{directory}/journal"
journal_size = "{journal_size}"
arena = "{arena}"
listen = "{self.address[node]}"
secret_file = "{secret}"
control = "{directory}/control.sock"
{extra}
[[volume.{name}.peer]]
id = {peer}
address = "{self.address['b' if node == 'a' else 'a']}"
protocol = "{protocol}"
"""
            # The secondary has them too: it may be promoted.
            suffix = "" if node == "a" else "-b"
            if fuse:
                text += f'[volume.{name}.fuse]\nfile = "{directory}/volume"\ndevice = "{self.device_link}{suffix}"\n'
            if nbd:
                text += f'[volume.{name}.nbd]\nlisten = "unix:{self.nbd_socket}{suffix}"\n'
            self.config[node] = directory / "spool-repl.toml"
            self.config[node].write_text(text)

    def create(self, *nodes):
        for node in nodes or ("a", "b"):
            run(BIN / "spool-repl", "create", self.name, "--config", self.config[node])

    def serve(self, node):
        n = sum(1 for p in self.stage.processes if p.name.startswith(f"spool-repl-{node}"))
        p = self.stage.start(f"spool-repl-{node}{n}", [BIN / "spool-repl", "serve", "--config", self.config[node]],
                             self.ns[node])
        self.nodes[node] = p
        wait_for(lambda: self.status(node) or p.check_alive(), f"spool-repl on {node}")
        return p

    def status(self, node):
        r = run(BIN / "spool-repl", "status", self.name, "--json", "--config", self.config[node], check=False)
        try:
            return json.loads(r.stdout)
        except ValueError:
            return None

    def wait_connected(self):
        return wait_for(lambda: (s := self.status("a")) and s["role"] == "Primary" and not s["suspended"] and s,
                        "the primary to be promoted, and its peer to be connected")

    def device(self):
        wait_for(lambda: self.device_link.is_symlink() or self.nodes["a"].check_alive(), "the block device")
        return os.path.realpath(self.device_link)

    def ctl(self, node, *words, check=True):
        return run(BIN / "spool-repl", words[0], self.name, *words[1:], "--config", self.config[node], check=check)

    def data(self, node):
        return self.stage.dir / node / "data"

    def compare(self):
        """Byte for byte, after both nodes have stopped in good order. Returns the number of bytes compared."""
        status_bytes = os.path.getsize(self.data("a")) - 4096  # the last block is each replica's own label
        run("cmp", "-n", status_bytes, self.data("a"), self.data("b"))
        return status_bytes



def uid_of(name):
    import pwd
    p = pwd.getpwnam(name)
    return p.pw_uid, p.pw_gid


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
