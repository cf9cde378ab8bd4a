"""A private MariaDB server, on its own Unix socket and on loopback."""
import shutil, socket

import twinloft as tl
from twinloft import expect, run

NEEDS = ["mariadbd", "mariadb-install-db", "mariadb"]


class MariaDb:
    """Runs as `mysql`, which must be able to reach the directory. more: options of mariadbd, such as those of
    TLS.
    """

    def __init__(self, stage, name, *more):
        self.stage, self.name, self.more = stage, name, more
        self.dir = stage.dir / name
        self.socket, self.port = self.dir / "sock", tl.free_port()
        self.dir.mkdir()
        shutil.chown(self.dir, "mysql", "mysql")
        self.dir.chmod(0o755)
        made = run("mariadb-install-db", "--no-defaults", f"--datadir={self.dir}/data", "--user=mysql", "--auth-root-authentication-method=normal",
                   "--skip-test-db", check=False)
        expect(made.returncode == 0, f"mariadb-install-db: {made.stdout}")
        self.process = None

    def start(self):
        options = ["--no-defaults", f"--datadir={self.dir}/data", f"--socket={self.socket}", f"--port={self.port}", "--bind-address=127.0.0.1",
                   f"--pid-file={self.dir}/pid", "--user=mysql", "--innodb-buffer-pool-size=256M", "--skip-log-bin", *self.more]
        self.process = self.stage.start(self.name, ["mariadbd", *options])
        tl.wait_for(lambda: self.answers() or self.process.check_alive(), f"{self.name} to answer")

    def answers(self):
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(str(self.socket))
                return bool(s.recv(1))
            except OSError:
                return False

    def stop(self):
        self.process.stop()

    def sql(self, text, user="root", check=True):
        # Later clients use TLS at a Unix socket too, and not every server here has TLS.
        return run("mariadb", "--no-defaults", "--skip-ssl", f"--socket={self.socket}", f"--user={user}", "--batch", "--skip-column-names", input=text, check=check).stdout
