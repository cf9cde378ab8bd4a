"""Two machines as two network namespaces, a replicated volume between them, and the programs on it.

Used by bench/demo and tests/e2e. Everything that is made is registered, and removed by close(), also on
errors and signals. Processes are ended by PID, and nothing is searched by name.
"""
import atexit, contextlib, ctypes, fcntl, json, os, pathlib, pty, shutil, signal, socket, subprocess, sys, tempfile, time, traceback, uuid

import leftovers, own_mounts

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TWINLOFT_BIN", ROOT / "build/release/bin"))
_libc = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    pass


_waits = []  # what the test waits for, innermost last: a test that is ended reports it


@contextlib.contextmanager
def waiting(what):
    _waits.append(what)
    try:
        yield
    finally:
        _waits.pop()


def run(*command, check=True, timeout=300, input=None, **kw):
    """Runs a command. A command that hangs, as any command that touches a device may, is a failure with a
    name.
    """
    words = [str(c) for c in command]
    if input is not None:
        kw["stdin"] = subprocess.PIPE
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)
    with waiting(f"the command {' '.join(words)}"):
        try:
            output, _ = process.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            process.kill()  # not waited for: the process may be blocked in the kernel
            raise Failed(f"gave up after {timeout} s waiting for: {' / '.join(_waits)}") from None
        except BaseException:
            process.kill()
            raise
    if check and process.returncode != 0:
        raise Failed(f"{' '.join(words)}: exit {process.returncode}\n{output}")
    return subprocess.CompletedProcess(words, process.returncode, output)


def wait_for(condition, what, seconds=180):
    """The limit ends a broken run. It does not judge a slow run."""
    end = time.monotonic() + seconds
    with waiting(what):
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise Failed(f"gave up after {seconds} s waiting for: {' / '.join(_waits)}")
            time.sleep(0.02)


def wait_said(read, words, what):
    """Waits until a log has these words. read: a function without arguments that reads the log.

    A service writes its log by a thread of its own. A line may come after the reply that it is about.
    """
    wait_for(lambda: words in read(), what)


def expect(condition, what):
    if not condition:
        raise Failed(what)


def end_in_time():
    """Makes a test fail by itself shortly before ctest would kill it, so that it reports what it was doing
    and cleans up.

    TWINLOFT_TEST_SECONDS is the time limit.
    """
    limit = int(os.environ.get("TWINLOFT_TEST_SECONDS", "0"))
    if limit == 0 or signal.getsignal(signal.SIGALRM) != signal.SIG_DFL:
        return

    def over(number, frame):
        raise Failed(f"the test's {limit} s are over, while it waited for: {' / '.join(_waits) or 'nothing in particular'}\n"
                     + "".join(traceback.format_stack(frame)[-6:]))
    signal.signal(signal.SIGALRM, over)
    signal.alarm(limit)


def build(*targets):
    """Brings this tree's release build up to date, unless TWINLOFT_BIN names the programs: no earlier command
    decides which programs run.
    """
    if "TWINLOFT_BIN" in os.environ:
        return
    print(f"Building {ROOT}/build/release (TWINLOFT_BIN=DIR names other programs) ...", flush=True)
    if subprocess.run(["bash", "-c", '. "$0/tests/lib/build.sh" && build release "$@"', ROOT, *targets], check=False).returncode != 0:
        raise SystemExit("FAILED: the tree does not build")


def lacking(needs):
    """Programs and files that are missing. A test without its needs has failed."""
    missing = [str(n) for n in needs if not shutil.which(n) and not os.path.exists(n)]
    return missing + ([] if os.getuid() == 0 else ["root"])


SKIPPED = 77  # the exit code of a test whose driver this kernel lacks; ctest knows it


def lacking_driver(drivers):
    """drivers: {module: a path that shows its presence}. Returns the first module that this kernel lacks and
    cannot load.
    """
    for module, path in drivers.items():
        if not os.path.exists(path) and shutil.which("modprobe"):
            run("modprobe", "-q", module, check=False)
        if not os.path.exists(path):
            return module
    return None


def freeze(pid):
    """SIGSTOP, and waits until all threads are stopped: each thread ends its present work first."""
    os.kill(pid, signal.SIGSTOP)

    def runs(stat):
        try:
            return stat.read_text().rsplit(") ", 1)[1][0] not in "TZX"
        except OSError:
            return False  # the thread has ended
    wait_for(lambda: not any(map(runs, pathlib.Path(f"/proc/{pid}/task").glob("*/stat"))),
             f"process {pid} to be stopped")


def timed(step, *args):
    """Runs one step of a test, and prints how long it took, to explain a slow run."""
    begin = time.monotonic()
    with waiting(step.__name__):
        result = step(*args)
    print(f"ok: {step.__name__}, {time.monotonic() - begin:.1f} s", flush=True)
    return result


