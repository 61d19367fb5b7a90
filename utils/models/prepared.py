"""What utils/check-gpu and utils/bench-gpu share: a folder that carries what a bare machine with a GPU lacks (the programs that pdc
wrote, and headers, or all of it compiled), and what is built there from it. There: CMake, nvcc, cuDNN and Python without packages; for
what is compiled only cuDNN and Python."""
import contextlib
import filecmp
import functools
import json
import math
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parents[2]
FRONTEND = "cudnn_frontend/include"  # its headers among those that are prepared: one of them asks for the folder by its name
PROGRAM, BUILD, PREPARATION = 60, 200, 7200  # seconds that a program, a compiler, and what is done beforehand may take
NUDGED, BITS = 4, 4  # runs of the CPU's programs beside the first, from weights with other last bits
LARGEST = 64 * 2**20  # bytes of a folder that is prepared


class Failed(Exception):
    """What went wrong, in one line; of a command, also the exit code and what it said."""

    def __init__(self, brief, output="", code=None):
        super().__init__(brief)
        self.brief, self.output, self.code = brief, output, code

    def __str__(self):
        return f"{self.brief}\n{self.output[-3000:]}".rstrip()


class NotRun(Failed):
    """There was no time left, or what is needed is not there."""


# ---- Commands, each for a limited time, and all together ----

deadline, patience, running = math.inf, 1, set()


def be_patient():
    """On the stand-in everything takes long."""
    global patience
    patience = 10


def end_within(seconds):
    """After so many seconds nothing is begun, and what runs is ended."""
    global deadline
    deadline = time.monotonic() + seconds


def time_left():
    return deadline - time.monotonic()


def end_all(*_):
    """Now: also a handler of signals."""
    end_within(0)
    kill(*running)


def kill(*processes):
    """With all that they have started. First by a signal that Ninja hands on: what it runs is in groups of its own."""
    for number, pause in [(signal.SIGTERM, 1), (signal.SIGKILL, 0)]:
        for process in processes:
            with contextlib.suppress(OSError):  # it has just ended
                os.killpg(process.pid, number)
        time.sleep(pause)


def ends(process, limit):
    """Whether it ends within so many seconds; else it is killed."""
    running.add(process)
    try:
        process.wait(limit)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        running.discard(process)
        if process.poll() is None:
            kill(process)
            with contextlib.suppress(subprocess.TimeoutExpired):  # what waits for a driver may outlive that
                process.wait(5)


def run(*command, check=True, limit=PROGRAM, **environment):
    """What a command says, and its exit code. It is ended after `limit` seconds, which is a failure."""
    words = [str(word) for word in command]
    name = " ".join(word if word.startswith("-") else pathlib.Path(word).name for word in words[:4])
    if time_left() <= 0:
        raise NotRun("not run: no time was left")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": library_path(), **environment}
    # A file: of what does not end, too, everything that was said is there, and nobody waits for a pipe that others hold.
    with tempfile.TemporaryFile() as file:
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment, process_group=0)
        except OSError as error:
            raise Failed(f"{words[0]} cannot be started: {error.strerror}") from None
        ended = ends(process, min(limit * patience, time_left()))
        file.seek(0)
        said = file.read().decode(errors="replace")
    whole = f"$ {shlex.join(words)}\n{said}"
    if process.returncode != 0 and time_left() <= 0:
        raise NotRun(f"not run to its end, no time was left: {name}", whole)
    if not ended:
        raise Failed(f"{name} does not end within {limit * patience:.0f} s", whole)
    if check and process.returncode:
        raise Failed(f"{name} {how_it_ended(process.returncode)}: {telling(said)}", whole, process.returncode)
    return subprocess.CompletedProcess(words, process.returncode, said)


def how_it_ended(code):
    return f"exits with {code}" if code >= 0 else f"is ended by {signal.Signals(-code).name}"


def telling(said):
    """The first line that speaks of an error, else the last one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it says nothing"]
    return next((line for line in lines if re.search(r"\b(error|fatal|terminate|undefined)\b", line, re.I)), lines[-1])[:300]


def excerpt(said):
    """The beginning and the end, for files of results."""
    return said if len(said) <= 10000 else f"{said[:4000]}\n[...]\n{said[-6000:]}"


@functools.cache
def gpu():
    """Name and driver; nothing where there is none."""
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], text=True,
                              capture_output=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


@functools.cache
def toolkits():
    """Folders in which CUDA's toolkit may be; CMake takes the first that has nvcc."""
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), "/usr/local/cuda", pathlib.Path(nvcc).resolve().parents[1] if nvcc else None]
    return [pathlib.Path(place) for place in places if place]


