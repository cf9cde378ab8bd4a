#!/usr/bin/python3
"""Runs a command on a machine that runs nothing for a part of each second, as a virtual machine beside busy ones.

    tests/lib/stalls.py STALL PERIOD COMMAND...

A real-time process on each processor takes all of it for STALL of each PERIOD milliseconds, all at the same time.
Nothing else runs meanwhile, and time passes. A test that needs a timer to be on time fails. Run it as root, and not
beside other tests. STALL is at most nine tenths of PERIOD, since the kernel keeps the rest for others.
Exit: that of the command; 2 a wrong option.
"""
import os, signal, sys, time

from running import ENDS, running


def stall_processor(cpu, stall, period, parent):
    for number in ENDS:
        signal.signal(number, signal.SIG_DFL)
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    while os.getppid() == parent:
        begin = time.monotonic() // period * period
        while time.monotonic() < begin + stall:
            pass
        time.sleep(max(0.0, begin + period - time.monotonic()))


def main():
    try:
        stall, period = (float(text) / 1000 for text in sys.argv[1:3])
        command = sys.argv[3:]
        if not command or not 0 < stall <= 0.9 * period:
            raise ValueError
    except ValueError:
        print(__doc__, file=sys.stderr)
        return 2
    parent, stallers = os.getpid(), []
    with running(command) as process:
        try:
            for cpu in sorted(os.sched_getaffinity(0)):
                stallers.append(os.fork())
                if stallers[-1] == 0:
                    try:
                        stall_processor(cpu, stall, period, parent)
                    except OSError as e:
                        print(f"{sys.argv[0]}: a real-time process on processor {cpu}: {e.strerror}; run it as root", file=sys.stderr)
                    finally:
                        os._exit(1)
            status = process.wait()
            ended = [pid for pid in stallers if os.waitpid(pid, os.WNOHANG)[0]]
            stallers = [pid for pid in stallers if pid not in ended]
            return 1 if ended else status
        finally:
            for pid in stallers:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


sys.exit(main())
