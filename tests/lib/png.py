"""The pixels of a PNG as a browser writes it: 8 bits a channel, RGB or RGBA, not interlaced."""
import struct, zlib


def pixels(data):
    """Width, height, and the rows as bytes of RGB or RGBA with the number of channels."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("no PNG")
    at, body, head = 8, b"", None
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        part = data[at + 8:at + 8 + size]
        head = struct.unpack(">IIBBBBB", part) if kind == b"IHDR" else head
        body += part if kind == b"IDAT" else b""
        at += size + 12
    width, height, depth, color, _, _, interlaced = head
    if depth != 8 or color not in (2, 6) or interlaced:
        raise ValueError(f"a PNG of depth {depth}, color type {color}, interlace {interlaced}")
    channels = 3 if color == 2 else 4
    return width, height, channels, _rows(zlib.decompress(body), width * channels, height, channels)


def _rows(raw, length, height, channels):
    """Undoes the filters of PNG (ISO/IEC 15948, section 9)."""
    out, above = [], bytearray(length)
    for number in range(height):
        at = number * (length + 1)
        kind, line = raw[at], bytearray(raw[at + 1:at + 1 + length])
        for i in range(length if kind else 0):
            left = line[i - channels] if i >= channels else 0
            corner = above[i - channels] if i >= channels else 0
            line[i] = (line[i] + (left, above[i], (left + above[i]) // 2, _paeth(left, above[i], corner))[kind - 1]) & 255
        out.append(bytes(line))
        above = line
    return out


def _paeth(left, up, corner):
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))


def colors(data):
    """Color -> number of its pixels. A color is (red, green, blue)."""
    width, _, channels, rows = pixels(data)
    found = {}
    for row in rows:
        for i in range(0, width * channels, channels):
            color = tuple(row[i:i + 3])
            found[color] = found.get(color, 0) + 1
    return found
