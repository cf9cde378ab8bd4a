"""Other load generators, to check mailbench's rates: Postfix's smtp-source, and postal.

Both give messages per minute, each acknowledged by its 250. Neither keeps an account, so the caller counts what was delivered.
Neither pipelines commands.
"""
import contextlib, pathlib, subprocess, time

import twinloft as tl

USER = "user{}@example.org"


def run_smtp_source(stage, address, protocol, messages, size, sessions, first_user=1, timeout=600):
    """Sends that many messages in all. Returns messages per minute.

    address: HOST:PORT, or the path of a Unix socket. smtp-source has one recipient for all of its sessions, so each session is a
    process of its own, and sends to a user of its own. size: of the body in bytes.
    """
    at = f"unix:{address}" if "/" in str(address) else f"inet:{address}"
    each = -(-messages // sessions)
    command = ["smtp-source", *(["-L"] if protocol == "lmtp" else []), "-d", "-s", "1", "-m", each, "-l", size, "-M", "c.example.net", "-f", "a@example.net"]
    begin = time.monotonic()
    running = [stage.start(f"smtp-source-{n}", [*command, "-t", USER.format(n), at]) for n in range(first_user, first_user + sessions)]
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.process.wait(timeout)
        tl.expect(process.process.returncode == 0, f"{process.name} ended with {process.process.returncode}: {process.log.read_text()[-500:]}")
    return each * sessions * 60 / (time.monotonic() - begin)


def run_smtp_source_for(stage, address, protocol, seconds, size, sessions, first_user=1):
    """Sends for about so many seconds: as many messages as the rate of shorter runs suggests, which are the warm-up too. Returns
    messages per minute, and how many were acknowledged in all."""
    each, acknowledged = 20, 0
    for part in (0.2, 1, None):
        rate = run_smtp_source(stage, address, protocol, each * sessions, size, sessions, first_user)
        acknowledged += each * sessions
        each = part and max(20, int(rate / 60 * seconds * part / sessions))
    return rate, acknowledged


def run_postal(stage, address, protocol, seconds, kbytes, threads, users=200, first_user=1, messages_per_connection=1000, warmup=1):
    """Sends for so many seconds after a warm-up. Returns messages per minute. None: the server refuses postal's commands.

    address: HOST:PORT. kbytes: the size of each body. postal writes a blank after "MAIL FROM:", which RFC 5321 does not allow, and
    some servers refuse. It sends a message in several small segments: over TCP each message then waits for a delayed
    acknowledgement of about 40 ms. So its rate is at most 25 messages a second and thread.
    """
    host, port = address.rsplit(":", 1)
    directory = stage.dir / f"postal-{port}-{first_user}"
    directory.mkdir()
    names = directory / "users"
    names.write_text("".join(USER.format(n) + "\n" for n in range(first_user, first_user + users)))
    command = ["postal", *(["-L"] if protocol == "lmtp" else []), "-p", port, "-t", threads, "-c", messages_per_connection, "-M", kbytes, "-m", kbytes,
               "-r", 1_000_000, host, names]
    out = directory / "out"
    with open(out, "wb") as log:
        # It writes its log into the working directory, a line for each message, and runs until it is killed.
        process = subprocess.Popen([str(word) for word in command], cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    stage.made.process(process.pid)
    try:
        time.sleep(warmup)
        begin, before = time.monotonic(), sent(directory)
        time.sleep(seconds)
        count, took = sent(directory) - before, time.monotonic() - begin
    finally:
        process.kill()
        process.wait()
    if "Server error" in out.read_text(errors="replace"):
        return None
    tl.expect(count > 0, f"postal has sent nothing: {out.read_text(errors='replace')[-500:]}")
    return count * 60 / took


def sent(directory):
    log = pathlib.Path(directory) / "postal.log"
    return log.read_bytes().count(b"\n") if log.exists() else 0