def test_main(body, prefix, needs=(), drivers={}):
    """Runs body(stage) in its own directory, and removes everything afterwards. Returns the exit code.

    `needs` can be installed on any machine, so a missing one is a failure. `drivers` depend on the kernel: a
    missing driver is the only reason to skip a test.
    """
    build()
    if module := lacking_driver(drivers):
        print(f"SKIPPED: this kernel ({os.uname().release}) has no {module}, and there is no such module to load")
        return SKIPPED
    if missing := lacking(needs):
        print(f"FAILED: this test needs {', '.join(missing)} (tests/run installs what tests/lib/packages.sh lists)")
        return 1
    parent = os.environ.get("TMPDIR", "/var/tmp")
    leftovers.sweep(parent)
    own_mounts.enter(parent)
    directory = tempfile.mkdtemp(prefix=prefix, dir=parent)
    os.chmod(directory, 0o755)
    stage = Stage(directory)
    stage.on_close(shutil.rmtree, directory)
    try:
        body(stage)
        return 0
    except Exception as e:
        print(f"FAILED: {e}" if isinstance(e, Failed) else f"FAILED: {traceback.format_exc()}")
        print(stage.tails(), flush=True)
        return 1
    finally:
        stage.close()


class Process:
    def __init__(self, name, command, log, netns=None, env=None):
        self.name, self.log = name, pathlib.Path(log)
        # nsenter --net, since `ip netns exec` copies the mount table. A mount by one process would be invisible to
        # the others, and would stay mounted.
        if netns:
            command = ["nsenter", f"--net=/run/netns/{netns}", "--"] + list(command)
        with open(log, "ab") as out:
            self._log_begin = os.fstat(out.fileno()).st_size
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

    def own_log(self):
        """The log without what an earlier process of the same name wrote."""
        return self.log.read_bytes()[self._log_begin:].decode(errors="replace")

    def kill(self):
        """Kills the process and its descendants: each Process is its own process group."""
        if self.alive():
            os.killpg(self.pid, signal.SIGKILL)
        with waiting(f"{self.name} to end after SIGKILL"):
            self.process.wait()

    def stop(self, seconds=60):
        """SIGTERM, then a second SIGTERM, then SIGKILL, until the process ends. Returns the exit code."""
        for sig, limit in ((signal.SIGTERM, seconds), (signal.SIGTERM, 20), (signal.SIGKILL, 20)):
            if not self.alive():
                break
            self.process.send_signal(sig)
            with waiting(f"{self.name} to end"), contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(limit)
        return self.process.returncode


class Stage:
    """Holds the actions that undo the test's changes, newest first. made: the outer stage's record of what a
    killed run leaves behind.
    """

    def __init__(self, directory, made=None):
        self.dir = pathlib.Path(directory)
        self.dir.mkdir(parents=True, exist_ok=True)
        self.made = made or leftovers.Record(self.dir)
        self._undo = []
        self.processes, self.more_logs = [], []
        atexit.register(self.close)
        end_in_time()
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, lambda number, frame: sys.exit(128 + number))

    def inner(self, name):
        """A stage within this stage, which may be closed earlier."""
        stage = Stage(self.dir / name, self.made)
        self.on_close(stage.close)
        stage.processes = self.processes  # this stage shows their logs
        return stage

    def on_close(self, function, *args):
        self._undo.append((function, args))

    def close(self):
        while self._undo:
            function, args = self._undo.pop()
            try:
                function(*args)
            except Exception as e:  # the remaining actions must run all the same
                print(f"cleaning up: {e}", file=sys.stderr)

    def start(self, name, command, netns=None, env=None):
        p = Process(name, command, self.dir / f"{name}.log", netns, env)
        self.made.process(p.pid)
        self.processes.append(p)
        self.on_close(p.stop)
        return p

    def mount(self, device, directory, *options):
        pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
        run("mount", *options, device, directory)
        self.on_close(self.unmount, directory)

    def unmount(self, directory):
        if not is_mounted(directory):
            return
        if run("umount", directory, check=False).returncode != 0:
            run("umount", "-l", directory, check=False)

    def tell(self, log):
        """Registers a log that is written by a program that was not started here."""
        if pathlib.Path(log) not in self.more_logs:
            self.more_logs.append(pathlib.Path(log))

    def tails(self, lines=25, newest=16):
        """The ends of the logs of the processes that were started last."""
        logs = [(p.log, "runs" if p.alive() else f"has ended with {p.process.returncode}") for p in self.processes[-newest:]]
        text = ""
        for log, state in logs + [(log, "") for log in self.more_logs]:
            end = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else ["is not there"]
            text += "\n".join([f"--- {log} {state}", *end, ""])
        return text

    def namespace(self, name):
        self.made.namespace(name)
        run("ip", "netns", "add", name)
        self.on_close(run, "ip", "netns", "del", name)

    def namespaces(self, a, b, net="10.91.7"):
        for ns in (a, b):
            self.namespace(ns)
            run("ip", "-n", ns, "link", "set", "lo", "up")
        run("ip", "link", "add", "tl0", "netns", a, "type", "veth", "peer", "name", "tl0", "netns", b)
        for i, ns in enumerate((a, b), 1):
            run("ip", "-n", ns, "addr", "add", f"{net}.{i}/24", "dev", "tl0")
            run("ip", "-n", ns, "link", "set", "tl0", "up")
        return f"{net}.1", f"{net}.2"


