"""One etcd in a network namespace: the arbiter of a test. Its data survives the end of its process."""
import json, os

import twinloft as tl

PROGRAMS = ("etcd", "etcdctl")


class Etcd:
    """Listens on `address`, port 2379, in the namespace `ns`. `more` and `login`: options of etcd and of etcdctl, for TLS."""

    def __init__(self, stage, ns, address):
        self.stage, self.ns, self.address = stage, ns, address
        self.starts, self.process, self.more, self.login = 0, None, [], []

    def url(self):
        return f"{'https' if self.more else 'http'}://{self.address}:2379"

    def start(self):
        self.starts += 1
        url = self.url()
        self.process = self.stage.start(f"etcd{self.starts}", [
            "etcd", "--name", "witness", "--data-dir", self.stage.dir / "etcd", "--listen-client-urls", url,
            "--advertise-client-urls", url, "--listen-peer-urls", "http://127.0.0.1:2380",
            "--initial-advertise-peer-urls", "http://127.0.0.1:2380", "--initial-cluster", "witness=http://127.0.0.1:2380",
            "--log-level", "warn", *self.more], self.ns)
        tl.wait_for(lambda: self.ctl("endpoint", "health", check=False).returncode == 0 or self.process.check_alive(),
                    "etcd to start")

    def ctl(self, *words, check=True):
        return tl.run("nsenter", f"--net=/run/netns/{self.ns}", "--", "etcdctl", f"--endpoints={self.url()}", *self.login,
                      *words, check=check, env=dict(os.environ, ETCDCTL_API="3"))

    def text(self, volume):
        return self.ctl("get", f"/twinloft/{volume}/epoch", "--print-value-only").stdout.strip()

    def put(self, volume, text):
        self.ctl("put", f"/twinloft/{volume}/epoch", text)

    def value(self, volume):
        text = self.text(volume)
        return json.loads(text) if text else None
