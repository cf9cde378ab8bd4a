"""The times of a load's acknowledgements, from mailbench's account, and what a failover is in them."""
import re

TICK = 0.1  # seconds, of a plot


def acknowledgements(account):
    """The time of each acknowledgement as time.time() has it, in order. account: the text (docs/formats/mailbench-account.md)."""
    head, *lines = account.splitlines()
    started = float(re.search(r"started=(\S+)", head)[1])
    return sorted(started + int(words[7]) / 1e6 for line in lines if "acknowledged" in (words := line.split()))


def failover(acknowledged, marks):
    """The gap, and how long each step took. All times are in seconds since the fault.

    marks: the end of each step, in order. "mounted": the old server is dead then, and the new one does not run yet. "listens" is
    the last one.
    """
    before, after = ([t for t in acknowledged if (t > marks["mounted"]) == later] for later in (False, True))
    if not before or not after:
        raise ValueError("no acknowledgement before the fault, or none after it")
    # The 250 is known more exactly than the moment at which a look has found the server.
    marks = marks | {"listens": min(marks["listens"], after[0]), "250": after[0]}
    steps = {step: end - begin for (step, end), begin in zip(marks.items(), (0, *marks.values()))}
    return {"gap": after[0] - before[-1], "marks": marks, "steps": steps, "before": len(before), "after": len(after)}


def per_tick(acknowledged):
    """Points of time and messages a second. The first and the last tick are incomplete, and left out."""
    counts = {}
    for t in acknowledged:
        counts[int(t // TICK)] = counts.get(int(t // TICK), 0) + 1
    return [((n + 0.5) * TICK, counts.get(n, 0) / TICK) for n in range(min(counts) + 1, max(counts))]
