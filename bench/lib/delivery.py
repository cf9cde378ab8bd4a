"""A load of mail on an lmtpd, and the verification of what lmtpd acknowledged."""
import json

from twinloft import BIN, Failed, run


def load(stage, name, socket_path, options, size, first_user, users, recipients=1, protocol="lmtp"):
    """One run of mailbench for options.seconds, after options.warmup seconds. Returns mailbench's report.

    The account of the run is kept below `name` for verify(). recipients: of each message. protocol: "lmtp" or "smtp".
    """
    account, report = (stage.dir / f"{name}.{kind}" for kind in ("account", "json"))
    spoken = [] if protocol == "lmtp" else ["--protocol", protocol]
    r = run(BIN / "mailbench", "load", "--to", socket_path, *spoken, "--clients", options.clients,
            "--duration", f"{options.seconds}s", "--warmup", f"{options.warmup}s", "--users", users,
            "--first-user", first_user, "--recipients-per-message", recipients, "--size", size, "--account", account,
            "--json", report, "--quiet", check=False, timeout=options.warmup + options.seconds + 600)
    if r.returncode != 0:
        raise Failed(f"mailbench load ({name}): exit {r.returncode}\n{r.stdout}")
    return json.loads(report.read_text())


def verify(stage, name, spool, maildir_format="%d/%n/Maildir"):
    """Every message that the run `name` acknowledged, also during its warm-up, is in the spool, complete, and
    once. Returns mailbench's report.
    """
    account, report = (stage.dir / f"{name}.{kind}" for kind in ("account", "verify.json"))
    r = run(BIN / "mailbench", "verify", "--account", account, "--spool", spool, "--maildir-format", maildir_format,
            "--json", report, check=False, timeout=600)
    if r.returncode != 0:
        raise Failed(f"mailbench verify ({name}): exit {r.returncode}\n{r.stdout}")
    return json.loads(report.read_text())
