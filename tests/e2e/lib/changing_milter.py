#!/usr/bin/python3
"""A filter by python3-milter that does what the header field X-Do says: every change that the protocol has.

Arguments: its socket, and the bytes of a new body.
"""
import os, sys

import Milter


class Changing(Milter.Base):
    def envfrom(self, sender, *parameters):
        self.wanted = ""
        return Milter.CONTINUE

    def header(self, name, value):
        if name == "X-Do":
            self.wanted = value
        return Milter.CONTINUE

    def eom(self):
        return getattr(self, self.wanted, lambda: Milter.CONTINUE)()

    def change(self):
        self.addheader("X-Added", "last")
        self.addheader("X-First", "a\n\tb", 0)
        self.chgheader("Subject", 2, "the second")
        self.chgheader("X-Old", 1, "")
        left = int(sys.argv[2])
        while left > 0:
            self.progress()
            part = min(left, 1 << 20)
            self.replacebody(b"0123456789abcd\r\n" * (part // 16))
            left -= part
        self.chgfrom("<changed@example.net>", "ENVID=x")
        self.addrcpt("<copy@example.org>")
        self.addrcpt("<carl@example.org>", "NOTIFY=NEVER")
        self.delrcpt("<bob@example.org>")
        return Milter.CONTINUE

    def isolate(self):
        self.quarantine("it looks odd")
        return Milter.CONTINUE

    def discard(self):
        return Milter.DISCARD

    def reply(self):
        self.setreply("554", "5.7.1", "It is 100%% spam", "second line")
        return Milter.REJECT

    def later(self):
        return Milter.TEMPFAIL


os.umask(0)
Milter.factory = Changing
Milter.set_flags(Milter.ADDHDRS | Milter.CHGHDRS | Milter.CHGBODY | Milter.CHGFROM | Milter.ADDRCPT | Milter.ADDRCPT_PAR | Milter.DELRCPT | Milter.QUARANTINE)
Milter.runmilter("changing", sys.argv[1], 600)
