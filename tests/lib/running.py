"""A command that runs under conditions which its caller makes, and that ends with the caller."""
import contextlib, signal, subprocess, sys

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end(number, frame):
    sys.exit(128 + number)


@contextlib.contextmanager
def running(command, **options):
    """Its Popen. A signal that ends the caller ends the command too."""
    for number in ENDS:
        signal.signal(number, end)
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
