#!/usr/bin/python3
"""Holds a listening socket for a server that starts later, as a socket unit of systemd does.

    held_socket.py HOST:PORT COMMAND ...

Listens at once, also on an address that this machine does not have yet (FreeBind=yes). Connections wait in the backlog. At
SIGUSR1 the process becomes the command, which gets the socket as LISTEN_FDS (sd_listen_fds(3)).
"""
import os, signal, socket, sys

FIRST_FD = 3          # SD_LISTEN_FDS_START
IP_FREEBIND = 15      # linux/in.h
BACKLOG = 1024        # as in conf/systemd/lmtpd.socket


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    host, port = sys.argv[1].rsplit(":", 1)
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_IP, IP_FREEBIND, 1)
        s.bind((host, int(port)))
        s.listen(BACKLOG)
        print("listening", flush=True)
        signal.sigwait([signal.SIGUSR1])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        if s.fileno() == FIRST_FD:
            os.set_inheritable(FIRST_FD, True)
        else:
            os.dup2(s.fileno(), FIRST_FD)
        os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
        os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
