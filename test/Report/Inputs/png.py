"""Reads 8-bit PNG files without interlacing, as a browser's screenshot is one. Standard library only."""
import struct
import zlib


def read(path):
    """Width, height, and one bytes object of RGB triples per row."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", path + " is not a PNG file"
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        at += 12 + length
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed += body
    assert depth == 8 and color in (2, 6) and not interlaced, "an unexpected kind of PNG file"
    size = 3 if color == 2 else 4
    raw, stride = zlib.decompress(packed), width * size
    rows, before = [], bytearray(stride)
    for y in range(height):
        filtering = raw[y * (stride + 1)]
        line = bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        unfilter(filtering, line, before, size)
        rows.append(bytes(line) if size == 3 else bytes(b for i, b in enumerate(line) if i % 4 != 3))
        before = line
    return width, height, rows


def unfilter(filtering, line, before, size):
    if filtering == 0:
        return
    for i in range(len(line)):
        left = line[i - size] if i >= size else 0
        up = before[i]
        corner = before[i - size] if i >= size else 0
        if filtering == 1:
            guess = left
        elif filtering == 2:
            guess = up
        elif filtering == 3:
            guess = (left + up) // 2
        else:
            estimate = left + up - corner
            guess = min((left, up, corner), key=lambda value: abs(estimate - value))
        line[i] = (line[i] + guess) & 255
