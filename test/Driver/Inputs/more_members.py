"""more_members.py MODEL COPY: the first factor of a sharding_spec that is divided in two is divided in four."""
import pathlib
import re
import sys

data = pathlib.Path(sys.argv[1]).read_bytes()
# ShardedDimProto.simple_sharding (field 2): dim_value (1), num_shards (3).
factor = re.search(rb"\x12.\x08[\x80-\xff]{0,2}[\x00-\x7f]\x18\x02", data, re.DOTALL)
if not factor:
    sys.exit("no factor has two shards")
pathlib.Path(sys.argv[2]).write_bytes(data[: factor.end() - 1] + b"\x04" + data[factor.end() :])