def is_mounted(path):
    """Also works where the file system no longer answers, and stat fails."""
    path = os.path.abspath(path)
    with open("/proc/self/mountinfo") as f:
        return any(line.split()[4] == path for line in f)


class Volume:
    """A volume on nodes "a", "b" and so on, which are replicas 1, 2 ... By default "a" is primary, "b"
    secondary.

    network: supplies `ns` and `ip` of each node. Without a network, two nodes get namespaces and a cable between
    them; with netns=False, they get ports on loopback. protocol: of all links, or a function of two nodes.
    secured: the links have TLS by a secret; else clear text.
    """

    def __init__(self, stage, size="2GiB", journal_size="256MiB", protocol="C", fuse=True, nbd=False, ublk=False, extra="",
                 name="mail", netns=True, arena="256MiB", network=None, roles=("primary", "secondary"), secured=True):
        self.stage, self.name = stage, name
        self.uuid = str(uuid.uuid4())
        self.size = size
        self.replica = {chr(ord("a") + i): i + 1 for i in range(len(roles))}
        self.ns = dict.fromkeys(self.replica)
        self.address = {n: f"127.0.0.1:{free_port()}" for n in self.replica}
        if network:
            self.ns, self.address = network.ns, {n: f"{ip}:7710" for n, ip in network.ip.items()}
        elif netns:
            tag = f"tl{os.getpid() % 100000}"
            self.ns = {n: tag + n for n in self.replica}
            self.address = {n: f"{ip}:7710" for n, ip in zip("ab", stage.namespaces(*self.ns.values()))}
        self.secret = stage.dir / "secret"
        self.secret.write_text("a secret that all machines share\n")
        self.secret.chmod(0o600)
        self.config, self.nodes = {}, dict.fromkeys(self.replica)
        for node, role in zip(self.replica, roles):
            directory = stage.dir / node
            directory.mkdir(exist_ok=True)
            link = protocol if callable(protocol) else lambda *nodes: protocol
            text = f"""[volume.{name}]
uuid = "{self.uuid}"
replica = {self.replica[node]}
role = "{role}"
size = {json.dumps(size)}
data = "{directory}/data"
journal = "{directory}/journal"
journal_size = "{journal_size}"
arena = "{arena}"
listen = "{self.address[node]}"
{f'secret_file = "{self.secret}"' if secured else ""}
control = "{directory}/control.sock"
{extra}
"""
            for peer in sorted(self.replica.keys() - {node}):
                text += f"""[[volume.{name}.peer]]
id = {self.replica[peer]}
address = "{self.address[peer]}"
protocol = "{link(node, peer)}"
"""
                if not secured and self.ns[node]:
                    text += 'clear_text = "direct-cable"\n'
            # Secondaries have these sections too: they may be promoted.
            if fuse:
                text += f'[volume.{name}.fuse]\nfile = "{directory}/volume"\ndevice = "{self.device_link(node)}"\n'
                stage.on_close(self.free_devices, directory / "volume")
            if ublk:
                text += f'[volume.{name}.ublk]\ndevice = "{self.device_link(node)}"\n'
            if nbd:
                text += f'[volume.{name}.nbd]\nlisten = "unix:{directory}/nbd.sock"\n'
            self.config[node] = directory / "spool-repl.toml"
            self.config[node].write_text(text)

    def free_devices(self, file):
        """Detaches loop devices and unmounts the file that a killed process has left."""
        for loop in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):
                if loop.read_text().strip() == str(file):
                    run("losetup", "-d", f"/dev/{loop.parts[3]}", check=False)
        self.stage.unmount(file)

    def device_link(self, node):
        return self.stage.dir / node / "device"

    def create(self, *nodes):
        for node in nodes or self.replica:
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

    def in_sync(self, node="a"):
        """Waits until both replicas are in sync, and this node is primary. Returns its status."""
        return wait_for(lambda: (s := self.status(node)) and s["role"] == "Primary" and s["in_sync"] == [1, 2] and not s["suspended"] and
                        s["peers"][0]["disk"] == "UpToDate" and s, f"both in sync, {node} primary")

    def client(self, node="a"):
        """A connection to the node's export over NBD, once the node has one."""
        import nbd  # programs without such a connection do not need the library
        h = nbd.NBD()
        h.connect_uri(wait_for(lambda: (s := self.status(node)) and s["nbd"], f"the export of {node}"))
        return h

    def expect_content(self, node, content, block_bytes=4096):
        """content: the value of each byte of a block, by block."""
        h = self.client(node)
        for block, value in content.items():
            got = h.pread(block_bytes, block * block_bytes)
            expect(got == bytes([value]) * block_bytes, f"block {block} on {node} holds {got[:1]!r}..., not {value}")
        h.shutdown()

    def device(self, node="a"):
        # The link of a killed process stays until the next process has its device.
        wait_for(lambda: (s := self.status(node)) and s["device"] and self.device_link(node).exists() or self.nodes[node].check_alive(),
                 f"the block device of {node}")
        return os.path.realpath(self.device_link(node))

    def ctl(self, node, *words, check=True):
        return run(BIN / "spool-repl", words[0], self.name, *words[1:], "--config", self.config[node], check=check)

    def picture(self, node, enough):
        """The output of `status --watch` on a terminal, until enough(output) is true."""
        ours, its = pty.openpty()
        watch = subprocess.Popen([BIN / "spool-repl", "status", self.name, "--watch", "--config", self.config[node]], stdout=its)
        os.close(its)
        drawn = b""
        try:
            def more():
                nonlocal drawn
                # there is output every second; an error once the command has ended
                drawn += os.read(ours, 4096)
                return enough(drawn.decode(errors="replace"))
            wait_for(more, f"the status picture of {node}")
        except (Failed, OSError) as e:
            raise Failed(f"{e}; drawn: {drawn[-2000:]!r}") from None
        finally:
            watch.kill()
            watch.wait()
            os.close(ours)
        return drawn.decode(errors="replace")

    def data(self, node):
        return self.stage.dir / node / "data"

    def compare(self):
        """Compares byte for byte, after all nodes have stopped cleanly. Returns the number of bytes compared.
        """
        bytes_each = os.path.getsize(self.data("a")) - 4096  # the last block is each replica's own label
        for node in self.replica.keys() - {"a"}:
            run("cmp", "-n", bytes_each, self.data("a"), self.data(node))
        return bytes_each

    def stop_all(self, *nodes):
        """Stops the nodes in this order. Each must stop cleanly."""
        for node in nodes:
            code = self.nodes[node].stop()
            expect(code == 0, f"spool-repl on {node} does not stop cleanly: exit {code}")

    def kill_all(self):
        """Kills all nodes, so that nothing waits on a device during the clean-up."""
        for p in self.nodes.values():
            if p:
                p.kill()


