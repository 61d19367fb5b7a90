"""What runs have exported."""
import json
import math
import pathlib
import struct


def tensors(folder):
    """Of a safetensors file, or of all in a folder: name -> element type, shape, bytes. The parts that members of a team have are put
    together, as docs/FileFormats.md says."""
    found, parts, folder = {}, {}, pathlib.Path(folder)
    for path in [folder] if folder.is_file() else sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        entries = json.loads(data[8:8 + length])
        metadata = entries.pop("__metadata__", {})
        for name, entry in entries.items():
            begin, end = entry["data_offsets"]
            values = data[8 + length + begin:8 + length + end]
            if part := metadata.get(f"part/{name}"):
                parts.setdefault(name, []).append((entry["dtype"], part.split(), values))
            else:
                found[name] = (entry["dtype"], entry["shape"], values)
    return found | {name: together(name, of_members) for name, of_members in parts.items()}


def together(name, parts):
    """Parts are stated as: axis A blocks K of T member M shape D0 D1 …, and perhaps order P0 P1 …"""
    element, (_, axis, _, blocks, _, team, _, _, _, *shape), _ = parts[0]
    order = range(10**9)
    if "order" in shape:
        shape, order = shape[:shape.index("order")], [int(place) for place in shape[shape.index("order") + 1:]]
    axis, blocks, team, shape = int(axis), int(blocks), int(team), [int(dim) for dim in shape]
    if sorted(int(words[7]) for _, words, _ in parts) != list(range(team)):
        raise SystemExit(f"{name}: there are parts of members {[words[7] for _, words, _ in parts]} of {team}")
    block = shape[axis] // blocks
    share = -(-block // team)
    outer = math.prod(shape[:axis])
    inner = len(parts[0][2]) // (outer * blocks * share)
    whole = bytearray(math.prod(shape) * inner // math.prod(shape[axis + 1:]))
    for _, words, values in parts:
        for o in range(outer):
            for j in range(blocks * share):
                at = int(words[7]) * share + j % share
                if at < block:
                    to, begin = (o * shape[axis] + j // share * block + order[at]) * inner, (o * blocks * share + j) * inner
                    whole[to:to + inner] = values[begin:begin + inner]
    return element, shape, bytes(whole)


def numbers(folder):
    """Of all parameters, which are f32, as f64 arrays by name."""
    import numpy
    return {name: numpy.frombuffer(data, numpy.float32).reshape(shape).astype(float)
            for name, (_, shape, data) in tensors(folder).items()}
