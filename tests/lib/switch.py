"""Machines on one switch: a namespace for each machine, and one for the switch itself, where a witness may
run.

A cable can be cut silently: the switch drops every frame of that machine in both directions, as if the cable
were cut further away. The machine's own link stays up, and no connection is reset.
"""
import os

import twinloft as tl

NET = "10.91.7"


class Switch:
    """ns: the namespace of each node; ip: its address. The witness's address is on the switch."""

    def __init__(self, stage, nodes):
        tag = f"tl{os.getpid() % 100000}"
        self.witness_ns, self.witness = f"{tag}w", f"{NET}.100"
        self.ns = {node: tag + node for node in nodes}
        self.ip = {node: f"{NET}.{i}" for i, node in enumerate(nodes, 1)}
        for ns in (self.witness_ns, *self.ns.values()):
            stage.namespace(ns)
            tl.run("ip", "-n", ns, "link", "set", "lo", "up")
        w = self.witness_ns
        tl.run("ip", "-n", w, "link", "add", "switch", "type", "bridge")
        tl.run("ip", "-n", w, "addr", "add", f"{self.witness}/24", "dev", "switch")
        tl.run("ip", "-n", w, "link", "set", "switch", "up")
        for node, ns in self.ns.items():
            port = self.port(node)
            tl.run("ip", "link", "add", "tl0", "netns", ns, "type", "veth", "peer", "name", port, "netns", w)
            tl.run("ip", "-n", w, "link", "set", port, "master", "switch")
            tl.run("ip", "-n", w, "link", "set", port, "up")
            tl.run("ip", "-n", ns, "addr", "add", f"{self.ip[node]}/24", "dev", "tl0")
            tl.run("ip", "-n", ns, "link", "set", "tl0", "up")

    def port(self, node):
        return f"port-{node}"

    def _inside(self, *words, check=True):
        return tl.run("nsenter", f"--net=/run/netns/{self.witness_ns}", "--", *words, check=check)

    def cut(self, node):
        self._inside("bridge", "link", "set", "dev", self.port(node), "state", "disabled")

    def mend(self, node):
        self._inside("bridge", "link", "set", "dev", self.port(node), "state", "forwarding")

    def throttle(self, node, rate):
        """Limits the rate towards the machine, such as "20mbit". None: no limit."""
        self._inside("tc", "qdisc", "del", "dev", self.port(node), "root", check=False)
        if rate:
            self._inside("tc", "qdisc", "add", "dev", self.port(node), "root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms")