def children(pid):
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def name_of(pid):
    """None: the process has ended, also between the open and the read."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def children_named(pid, name, children=children):
    """The children with this name. A child may end meanwhile."""
    return [p for p in children(pid) if name_of(p) == name]


def descriptors(pid):
    """What each open descriptor of a process names. A descriptor may be closed meanwhile."""
    found = {}
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found[int(fd.name)] = os.readlink(fd)
    return found


def threads_named(pid, name):
    """How many threads of a process have this name. A thread may end meanwhile."""
    found = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += (task / "comm").read_text().strip() == name
    return found


def uid_of(name):
    import pwd
    p = pwd.getpwnam(name)
    return p.pw_uid, p.pw_gid


def self_signed(certificate, key, name, *options):
    """An RSA certificate for `name`, signed with its own key. Both files are PEM. options: for `openssl req`.
    """
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={name}", *options, "-keyout", key, "-out", certificate)


def free_port():
    """A port of 127.0.0.1. Each call returns the next port, so no other test gets the same. The kernel uses higher
    ports for connections."""
    first, last = 20000, 29999
    with open(pathlib.Path(tempfile.gettempdir()) / "twinloft-test-ports", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        port = int(file.read() or first)
        for _ in range(first, last):
            port = port + 1 if port < last else first
            with socket.socket() as s, contextlib.suppress(OSError):
                s.bind(("127.0.0.1", port))
                file.truncate(0)
                file.write(str(port))
                return port
    raise Failed(f"no free port from {first} to {last}")


def accepts(address):
    """Whether a program listens there: the file of a Unix socket exists a moment earlier.

    address: a path, "unix:PATH" or "HOST:PORT".
    """
    text = str(address)
    unix = "/" in text
    host, _, port = text.rpartition(":")
    with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as s:
        s.settimeout(10)
        return s.connect_ex(text.removeprefix("unix:") if unix else (host, int(port))) == 0