@functools.cache
def library_path():
    """LD_LIBRARY_PATH with the toolkit's folders, then pip's: CMake leaves them out of the paths in what it links, and what was compiled
    beforehand has the paths of another machine."""
    given = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    toolkit = next((place for place in toolkits() if (place / "bin/nvcc").exists()), None)
    folders = [toolkit / part for part in ("lib64", "targets/x86_64-linux/lib")] if toolkit else []
    folders += [path for place in sys.path if place for path in sorted(pathlib.Path(place).glob("nvidia/*/lib"))]
    return ":".join([*given, *(str(folder) for folder in folders if folder.is_dir())])


def tool(name):
    """A program of the toolkit, wherever it lies; None where it is not."""
    places = [place / part / name for place in toolkits() for part in ("bin", "compute-sanitizer")]
    return shutil.which(name) or next((str(place) for place in places if os.access(place, os.X_OK)), None)


# ---- Where pdc is built ----

def run_long(*command):
    return run(*command, limit=PREPARATION)


def frontend_of(build):
    """Where the headers of cudnn_frontend are: where the build has them, or pip; None: nowhere."""
    cache = (build / "CMakeCache.txt").read_text()
    places = [line.split("=", 1)[1] for line in cache.splitlines() if line.startswith("CUDNN_FRONTEND_INCLUDE_DIR:")]
    places += [os.environ.get("CUDNN_FRONTEND_INCLUDE_DIR"), *(f"{folder}/include" for folder in sys.path if folder)]
    return next((pathlib.Path(place) for place in places if place and (pathlib.Path(place) / "cudnn_frontend.h").exists()), None)


def begin(folder, build):
    """An empty folder with the headers that the runtime is compiled with; those of cudnn_frontend where they are found."""
    if folder.exists():
        shutil.rmtree(folder)
    for header in ["CLI", "nlohmann"]:
        shutil.copytree(f"/usr/include/{header}", folder / "headers" / header)
    if frontend := frontend_of(build):
        (folder / "headers" / FRONTEND).mkdir(parents=True)
        for path in [*frontend.glob("cudnn_frontend*"), *frontend.glob("cudnn_backend_base.h")]:
            (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / "headers" / FRONTEND / path.name)


def nudged(weights, count):
    """Yields so many times more than once; from the second time on, the last bits of every f32 element of the safetensors files in `weights`
    are random ones: they differ from what they were by as much as rounding moves results of kernels. Leaves the files as they were."""
    files = {path: path.read_bytes() for path in sorted(weights.glob("*.safetensors"))}
    yield
    for seed in range(1, count + 1):
        values = random.Random(seed)
        for path, data in files.items():
            (length,), changed = struct.unpack("<Q", data[:8]), bytearray(data)
            for entry in json.loads(data[8:8 + length]).values():
                first, end = (8 + length + offset for offset in entry.get("data_offsets", (0, 0)))
                # Infinities would become something else.
                if entry.get("dtype") == "F32" and not any(high & 0x7F == 0x7F and low & 0x80 for high, low in
                                                           zip(data[first + 3:end:4], data[first + 2:end:4])):
                    flips = values.randbytes((end - first) // 4)
                    changed[first:end:4] = bytes(byte ^ flip & 2**BITS - 1 for byte, flip in zip(changed[first:end:4], flips))
            path.write_bytes(changed)
        yield
    for path, data in files.items():
        path.write_bytes(data)


def keep_compiled(executables, folder):
    """Compiled beforehand: `folder` receives them, without symbols."""
    folder.mkdir(parents=True, exist_ok=True)
    for executable in executables:
        run_long("strip", "-o", folder / executable.name, executable)


def finish(folder):
    """Says how large the folder is, and what it lacks."""
    if not (folder / "headers" / FRONTEND).exists():
        print("WITHOUT fused attention: cudnn_frontend.h was not found; pip install nvidia-cudnn-frontend, and give its include/ as the "
              "variable CUDNN_FRONTEND_INCLUDE_DIR")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > LARGEST:
        parts = {path: sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) for path in folder.glob("*/*") if path.is_dir()}
        largest = sorted(parts, key=parts.get)[:-4:-1]
        raise Failed(f"{folder}: {size / 2**20:.1f} MiB, more than {LARGEST // 2**20}; the largest parts: " +
                     ", ".join(f"{path.relative_to(folder)} {parts[path] / 2**20:.1f}" for path in largest))
    print(f"{folder}: {size / 2**20:.1f} MiB")


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

