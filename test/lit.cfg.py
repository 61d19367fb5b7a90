# lit configuration: every .pdir and .test file below test/ is a test. Run by <build>/bin/pdc-lit, which names the build.
#
# Substitutions: %shared (data too large for the repository), %source, %build, %python (one that may have torch, onnx).
# Features, for REQUIRES: shared-data, torch, onnx, PIL, onnx-testdata, mpirun, chromium, sanitizer, x86_64 (this processor),
# newer-torch, exporters, finetuning, peft, tensorboard (utils/venv torch, exporters, … have made them), namespaces (hosts on this machine: root), nvcc (the runtime for CUDA was built), thorough (where PDC_TEST_THOROUGH is set, as by utils/check --thorough), long-runs (where PDC_TEST_ROUNDS is set, as by utils/check --full).
import os
import platform
import runpy
import shutil
import subprocess

import lit.formats

site_file = lit_config.params.get("site")
if not site_file:
    lit_config.fatal("run the tests with <build>/bin/pdc-lit")
site = runpy.run_path(site_file)

config.name = "pdc"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".pdir", ".test"]
config.excludes = ["unit", "models", "fuzz", "Inputs", "data"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = site["output_dir"]

path = [site["tools_dir"], site["llvm_tools_dir"], os.environ.get("PATH", "")]
config.environment["PATH"] = os.pathsep.join(path)
config.environment["CUDA_VISIBLE_DEVICES"] = ""  # --target=auto is the CPU, whatever machine this is
for name in ["HOME", "TMPDIR", "LANG", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "CCACHE_DIR", "PDC_TEST_ROUNDS"]:
    if name in os.environ:
        config.environment[name] = os.environ[name]

shared = os.path.realpath(os.path.join(site["source_dir"], "..", "shared", "data"))
config.substitutions += [
    ("%shared", shared),
    ("%source", site["source_dir"]),
    ("%build", site["build_dir"]),
    ("%python", site["python"]),
]


def imports(module):
    command = [site["python"], "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('%s') is None)" % module]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


if os.path.isdir(shared):
    config.available_features.add("shared-data")
for module in ["torch", "onnx", "PIL"]:
    if imports(module):
        config.available_features.add(module)
if os.path.exists(os.path.join(site["source_dir"], "build/torch-venv/bin/python")):
    config.available_features.add("newer-torch")
for environment in ["exporters", "finetuning", "peft", "tensorboard"]:
    if os.path.exists(os.path.join(site["source_dir"], f"build/{environment}-venv/bin/python")):
        config.available_features.add(environment)
if os.path.isdir("/usr/share/libonnx-testdata/data/node"):
    config.available_features.add("onnx-testdata")
if shutil.which("chromium"):
    config.available_features.add("chromium")
if shutil.which("mpirun"):
    config.available_features.add("mpirun")
if not runpy.run_path(os.path.join(site["source_dir"], "utils/experiments/hosts.py"))["missing"]():
    config.available_features.add("namespaces")
if "PDC_TEST_THOROUGH" in os.environ:
    config.available_features.add("thorough")
if "PDC_TEST_ROUNDS" in os.environ:
    config.available_features.add("long-runs")
if platform.machine() == "x86_64":
    config.available_features.add("x86_64")
if site["cuda"] not in ["", "OFF"]:
    config.available_features.add("nvcc")
else:
    lit_config.note("without nvcc and cuDNN nothing is compiled for CUDA")
if site["sanitize"]:
    config.available_features.add("sanitizer")
