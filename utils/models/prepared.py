"""What utils/check-gpu and utils/bench-gpu share: a folder that carries what a bare machine with a GPU lacks (the programs that pdc
wrote, and headers), and what is built there from it. There: CMake, nvcc, cuDNN and Python without packages."""
import glob
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]


class Failed(Exception):
    pass


def run(*command, check=True, **environment):
    result = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
    if check and result.returncode:
        raise Failed(f"{' '.join(map(str, command))} exits with {result.returncode}:\n{result.stdout[-3000:]}")
    return result


def gpu():
    """Name and driver; nothing where there is none."""
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], text=True,
                              capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


# ---- Where pdc is built ----

def begin(folder):
    """An empty folder with the headers that the runtime is compiled with."""
    if folder.exists():
        shutil.rmtree(folder)
    for header in ["CLI", "nlohmann"]:
        shutil.copytree(f"/usr/include/{header}", folder / "headers" / header)


def size_of(folder):
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{folder}: {size / 2**20:.1f} MiB"


def header_of(path):
    with open(path, "rb") as file:
        length = file.read(8)
        return length + file.read(struct.unpack("<Q", length)[0])


def without_numbers(program):
    """Leaves of the weights what they are called, and how large they are."""
    for path in sorted((program / "weights").glob("*.safetensors")):
        path.with_suffix(".header").write_bytes(header_of(path))
        path.unlink()


# ---- Where the GPU is ----

def with_numbers(program):
    """Weights with which losses are finite: small random numbers in matrices, 1 as scales and variances, else 0."""
    for path in sorted((program / "weights").glob("*.header")):
        header = path.read_bytes()
        entries = json.loads(header[8:])
        entries.pop("__metadata__", None)
        noise = struct.pack("<4096f", *(random.Random(1).gauss(0, 0.02) for _ in range(4096)))
        with open(path.with_suffix(".safetensors"), "wb") as file:
            file.write(header)
            for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"][0]):
                first, end = entry["data_offsets"]
                scale = len(entry["shape"]) == 1 and (name.endswith("weight") or "var" in name)
                unit = noise if len(entry["shape"]) > 1 else struct.pack("<f", 1 if scale else 0) * 4096
                whole, rest = divmod(end - first, len(unit))
                for _ in range(whole):
                    file.write(unit)
                file.write(unit[:rest])


def libraries_of_pip():
    """Where pip put cuDNN and NCCL, if CMake would not find them: their libraries have no name without a version there."""
    found = {}
    for folder in map(pathlib.Path, sys.path):
        for name in ["cudnn", "nccl"]:
            libraries = glob.glob(str(folder / f"nvidia/{name}/lib/lib{name}.so.*"))
            if libraries and name not in found:
                found[name] = [f"-D{name.upper()}_LIBRARY={libraries[0]}",
                               f"-D{name.upper()}_INCLUDE_DIR={folder / 'nvidia' / name / 'include'}"]
    return sum(found.values(), [])


def build_runtime(prepared, work):
    """The runtime for CUDA alone; returns the folder that programs find it in."""
    run("cmake", "-S", root / "runtime", "-B", work / "runtime", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        f"-DPDCRT_HEADERS={prepared / 'headers'}", "-DCMAKE_CUDA_ARCHITECTURES=native", *libraries_of_pip())
    run("cmake", "--build", work / "runtime")
    return work / "runtime"


def build_program(program, out, build, stand_in=False):
    source = [root / "test/stand-in/program", f"-DPROGRAM={program}"] if stand_in else [program]
    run("cmake", "-S", *source, "-B", out, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build}",
        *([] if stand_in else ["-DCMAKE_CUDA_ARCHITECTURES=native"]))
    run("cmake", "--build", out, "--target", "pipeline")