def copied(folder, copy):
    """Copies what is not there or is another; the rest keeps its time, and nothing is compiled again because of it. What is executable stays so."""
    for path in folder.rglob("*"):
        target = copy / path.relative_to(folder)
        if path.is_file() and not (target.exists() and filecmp.cmp(path, target, shallow=False)):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return copy


def kind_of(name, entry):
    """What a tensor of the weights gets: random numbers, ones or zeros, so that losses are finite."""
    if entry["dtype"] != "F32" or "bias" in name or "mean" in name:
        return "zeros"
    # Of vectors those that are neither scales nor variances are parameters of attention.
    return "ones" if len(entry["shape"]) == 1 and (name.endswith("weight") or "var" in name) else "noise"


def with_numbers(program):
    """Weights with which losses are finite: small random numbers, 1 as scales and variances, 0 as biases and means."""
    values = random.Random(1)
    units = {"noise": struct.pack("<4096f", *(values.gauss(0, 0.02) for _ in range(4096))), "ones": struct.pack("<f", 1) * 4096,
             "zeros": bytes(16384)}
    for path in sorted((program / "weights").glob("*.header")):
        header = path.read_bytes()
        entries = json.loads(header[8:])
        entries.pop("__metadata__", None)
        with open(path.with_suffix(".safetensors"), "wb") as file:
            file.write(header)
            for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"][0]):
                first, end = entry["data_offsets"]
                unit = units[kind_of(name, entry)]
                whole, rest = divmod(end - first, len(unit))
                for _ in range(whole):
                    file.write(unit)
                file.write(unit[:rest])


def libraries_of_pip():
    """Where pip put cuDNN, NCCL, cuBLASLt and NVTX, if they are not in the toolkit: their libraries have no name without a version there."""
    found = {}
    for folder in map(pathlib.Path, sys.path):
        for name, library, header in [("CUDNN", "cudnn", "cudnn.h"), ("NCCL", "nccl", "nccl.h"), ("CUBLASLT", "cublasLt", "cublasLt.h"),
                                      ("NVTX", "", "nvtx3/nvToolsExt.h")]:
            headers = sorted(folder.glob(f"nvidia/*/include/{header}"))
            libraries = sorted(folder.glob(f"nvidia/*/lib/lib{library}.so.*")) if library else []
            in_toolkit = any((place / "include" / header).exists() for place in toolkits())
            if name in found or in_toolkit or not headers or (library and not libraries):
                continue  # beside the toolkit's own headers, those of another version would be read
            include = str(headers[0])[:-len(header) - 1]
            found[name] = [f"-D{name}_INCLUDE_DIR={include}", *(f"-D{name}_LIBRARY={path}" for path in libraries[:1])]
    return sum(found.values(), [])


def fused_attention(headers):
    """Where the headers are that fused attention is compiled with; nothing: programs know the plain one."""
    places = [headers / FRONTEND, *(pathlib.Path(folder) / "include" for folder in sys.path)]
    return next(([f"-DCUDNN_FRONTEND_INCLUDE_DIR={place}"] for place in places if (place / "cudnn_frontend.h").exists()), [])


def make(out, *targets):
    """What compiles is compiled, whatever else does not."""
    targets = [word for target in targets for word in ("--target", target)]
    run("nice", "cmake", "--build", out, *targets, "--", "-k", "0", limit=BUILD)


def build_runtime(prepared, work, architecture="native"):
    """The runtime for CUDA alone; returns the folder that programs find it in. Built once, whoever prepared the headers."""
    headers = copied(prepared / "headers", work / "headers")
    run("cmake", "-S", root / "runtime", "-B", work / "runtime", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DPDCRT_HEADERS={headers}",
        f"-DCMAKE_CUDA_ARCHITECTURES={architecture}", *libraries_of_pip(), *fused_attention(headers), limit=BUILD)
    make(work / "runtime")
    return work / "runtime"


def build_program(program, out, build, stand_in=False, replay=None, architecture="native"):
    """`replay`: the library with which the program's replay from the formulas is linked, beside the program."""
    source = [root / "test/stand-in/program", f"-DPROGRAM={program}"] if stand_in else [program]
    project = "on_stand_in" if stand_in else "pipeline"
    run("cmake", "-S", *source, "-B", out, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build}",
        *([] if stand_in else [f"-DCMAKE_CUDA_ARCHITECTURES={architecture}"]),
        *([f"-DREPLAY={replay}", f"-DCMAKE_PROJECT_{project}_INCLUDE={root / 'test/EndToEnd/replay/replay.cmake'}"] if replay else []), limit=BUILD)
    make(out, "pipeline", *(["replay"] if replay else []))
