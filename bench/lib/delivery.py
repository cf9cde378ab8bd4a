"""A load of mail on a mail server or an agent, and the verification of what was acknowledged."""
import json, os

import twinloft as tl
from twinloft import BIN, Failed, run

FILLED_AT_ONCE = 100  # recipients of a message: below each server's limit


def load(stage, name, socket_path, options, size, first_user, users, recipients=1, protocol="lmtp", more=()):
    """One run of mailbench for options.seconds, after options.warmup seconds. Returns mailbench's report.

    The account of the run is kept below `name` for verify(). recipients: of each message. protocol: "lmtp" or "smtp". more: further words.
    """
    spoken = [] if protocol == "lmtp" else ["--protocol", protocol]
    words = ["load", "--to", socket_path, *spoken, "--clients", options.clients, "--recipients-per-message", recipients, *more]
    return _measured(stage, name, [BIN / "mailbench", *words], options, size, first_user, users)


def fill(socket_path, first_user, users, protocol="lmtp"):
    """One message for each user, without an account: a load then finds mailboxes and indexes that exist."""
    spoken = [] if protocol == "lmtp" else ["--protocol", protocol]
    for first in range(first_user, first_user + users, FILLED_AT_ONCE):
        part = min(FILLED_AT_ONCE, first_user + users - first)
        run(BIN / "mailbench", "load", "--to", socket_path, *spoken, "--clients", 1, "--messages", 1, "--recipients-per-message", part, "--users", part,
            "--first-user", first, "--size", "1KiB", "--no-account", "--quiet", timeout=600)


def lda(stage, name, command, options, size, first_user, users, more=()):
    """The same without a mail server: the agent's command runs for each message, as the user vmail."""
    uid, gid = tl.uid_of("vmail")
    for kind in ("account", "json"):
        (stage.dir / f"{name}.{kind}").touch()
        os.chown(stage.dir / f"{name}.{kind}", uid, gid)
    words = ["setpriv", "--reuid", uid, "--regid", gid, "--clear-groups", BIN / "mailbench", "lda", "--command", command, "--jobs", options.clients, *more]
    return _measured(stage, name, words, options, size, first_user, users)


def _measured(stage, name, words, options, size, first_user, users):
    account, report = (stage.dir / f"{name}.{kind}" for kind in ("account", "json"))
    r = run(*words, "--duration", f"{options.seconds}s", "--warmup", f"{options.warmup}s", "--users", users, "--first-user", first_user, "--size", size,
            "--account", account, "--json", report, "--quiet", check=False, timeout=options.warmup + options.seconds + 600)
    if r.returncode != 0:
        raise Failed(f"mailbench ({name}): exit {r.returncode}\n{r.stdout}")
    return json.loads(report.read_text())


def verify(stage, name, spool, maildir_format="%d/%n/Maildir"):
    """Every message that the run `name` acknowledged, also during its warm-up, is in the spool, complete, and once. Returns
    mailbench's report.
    """
    account, report = (stage.dir / f"{name}.{kind}" for kind in ("account", "verify.json"))
    r = run(BIN / "mailbench", "verify", "--account", account, "--spool", spool, "--maildir-format", maildir_format,
            "--json", report, check=False, timeout=600)
    if r.returncode != 0:
        raise Failed(f"mailbench verify ({name}): exit {r.returncode}\n{r.stdout}")
    return json.loads(report.read_text())
