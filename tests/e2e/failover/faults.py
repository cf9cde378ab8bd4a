"""The faults. Each function gets the stack with all replicas in sync and mail flowing.

The function strikes, lets the mail continue, repairs the damage, and returns the times since the fault. `run`
checks afterwards what must hold after every fault.
"""
import time

import twinloft as tl
from stack import Clock
from twinloft import Failed, expect, wait_for

BULK_BYTES = 80 << 20  # more than the journal holds
SLOW = "20mbit"        # so that a fault can hit a resync


def after(s, old_load):
    """Mail flows on the survivor. The generator that saw the fault ends its account."""
    s.load.wait_for_more(s.options.messages)
    old_load.end()


def kill(s):
    """kill -9 of spool-repl and lmtpd on the primary."""
    old, load, clock = s.primary, s.load, Clock()
    s.crash(old)
    s.fail_over(s.others(old), clock)
    after(s, load)
    s.clear(old)
    s.v.serve(old)
    return clock


def lmtpd_again(s):
    """kill -9 of lmtpd alone. It starts again on the same mount, without a replay."""
    load, clock = s.load, Clock()
    s.lmtpd[s.primary].kill()
    s.start_mail(s.primary, clock)
    after(s, load)
    return clock


def cut(s):
    """Every frame of the primary's machine is dropped: its peers and the arbiter are out of reach. Mail still
    arrives there.
    """
    old, load, clock = s.primary, s.load, Clock()
    s.switch.cut(old)
    s.fail_over(s.others(old), clock)
    state = s.wait_status(old, lambda state: state["suspended"], "the primary that is cut off to be suspended")
    expect(state["role"] == "Primary" and not state["failed"], f"cut off: {state}")
    told = load.acknowledged()
    s.load.wait_for_more(s.options.messages)
    expect(load.acknowledged() == told,
           "the isolated primary acknowledges mail while another replica is primary")
    s.switch.mend(old)
    state = s.wait_status(old, lambda state: state["role"] == "Secondary" and not state["device"], "the old primary to step down")
    expect(not any(p["split_brain"] for p in state["peers"]), f"split brain: {state}")
    after(s, load)
    s.lmtpd[old].stop()  # failed deliveries show in its exit code
    s.clear(old)
    return clock


def kill_and_cut(s):
    """The machine is lost: no process answers, and no connection is closed."""
    old, load, clock = s.primary, s.load, Clock()
    s.switch.cut(old)
    s.crash(old)
    s.fail_over(s.others(old), clock)
    after(s, load)
    s.clear(old)
    s.switch.mend(old)
    s.v.serve(old)
    return clock


def reboot(s):
    """The primary's machine is stopped cleanly, and another replica takes over meanwhile."""
    old, load, clock = s.primary, s.load, Clock()
    s.take_down(old)
    s.v.stop_all(old)
    s.fail_over(s.others(old), clock)
    after(s, load)
    s.v.serve(old)
    return clock


def restart_all(s):
    """Power fails in the whole room, for all processes on all machines and for the arbiter."""
    old, load, clock = s.primary, s.load, Clock()
    s.etcd.process.kill()
    for node in s.nodes:
        s.crash(node)
    for node in s.nodes:
        s.clear(node)
    s.etcd.start()
    for node in s.nodes:
        s.v.serve(node)
    first = s.rng.choice(s.nodes)
    s.fail_over([first, *s.others(first)], clock)
    after(s, load)
    return clock


# ---- in a resync -----------------------------------------------------------------------------------------------------------

def leave(s, target, anew):
    """The target is away: its disk is replaced, or it misses more than the journal keeps."""
    s.crash(target)
    s.wait_status(s.primary, lambda state: s.v.replica[target] not in state["in_sync"], f"the set without {target}")
    if anew:
        for file in ("data", "journal"):
            (s.stage.dir / target / file).unlink()
        s.v.create(target)
        return
    bulk = s.spool(s.primary) / "bulk"
    with open(bulk, "wb") as f:
        piece = s.rng.randbytes(1 << 20)
        for _ in range(BULK_BYTES >> 20):
            f.write(piece)
    tl.run("sync", bulk)


def peer_of(s, node):
    state = s.status(s.primary)
    return state and next(p for p in state["peers"] if p["id"] == s.v.replica[node])


def begin_resync(s, target, anew):
    """Returns in the middle of a resync. False: the resync has ended too early."""
    leave(s, target, anew)
    s.switch.throttle(target, SLOW)
    s.v.serve(target)

    def seen():
        peer = peer_of(s, target)
        return peer and (peer["connection"] == "SyncTarget" or peer["in_sync"]) and peer
    peer = wait_for(seen, f"a resync of {target} to begin")
    if peer["connection"] == "SyncTarget":
        time.sleep(s.rng.uniform(0, 1.5))  # the random moment of the fault
        peer = peer_of(s, target)
    return peer["connection"] == "SyncTarget"


def in_resync(s, strike):
    """Calls strike(target) in the middle of a resync. Repeats it until strike returns that the resync was
    hit.
    """
    anew = s.rng.random() < 0.5
    for _ in range(5):
        target = s.others(s.primary)[0]
        s.note = f"{target} was {'created again' if anew else 'away for longer than the journal'}"
        clock = begin_resync(s, target, anew) and strike(target)
        s.switch.throttle(target, None)
        if clock:
            return clock
        s.in_sync()
    raise Failed("five resyncs were over before they could be hit")


def refuses_promotion(s, target):
    r = s.v.ctl(target, "promote", check=False)
    expect(r.returncode == 1 and "Inconsistent" in r.stdout,
           f"{target} in the middle of a resync: promote ends with {r.returncode}: {r.stdout}")


def resync_target(s):
    """kill -9 of a replica that is being filled. Mail continues. After a restart the replica knows that it is
    Inconsistent.
    """
    def strike(target):
        clock = Clock()
        s.crash(target)
        s.load.wait_for_more(1)
        clock.mark("250")
        s.switch.cut(target)  # so that its status can be read before it is filled
        s.v.serve(target)
        inconsistent = s.status(target)["disk"] == "Inconsistent"
        if inconsistent:
            refuses_promotion(s, target)
        s.switch.mend(target)
        return inconsistent and clock
    clock = in_resync(s, strike)
    s.load.wait_for_more(s.options.messages)
    return clock


def resync_source(s):
    """kill -9 of the primary that fills another replica.

    A third replica takes over and continues the resync. Without a third replica, only the old primary can
    continue.
    """
    def strike(target):
        old, load, clock = s.primary, s.load, Clock()
        s.crash(old)
        inconsistent = s.status(target)["disk"] == "Inconsistent"
        if inconsistent:
            refuses_promotion(s, target)
        healthy = [n for n in s.others(old) if n != target or not inconsistent]
        if not healthy:
            s.clear(old)
            s.v.serve(old)
        s.fail_over(healthy or [old], clock)
        if healthy:
            s.clear(old)
            s.v.serve(old)
        after(s, load)
        return inconsistent and clock
    return in_resync(s, strike)


KINDS = {f.__name__: f for f in (kill, cut, kill_and_cut, resync_source, restart_all, resync_target, reboot)}
LOG_KINDS = {**KINDS, "lmtpd_again": lmtpd_again}  # with an intake log
