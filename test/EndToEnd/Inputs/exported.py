"""What runs have exported."""
import json
import pathlib
import struct


def tensors(folder):
    """Of a safetensors file, or of all in a folder: name -> element type, shape, bytes."""
    found, folder = {}, pathlib.Path(folder)
    for path in [folder] if folder.is_file() else sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end])
    return found


def numbers(folder):
    """Of all parameters, which are f32, as f64 arrays by name."""
    import numpy
    return {name: numpy.frombuffer(data, numpy.float32).reshape(shape).astype(float)
            for name, (_, shape, data) in tensors(folder).items()}
