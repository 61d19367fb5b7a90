"""hosts_train.py SOURCE BUILD WORK: what docs/TwoMachines.md tells, on two network namespaces."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

source, build, work = map(pathlib.Path, sys.argv[1:])
sys.path.insert(0, str(source / "utils/experiments"))
from hosts import Hosts  # noqa: E402

tools = build / "bin"
shutil.rmtree(work, ignore_errors=True)
work.mkdir(parents=True)


def run(*words, code=0, prefix=(), **more):
    done = subprocess.run([str(word) for word in (*prefix, *words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != code:
        sys.exit(f"{words[0]} ended with {done.returncode}: {done.stdout}")
    return done.stdout


def compile_to(folder, *flags):
    run(tools / "pdc", source / "examples/digits/digits.onnx", "-o", work / folder, "--batch=4", "--loss=softmax-cross-entropy",
        "--schedule=1f1b-flush", "--microbatches=2", "--profile=analytic", *flags)


def weights(folder):
    return [path.read_bytes() for path in sorted((work / folder).iterdir())]


compile_to("program", "--replicas=1,1")
train = ["--data=synthetic", "--steps=4", "--seed=3"]
run(tools / "pdc-run", work / "program", *train, "--export-weights", work / "one-host")
with Hosts(2) as hosts:
    subnet = "10.77.0.0/24"
    environment = {**os.environ, "OMPI_MCA_plm_rsh_agent": str(hosts.agent), "OMPI_MCA_btl": "tcp,self",
                   "OMPI_MCA_btl_tcp_if_include": subnet, "OMPI_MCA_oob_tcp_if_include": subnet}
    on_first = {"prefix": ("ip", "netns", "exec", hosts.names[0]), "env": environment}
    two, one = work / "two-slots", work / "one-slot"
    two.write_text("".join(f"{hosts.address(host)} slots=2\n" for host in range(2)))
    one.write_text("".join(f"{hosts.address(host)} slots=1\n" for host in range(2)))

    said = run(tools / "pdc-run", work / "program", "--doctor", "--hostfile", two, "--cluster", work / "cluster.json", **on_first)
    print("\n".join(said.splitlines()[-4:]))
    compile_to("planned", "--cluster", work / "cluster.json")
    levels = json.loads((work / "planned/plan.json").read_text())["cluster"]["levels"]
    print("planned for levels", ", ".join(level["name"] for level in levels))

    on_hosts = ["--hostfile", one, "--address", hosts.address(0)]
    run(tools / "pdc-run", work / "program", *train, *on_hosts, "--export-weights", work / "two-hosts", **on_first)
    same = weights("one-host") == weights("two-hosts")
    print("trained on both hosts: the bits of one host" if same else "other weights than on one host")

    # Without MPI: whoever starts them tells the ranks who they are. torchrun's port is its own, rank 0 listens on the next.
    for launcher, variables in (("PDC variables", {"PDC_MASTER": f"{hosts.address(0)}:29400", "PDC_WORLD_SIZE": "2"}),
                                ("torchrun's variables", {"MASTER_ADDR": hosts.address(0), "MASTER_PORT": "29500", "WORLD_SIZE": "2"})):
        exported = work / launcher.split()[0].lower().replace("'", "")
        name = "PDC_RANK" if "PDC_MASTER" in variables else "RANK"
        ranks = [subprocess.Popen(["ip", "netns", "exec", hosts.names[rank], work / "program/out/pipeline", *train,
                                   "--export-weights", exported], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={**os.environ, **variables, name: str(rank)}) for rank in range(2)]
        said = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            sys.exit(f"{launcher}: ended with {[rank.returncode for rank in ranks]}: {said}")
        same = weights("one-host") == weights(exported.name)
        print(f"started by {launcher}:", "the bits of one host" if same else "other weights than on one host")

    # One of the programs is replaced by another build of itself: the build is a word in it.
    apart = work / "apart"
    run("cmake", "-S", work / "program", "-B", apart, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build}", "-DCMAKE_CXX_FLAGS=-g0")
    run("cmake", "--build", apart, "--target", "stage1")
    script = work / "start"
    script.write_text(f"#!/bin/sh\nexec {apart}/stage1 \"$@\"\n")
    script.chmod(0o755)
    shutil.copy(script, work / "program/out/stage1")
    print(run(tools / "pdc-run", work / "program", *train, *on_hosts, code=1, **on_first))
