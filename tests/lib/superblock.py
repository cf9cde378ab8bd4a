"""The superblock of a journal, in the form of version 5 that an earlier release wrote
(docs/formats/superblock.md).
"""
import struct

COPIES = (0, 65536)
SIZE = 4096
ENTRY = struct.Struct("<24sIQIIQ")  # of the epoch table: epoch, writer, in-sync set, flags, granted after, start
UNKNOWN = 2**64 - 1


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def entry_of_version_5(entry):
    epoch, writer, in_sync, flags, granted_after, start = ENTRY.unpack(entry)
    return struct.pack("<24sIQIQ", epoch, writer, in_sync, flags | granted_after << 3, start)


def of_version_5(block, disk=None):
    """The superblock `block` of version 6 as version 5. disk: the 112 bytes of version 5 for the state of the
    disk. None: the replica is Consistent.
    """
    at = 0

    def take(size):
        nonlocal at
        at += size
        return block[at - size:at]
    head, state, bitmaps = take(200), take(128), take(4 * 56)
    version, = struct.unpack_from("<I", head, 12)
    if version != 6 or (disk is None and any(state)):
        raise ValueError(f"version {version}, state of the disk {state.hex()}")
    epochs, = struct.unpack("<I", take(4))
    table = b"".join(entry_of_version_5(take(ENTRY.size)) for _ in range(epochs)) + take(40)
    old = head[:12] + struct.pack("<I", 5) + head[16:] + (disk or bytes(112)) + bitmaps + struct.pack("<I", epochs) + table
    at += (16 - epochs) * ENTRY.size
    count, reserved = struct.unpack("<II", take(8))
    old = old.ljust(1348, b"\0") + struct.pack("<II", count, reserved)
    for _ in range(count):
        peer, known, lsn = struct.unpack("<IIQ", take(16))
        old += struct.pack("<IIQ", peer, 0, lsn if known else UNKNOWN)
    old += take(8) + entry_of_version_5(take(ENTRY.size))
    old = (old[:8] + bytes(4) + old[12:]).ljust(SIZE, b"\0")
    return old[:8] + struct.pack("<I", crc32c(old)) + old[12:]


def versions(journal):
    """The version of each copy."""
    with open(journal, "rb") as f:
        return [struct.unpack_from("<I", read(f, at), 12)[0] for at in COPIES]


def read(f, at):
    f.seek(at)
    return f.read(SIZE)


def downgrade(journal):
    """Writes both copies of a stopped, consistent replica as version 5."""
    with open(journal, "r+b") as f:
        for at in COPIES:
            old = of_version_5(read(f, at))
            f.seek(at)
            f.write(old)
