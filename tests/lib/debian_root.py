"""Programs from Debian packages that this machine cannot install: they conflict with installed packages, or
belong to a later release.

The packages and all their dependencies, including the C library, are unpacked into a directory once. The
directory is kept in CACHE for later runs. Remove it to fetch newer packages.

A test works in a copy, by chroot. Users are looked up in the copy's own /etc/passwd, and paths are those of a
real installation. No package script runs: the test itself makes the users and directories that scripts would
make.
"""
import contextlib, fcntl, hashlib, os, pathlib, re, shutil, stat

from twinloft import expect, run

CACHE = pathlib.Path(os.environ.get("TWINLOFT_TEST_CACHE", "/var/cache/twinloft-tests"))
NEEDS = ("apt-get", "dpkg", "chroot")
VERSIONS = "versions"  # the list of the packages, in the directory itself
MERGED = ("bin", "sbin", "lib", "lib64")
UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info")
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}


def unpacked(name, packages, release=None, over_machine=False):
    """The directory, which must not be written to.

    release: a code name, such as "trixie". None: this machine's release. over_machine: only packages that
    were not installed here at that time, for programs that run without chroot.
    """
    key = hashlib.sha256(repr((sorted(packages), release, over_machine)).encode()).hexdigest()[:12]
    root = CACHE / f"{name}-{key}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            work = CACHE / f"{name}-{key}.partial"
            shutil.rmtree(work, ignore_errors=True)
            fetch(work, packages, release, over_machine)
            unpack(work, over_machine)
            (work / "root").rename(root)
            shutil.rmtree(work)
    return root


def fetch(work, packages, release, over_machine):
    """Fetches the packages into work/archives. With an empty dpkg status every dependency counts as missing,
    and is fetched as well.
    """
    for d in ("archives/partial", "lists/partial"):
        (work / d).mkdir(parents=True)
    options = ["-o", f"Dir::Cache::archives={work}/archives", "-o", f"Dir::State::lists={work}/lists", "-o", "APT::Sandbox::User=root"]
    if release:
        (work / "sources.list").write_text(source(release))
        options += ["-o", f"Dir::Etc::sourcelist={work}/sources.list", "-o", "Dir::Etc::sourceparts=/dev/null"]
    if not over_machine:
        (work / "status").touch()
        options += ["-o", f"Dir::State::status={work}/status"]
    run("apt-get", *options, "-q", "update")
    run("apt-get", *options, "-q", "-y", "--no-install-recommends", "--download-only", "install", *packages, timeout=900)


def mirrors():
    """The mirrors of this machine's release."""
    here = run("sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME").stdout.strip()
    targets = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages").stdout
    return [words[0] for line in targets.splitlines() if (words := line.split())[1:] == [here]]


def source(release):
    """A line for sources.list: another release from the same mirror. apt has the keys of all releases."""
    if not mirrors():
        run("apt-get", "-q", "update")  # apt knows the release only of lists that it has fetched
    found = mirrors()
    expect(found,
           f"apt has no source of this machine's release, so there is no mirror to fetch {release} from")
    return f"deb {found[0]} {release} main\n"


def unpack(work, over_machine):
    root = work / "root"
    root.mkdir()
    packages = sorted((work / "archives").glob("*.deb"))
    for package in packages:
        run("dpkg", "-x", package, root)
    (root / VERSIONS).write_text("".join(f"{p.name}\n" for p in packages))
    # Debian 12's packages have directories of these names. Newer packages have everything below usr.
    for name in MERGED:
        if not over_machine and not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    for directory in UNUSED:
        shutil.rmtree(root / directory, ignore_errors=True)


def version(root, package):
    """The upstream version of an unpacked package."""
    name = next(line for line in (root / VERSIONS).read_text().splitlines() if line.startswith(f"{package}_"))
    return re.split(r"[-+]", name.split("_")[1].split("%3a")[-1])[0]


class Root:
    """A copy for one test, with its own devices and passwd."""

    def __init__(self, stage, name, packages, release=None):
        self.stage, self.name, self.dir = stage, name, stage.dir / "root"
        run("cp", "-a", unpacked(name, packages, release), self.dir)
        self.dir.chmod(0o755)
        for d in ("dev", "etc", "proc", "run", "tmp", "var/log", "var/tmp", "var/mail", "root"):
            (self.dir / d).mkdir(parents=True, exist_ok=True)
        for d in ("tmp", "var/tmp"):
            (self.dir / d).chmod(0o1777)
        with contextlib.suppress(FileExistsError):
            (self.dir / "var/run").symlink_to("/run")
        for device, numbers in DEVICES.items():
            os.mknod(self.dir / "dev" / device, stat.S_IFCHR | 0o666, os.makedev(*numbers))
            (self.dir / "dev" / device).chmod(0o666)
        self.write("etc/hosts", "127.0.0.1 localhost\n")
        # nothing answers there: a test asks no name server
        self.write("etc/resolv.conf", "nameserver 127.0.0.1\n")
        self.write("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
        self.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nmail:x:8:8::/var/mail:/bin/false\nnobody:x:65534:65534::/nonexistent:/bin/false\n")
        self.write("etc/group", "root:x:0:\nmail:x:8:\nnogroup:x:65534:\n")

    def write(self, path, text, mode=0o644):
        (self.dir / path).parent.mkdir(parents=True, exist_ok=True)
        (self.dir / path).write_text(text)
        (self.dir / path).chmod(mode)

    def user(self, name, uid, gid=None, home="/nonexistent"):
        """Adds a user with its own group, unless gid names another group. Numbers that are unused on the
        machine are best.
        """
        with open(self.dir / "etc/passwd", "a") as f:
            f.write(f"{name}:x:{uid}:{gid or uid}::{home}:/bin/false\n")
        if gid is None:
            with open(self.dir / "etc/group", "a") as f:
                f.write(f"{name}:x:{uid}:\n")

    def directory(self, path, uid=0, gid=0, mode=0o755):
        where = self.dir / path
        where.mkdir(parents=True, exist_ok=True)
        os.chown(where, uid, gid)
        where.chmod(mode)
        return where

    def inside(self, *words):
        return ["chroot", self.dir, *words]

    def run(self, *words, **kw):
        return run(*self.inside(*words), **kw)

    def start(self, name, *words):
        return self.stage.start(name, self.inside(*words))
