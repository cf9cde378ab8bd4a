"""An IP address that moves from one machine (namespace) to another, as a cluster manager moves it.

The new holder announces it by a gratuitous ARP request. Others on the network then send there at once, although they knew the old
holder.
"""
import ctypes, os, socket

import twinloft as tl

CLONE_NEWNET = 0x40000000  # linux/sched.h
ETH_P_ARP = 0x0806


def packet_socket(ns, device):
    """A raw socket in another network namespace: a socket stays in the namespace in which it was made."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as here, open(f"/run/netns/{ns}") as there:
        tl.expect(libc.setns(there.fileno(), CLONE_NEWNET) == 0, f"setns to {ns}: {os.strerror(ctypes.get_errno())}")
        try:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ARP))
            made.bind((device, ETH_P_ARP))
            return made
        finally:
            tl.expect(libc.setns(here.fileno(), CLONE_NEWNET) == 0, "setns back")


def gratuitous_arp(mac, ip):
    """RFC 5227, section 3: the request that a host has the address now."""
    packed = socket.inet_aton(ip)
    return (b"\xff" * 6 + mac + ETH_P_ARP.to_bytes(2, "big")
            + bytes([0, 1, 8, 0, 6, 4, 0, 1]) + mac + packed + bytes(6) + packed)


class ServiceAddress:
    """ns: the namespace of each node. No node has the address at first."""

    def __init__(self, stage, ns, ip, device="tl0"):
        self.ns, self.ip, self.device = ns, ip, device
        self._sockets = {node: packet_socket(name, device) for node, name in ns.items()}
        for made in self._sockets.values():
            stage.on_close(made.close)

    def take(self, node):
        tl.run("ip", "-n", self.ns[node], "addr", "add", f"{self.ip}/24", "dev", self.device)
        mac = self._sockets[node].getsockname()[4]
        self._sockets[node].send(gratuitous_arp(mac, self.ip))

    def drop(self, node):
        tl.run("ip", "-n", self.ns[node], "addr", "del", f"{self.ip}/24", "dev", self.device)
