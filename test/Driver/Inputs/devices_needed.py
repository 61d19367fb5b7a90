"""devices_needed.py PDC MODEL FOLDER BYTES: what --explain says of the fewest devices with so much memory is what compiling for N and for N - 1
of them finds, with the flags that it names and without them."""
import json
import pathlib
import re
import subprocess
import sys

pdc, model, folder, memory = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4])
QUANTIZE, LORA = "--quantize=int8", "--lora=rank=2,targets=all-linear"


def compiled(count, *flags):
    """On so many devices of the memory."""
    cluster = folder / f"{count}.json"
    cluster.write_text(json.dumps({
        "levels": [{"name": "net", "count": count, "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-4}],
        "device": {"name": "cpu", "memory_bytes": memory, "reserved_bytes": 0, "flops": {"f32": 1e11}, "memory_bandwidth_bytes_per_s": 1e10}}))
    return subprocess.run([pdc, model, "--init=1", "--batch=1", "--loss=softmax-cross-entropy", "--profile=analytic", "--split=none", "--optimizer=adam",
                           f"--cluster={cluster}", *flags], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


said = compiled(2, QUANTIZE, LORA, "--explain").stdout
needed = re.search(r"^devices needed, with (.*) each: (\d+) as asked, (\d+) without --quantize, (\d+) without --lora and --quantize$",
                   said, re.M)
assert needed, said
for count, *flags in ((int(needed[2]), QUANTIZE, LORA), (int(needed[3]), LORA), (int(needed[4]),)):
    with_it = compiled(count, *flags, "--emit=plan")
    assert with_it.returncode == 0, with_it.stdout
    verdict = "planned"
    if count > 1:
        without = compiled(count - 1, *flags, "--emit=plan")
        assert without.returncode == 4 and f"no plan fits: the smallest for --devices={count - 1}" in without.stdout, without.stdout
        verdict += f", refused for {count - 1}"
    print(f"{' '.join(flags) or 'in full'}: {count} {verdict}")
