"""A load of mail on an lmtpd, and the proof of what it acknowledged."""
import json

from twinloft import BIN, Failed, run


def load(stage, name, socket_path, spool, options, size, first_user, users):
    """One run of mailbench for options.seconds after options.warmup; every message that was acknowledged, then and before, is looked for in the
    spool afterwards. What mailbench reports, and `verify`."""
    account, report, verified = (stage.dir / f"{name}.{kind}" for kind in ("account", "json", "verify.json"))
    r = run(BIN / "mailbench", "load", "--to", socket_path, "--clients", options.clients,
            "--duration", f"{options.seconds}s", "--warmup", f"{options.warmup}s", "--users", users,
            "--first-user", first_user, "--size", size, "--account", account, "--json", report, "--quiet",
            check=False, timeout=options.warmup + options.seconds + 600)
    if r.returncode != 0:
        raise Failed(f"mailbench load ({name}): exit {r.returncode}\n{r.stdout}")
    v = run(BIN / "mailbench", "verify", "--account", account, "--spool", spool, "--maildir-format", "%d/%n/Maildir",
            "--json", verified, check=False, timeout=600)
    if v.returncode != 0:
        raise Failed(f"mailbench verify ({name}): exit {v.returncode}\n{v.stdout}")
    result = json.loads(report.read_text())
    result["verify"] = json.loads(verified.read_text())
    return result
