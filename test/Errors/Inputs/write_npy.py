"""write_npy.py FILE DESCR FORTRAN_ORDER SHAPE [INTEGER]: an array of zeros, or of an integer of eight bytes, without NumPy."""
import struct
import sys

path, descr, order, shape = sys.argv[1:5]
dims = [int(dim) for dim in shape.split(",")]
count = 1
for dim in dims:
    count *= dim
header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({', '.join(map(str, dims))},), }}"
header += " " * (-(len(header) + 11) % 64) + "\n"
value = struct.pack("<q", int(sys.argv[5])) if len(sys.argv) > 5 else b"\0" * int(descr[2:])
with open(path, "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + value * count)
