"""What utils/check-gpu and utils/bench-gpu share: a folder that carries what a bare machine with a GPU lacks (the programs that pdc
wrote, and headers), and what is built there from it. There: CMake, nvcc, cuDNN and Python without packages."""
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
FRONTEND = "cudnn_frontend"  # folder of its headers among those that are prepared


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

def begin(folder, build):
    """An empty folder with the headers that the runtime is compiled with; those of cudnn_frontend where the build has them."""
    if folder.exists():
        shutil.rmtree(folder)
    for header in ["CLI", "nlohmann"]:
        shutil.copytree(f"/usr/include/{header}", folder / "headers" / header)
    cache = (build / "CMakeCache.txt").read_text()
    frontend = next((line.split("=", 1)[1] for line in cache.splitlines() if line.startswith("CUDNN_FRONTEND_INCLUDE_DIR:")), "")
    if frontend and (pathlib.Path(frontend) / "cudnn_frontend.h").exists():
        (folder / "headers" / FRONTEND).mkdir()
        for path in [*pathlib.Path(frontend).glob("cudnn_frontend*"), *pathlib.Path(frontend).glob("cudnn_backend_base.h")]:
            (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / "headers" / FRONTEND / path.name)


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


def thin(folder, into):
    """Of every tensor in the safetensors files of `folder` some of the elements, at most twice 4,096, as a vector."""
    into.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.safetensors")):
        data, header, kept = path.read_bytes(), {}, []
        (length,) = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            elements = 1
            for dimension in entry["shape"]:
                elements *= dimension
            width, step = (end - begin) // max(1, elements), max(1, elements // 4096)
            values = b"".join(data[at:at + width] for at in range(begin, end, width * step))
            start = sum(map(len, kept))
            header[name] = {"dtype": entry["dtype"], "shape": [len(values) // width], "data_offsets": [start, start + len(values)]}
            kept.append(values)
        text = json.dumps(header).encode()
        (into / path.name).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(kept))


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


def in_toolkit(header):
    nvcc = shutil.which("nvcc")
    toolkits = [os.environ.get("CUDA_HOME"), "/usr/local/cuda", pathlib.Path(nvcc).resolve().parents[1] if nvcc else None]
    return any((pathlib.Path(toolkit) / "include" / header).exists() for toolkit in toolkits if toolkit)


def libraries_of_pip():
    """Where pip put cuDNN, NCCL, cuBLASLt and NVTX, if they are not in the toolkit: their libraries have no name without a version there."""
    found = {}
    for folder in map(pathlib.Path, sys.path):
        for name, library, header in [("CUDNN", "cudnn", "cudnn.h"), ("NCCL", "nccl", "nccl.h"), ("CUBLASLT", "cublasLt", "cublasLt.h"),
                                      ("NVTX", "", "nvtx3/nvToolsExt.h")]:
            headers = sorted(folder.glob(f"nvidia/*/include/{header}"))
            libraries = sorted(folder.glob(f"nvidia/*/lib/lib{library}.so.*")) if library else []
            if name in found or in_toolkit(header) or not headers or (library and not libraries):
                continue  # beside the toolkit's own headers, those of another version would be read
            include = str(headers[0])[:-len(header) - 1]
            found[name] = [f"-D{name}_INCLUDE_DIR={include}", *(f"-D{name}_LIBRARY={path}" for path in libraries[:1])]
    return sum(found.values(), [])


def fused_attention(prepared):
    """Where the headers are that fused attention is compiled with; nothing: programs know the plain one."""
    places = [prepared / "headers" / FRONTEND, *(pathlib.Path(folder) / "include" for folder in sys.path)]
    return next(([f"-DCUDNN_FRONTEND_INCLUDE_DIR={place}"] for place in places if (place / "cudnn_frontend.h").exists()), [])


def build_runtime(prepared, work):
    """The runtime for CUDA alone; returns the folder that programs find it in."""
    run("cmake", "-S", root / "runtime", "-B", work / "runtime", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        f"-DPDCRT_HEADERS={prepared / 'headers'}", "-DCMAKE_CUDA_ARCHITECTURES=native", *libraries_of_pip(), *fused_attention(prepared))
    run("cmake", "--build", work / "runtime")
    return work / "runtime"


def build_program(program, out, build, stand_in=False, replay=None):
    """`replay`: the library with which the program's replay from the formulas is linked, beside the program."""
    source = [root / "test/stand-in/program", f"-DPROGRAM={program}"] if stand_in else [program]
    project = "on_stand_in" if stand_in else "pipeline"
    run("cmake", "-S", *source, "-B", out, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build}",
        *([] if stand_in else ["-DCMAKE_CUDA_ARCHITECTURES=native"]),
        *([f"-DREPLAY={replay}", f"-DCMAKE_PROJECT_{project}_INCLUDE={root / 'test/EndToEnd/replay/replay.cmake'}"] if replay else []))
    run("cmake", "--build", out, "--target", "pipeline", *(["replay"] if replay else []))
