"""One architecture of sweep_networks/ with one setting of PyTorch's exporter: export, PyTorch's own step, and pdc's.

Run by sweep.py in a process of its own, in the environment of `utils/venv exporters`.
"""
import copy
import inspect
import json
import re
import shutil
import zlib

import numpy
import onnx
import torch
from safetensors.numpy import load_file
from torch import nn

from mapping import Mapping, told
from oracle import Differences, constants, forwards, relative
from outcome import Refused, diagnostics, run
from sweep_networks import NETWORKS

LEARNING, DECAY, EPS = 0.01, 0.1, 1e-4
# Of norms: the interpreter's gradients in f64, forwards and programs in f32.
GRADIENT, FORWARD, PROGRAM, DIFFERENCES = 1e-5, 1e-4, 1e-3, 2e-2
ROUNDING = 1e-6  # of a program's gradients, over the norm of all


class NotExported(Exception):
    pass


def built(name, exporter):
    torch.manual_seed(zlib.crc32(name.encode()))
    case = NETWORKS[name][1]()
    normalised = case.training and any(isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats
                                       for part in case.module.modules())
    # The newer exporter always writes BatchNorm for inference. Optimised, it is folded, and training goes on without
    # it; else --bn=batch brings back what the module in training mode does.
    if normalised and exporter == "default":
        case.training = False
    if normalised and exporter == "unoptimised":
        case.flags += ("--bn=batch",)
    case.module.train(case.training)
    if not case.fresh:  # as after a step of training: no two parameters are equal
        with torch.no_grad():
            for parameter in case.module.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)
    with torch.no_grad():
        shape = copy.deepcopy(case.module)(*case.inputs.values()).shape  # a forward changes running statistics
    if case.loss == "ce":
        axis = 1 if len(shape) == 4 else len(shape) - 1
        label = torch.randint(0, shape[axis], tuple(size for i, size in enumerate(shape) if i != axis))
    else:
        label = torch.randn(shape)
    return case, label


def loss_of(case, output, label):
    if case.loss == "mse":
        return torch.nn.functional.mse_loss(output, label)
    return torch.nn.functional.cross_entropy(output if output.dim() == 4 else output.flatten(0, -2), label if output.dim() == 4 else label.flatten())


def export(case, exporter, path):
    inputs, names = tuple(case.inputs.values()), list(case.inputs)
    more = {"input_names": names, "output_names": ["output"]}
    try:
        if exporter == "older":
            mode = torch.onnx.TrainingMode.TRAINING if case.training else torch.onnx.TrainingMode.EVAL
            axes = {"dynamic_axes": {key: {0: "batch"} for key in [*names, "output"]}} if case.dynamic else {}
            torch.onnx.export(case.module, inputs, path, dynamo=False, training=mode, do_constant_folding=not case.training, **axes, **more)
        else:
            shapes = {"dynamic_shapes": tuple({0: torch.export.Dim("batch")} for _ in names)} if case.dynamic else {}
            torch.onnx.export(case.module, inputs, path, dynamo=True, optimize=exporter == "default", verbose=False, **shapes, **more)
    except Exception as failure:  # whatever PyTorch raises
        cause = failure
        while cause.__cause__ or cause.__context__:
            cause = cause.__cause__ or cause.__context__
        lines = re.sub(r"\x1b\[[0-9;]*m", "", str(cause)).strip().splitlines()
        text = re.sub(r"\s*\[Caused by.*", "", lines[0]) if lines else ""  # with places of this machine
        raise NotExported(f"{type(cause).__name__}: {text}") from failure


def reference(case, label):
    """PyTorch in f64: loss, gradients, and the parameters before and after one step of AdamW. A parameter with several names
    has its first; `aliases` has all."""
    before = {name: value.detach().numpy().copy() for name, value in case.module.named_parameters()}
    names = {id(value): name for name, value in case.module.named_parameters()}
    aliases = {name: names[id(value)] for name, value in case.module.named_parameters(remove_duplicate=False)}
    module = case.module.double()
    torch.set_default_dtype(torch.float64)
    *inputs, label = [value.double() if value.is_floating_point() else value for value in (*case.inputs.values(), label)]
    learning = {name: value for name, value in module.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(learning.values(), lr=LEARNING, weight_decay=DECAY, eps=EPS)
    loss = loss_of(case, module(*inputs), label)
    loss.backward()
    gradients = {name: value.grad.numpy().copy() for name, value in learning.items() if value.grad is not None}
    optimizer.step()
    torch.set_default_dtype(torch.float32)
    return {"value": loss.item(), "aliases": {key: name for key, name in aliases.items() if name in gradients}}, \
        {"gradients": gradients, "before": {name: before[name] for name in gradients},
         "after": {name: learning[name].detach().numpy() for name in gradients}}


def stepped(before, gradient):
    """The first step of AdamW, as PyTorch defines it."""
    before = before.astype(numpy.float64)
    return before * (1 - LEARNING * DECAY) - LEARNING * gradient / (numpy.abs(gradient) + EPS)


def fingerprint(name, case, label):
    """Of what an export and its reference are made from."""
    sources = [repr(case.module), *map(inspect.getsource, (NETWORKS[name][1], built, loss_of, export, reference))]
    tensors = [*case.module.state_dict().values(), *case.inputs.values(), label]
    parts = [torch.__version__, repr(case.flags), *sources, *(tensor.detach().numpy().tobytes() for tensor in tensors)]
    return zlib.crc32(b"".join(part if isinstance(part, bytes) else part.encode() for part in parts))


def prepared(name, exporter, folder):
    """The exported model, its data and what PyTorch makes of them; kept from an earlier run."""
    kept = folder / "reference.json"
    case, label = built(name, exporter)
    version = fingerprint(name, case, label)
    found = json.loads(kept.read_text()) if kept.exists() else {}
    if found.get("version") != version or not (found["failure"] or (folder / "model.onnx").exists()):
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "data").mkdir(parents=True)
        found = {"version": version, "failure": None, "loss": case.loss, "batch": case.batch, "flags": case.flags}
        for key, value in {**case.inputs, "label" if case.loss == "ce" else "target": label}.items():
            numpy.save(folder / "data" / f"{key}.npy", value.numpy())
        try:
            export(case, exporter, str(folder / "model.onnx"))
            facts, arrays = reference(case, label)
            found.update(facts)
            for part, tensors in arrays.items():
                numpy.savez(folder / f"{part}.npz", **tensors)
        except NotExported as failure:
            found["failure"] = str(failure)
        kept.write_text(json.dumps(found))
    if found["failure"]:
        raise NotExported(found["failure"])
    for part in ("gradients", "before", "after"):
        found[part] = dict(numpy.load(folder / f"{part}.npz"))
    return found


# --- pdc ----------------------------------------------------------------------------------------------------------

def flags_of(found):
    loss = {"ce": "softmax-cross-entropy", "mse": "mse"}[found["loss"]]
    return [f"--batch={found['batch']}", f"--loss={loss}:output", *found["flags"]]


class Check:
    """What pdc makes of an exported model, beside what PyTorch and ONNX Runtime make of it."""

    def __init__(self, found, folder, binaries):
        self.found, self.folder, self.binaries = found, folder, binaries
        self.out = folder / "out"
        self.faults, self.row = [], {}

    def run(self, with_program):
        shutil.rmtree(self.out, ignore_errors=True)
        evaluate = [self.binaries / "pdc-eval", "model.onnx", "--inputs=data", "--outputs=out"]
        said = run(self.folder, *evaluate, "--gradients", "--precision=f64", *flags_of(self.found))
        run(self.folder, *evaluate, "--precision=f64", *(flag for flag in flags_of(self.found) if not flag.startswith(("--loss", "--bn"))))
        self.warnings = diagnostics(said, "warning") + diagnostics(said, "remark")
        self.model = onnx.load(self.folder / "model.onnx")
        self.values = constants(self.model)
        for node in self.model.graph.node:
            if node.op_type == "Identity" and node.input[0] in self.values:  # of merged parameters, which pdc parts again
                self.values[node.output[0]] = self.values[node.input[0]]
        self.gradients = load_file(self.out / "gradients.safetensors")
        self.mapping = Mapping(sorted(self.gradients), self.values, self.found["before"], self.found["aliases"])
        self.forward()
        self.step()
        self.differences()
        if with_program:
            self.program()
        return {"verdict": "silent" if self.faults else "told" if self.row["differences"] else "equal", "faults": self.faults,
                "parameters": len(self.found["before"]), "program": with_program, **self.row}

    def expect(self, holds, text):
        if not holds:
            self.faults.append(text)

    def feeds(self):
        names = [entry.name for entry in self.model.graph.input]
        return {path.stem: numpy.load(path) for path in (self.folder / "data").glob("*.npy") if path.stem in names}

    def forward(self):
        own = numpy.load(self.out / "output.npy")
        try:
            right, other = (outputs[0] for outputs in forwards(self.model, self.feeds()))
        except RuntimeError as failure:
            self.row["forward"] = f"ONNX Runtime refuses: {str(failure)[:200]}"
            return
        error = relative(own, right)
        self.row["forward"] = error
        self.expect(error <= max(FORWARD, 4 * relative(other, right)), f"forward: {error:.1e} from ONNX Runtime's")

    def step(self):
        """Loss, gradients and one update of what has a counterpart among the module's parameters."""
        found, mapping = self.found, self.mapping
        error = relative(float(numpy.load(self.out / "loss.npy")), found["value"])
        self.expect(error <= GRADIENT, f"loss: {error:.1e} from PyTorch's")
        gradients = mapping.to_parameters(self.gradients, found["before"])
        for key in list(mapping.merged):  # equal, but not in its place: its gradient is not in the sum
            name = mapping.parts[key][0][0]
            if relative(gradients[name], found["gradients"][name]) <= GRADIENT:
                mapping.missing += mapping.merged.pop(key)
        total = numpy.sqrt(sum(numpy.sum(value ** 2) for value in found["gradients"].values()))
        worst, worst_update = error, 0.0
        for name, gradient in gradients.items():
            right, before = found["gradients"][name], found["before"][name]
            if group := self.merged_with(name):
                right = right + sum(found["gradients"][other] for other in group)
                after = stepped(before, right)
            else:
                after = found["after"][name]
            error = numpy.linalg.norm(gradient - right) / max(numpy.linalg.norm(right), 1e-6 * total, 1e-30)
            if error > GRADIENT and mapping.extra and self.key_of(name) in self.values and told([name], self.warnings):
                mapping.shared.append(name)
                continue
            self.expect(error <= GRADIENT, f"gradient of {name}: {error:.1e} from PyTorch's")
            update = after - before
            change = stepped(before, gradient) - before
            moved = numpy.linalg.norm(change - update) / max(numpy.linalg.norm(update), 1e-6 * LEARNING * before.size ** 0.5)
            if name not in mapping.parted:
                self.expect(moved <= 10 * GRADIENT, f"update of {name}: {moved:.1e} from PyTorch's")
            worst, worst_update = max(worst, error), max(worst_update, moved)
        self.row.update(trained=len(self.gradients), gradient=worst, update=worst_update)

    def key_of(self, name):
        """The initializer that holds the whole of a parameter."""
        return next((key for key, parts in self.mapping.parts.items() if parts[0][0] == name), None)

    def merged_with(self, name):
        return [other for key, others in self.mapping.merged.items() if self.mapping.parts[key][0][0] == name for other in others]

    def differences(self):
        """What trains in another way than the module would; each must have been told, and its gradient be right."""
        mapping, found = self.mapping, {}
        others = sum(mapping.merged.values(), [])
        kinds = {"renamed": mapping.renamed, "merged": sorted(mapping.merged), "apart": mapping.parted, "left out": mapping.missing,
                 "in part": mapping.shared, "other": mapping.extra}
        for kind, names in kinds.items():
            if names:
                found[kind] = names
                related = others if kind == "merged" else [*mapping.missing, *mapping.extra] if mapping.extra and mapping.missing else []
                places = len(mapping.extra) if kind in ("left out", "other") else 0
                self.expect(told(names, self.warnings, related, places),
                            f"silent, {kind}: {', '.join(names[:5])}{' …' if len(names) > 5 else ''}")
        self.row["differences"] = {kind: len(names) for kind, names in found.items()}
        self.row["warnings"] = self.warnings
        stored = constants(self.model)  # not what pdc has parted from it
        names = [name for name in (*map(self.key_of, mapping.shared), *mapping.extra) if name in stored][:8]
        if not names or isinstance(self.row["forward"], str):
            return
        label = numpy.load(next(path for stem in ("label", "target") if (path := self.folder / "data" / f"{stem}.npy").exists()))
        loss = loss_in_numpy(self.found["loss"], label)
        differences, random = Differences(self.model, names, self.feeds(), loss), numpy.random.default_rng(0)
        total = max(numpy.linalg.norm(value) for value in self.gradients.values())
        for name in names:
            error, doubt, norm = differences.error(name, self.gradients[name], random)
            self.expect(error <= DIFFERENCES * max(norm, 1e-3 * total) + 4 * doubt,
                        f"gradient of {name}: {error:.1e} of {norm:.1e} from differences of ONNX Runtime's loss")

    def program(self):
        """The same step by a program, in f32."""
        optimizer = f"--optimizer=adamw,lr={LEARNING},weight_decay={DECAY},eps={EPS}"
        run(self.folder, self.binaries / "pdc", "--target=cpu", "model.onnx", "-o", "out/program", "--profile=analytic", optimizer, *flags_of(self.found))
        run(self.folder, self.binaries / "pdc-run", "out/program", "--threads", "--data=data", "--steps=1", "--shuffle=off",
            "--export-weights=out/trained")
        trained, total = {}, numpy.sqrt(sum(numpy.sum(value ** 2) for value in self.gradients.values()))
        rounding = ROUNDING * LEARNING / EPS * total  # of gradients that vanish, such as those of keys' biases
        for path in (self.out / "trained").glob("*.safetensors"):
            trained.update(load_file(path))
        for name in self.mapping.parts:
            before = self.values.get(name, self.found["before"].get(self.found["aliases"].get(name))).astype(numpy.float64)
            gradient = self.gradients[name]
            change, right = trained[name] - before, stepped(before, gradient) - before
            error = max(0.0, numpy.linalg.norm(change - right) - rounding) / max(numpy.linalg.norm(right), 1e-3 * LEARNING)
            self.row["program error"] = max(error, self.row.get("program error", 0.0))
            self.expect(error <= PROGRAM, f"program's update of {name}: {error:.1e} from that of the gradient")


def loss_in_numpy(kind, label):
    def mse(outputs):
        return float(numpy.mean((outputs[0].astype(numpy.float64) - label) ** 2))

    def cross_entropy(outputs):
        logits = outputs[0].astype(numpy.float64)
        logits = numpy.moveaxis(logits, 1, -1) if logits.ndim == 4 else logits
        logits = logits - logits.max(-1, keepdims=True)
        chosen = numpy.take_along_axis(logits, label[..., None], -1)[..., 0]
        return float(numpy.mean(numpy.log(numpy.exp(logits).sum(-1)) - chosen))
    return mse if kind == "mse" else cross_entropy


def checked(name, exporter, folder, binaries, with_program, flags=()):
    """The row of one case, as JSON has it."""
    try:
        found = prepared(name, exporter, folder)
    except NotExported as failure:
        return {"verdict": "not exported", "reason": str(failure)}
    if binaries is None:
        return {"verdict": "exported"}
    found["flags"] = [*found["flags"], *flags]
    try:
        return Check(found, folder, binaries).run(with_program)
    except Refused as refusal:
        errors = diagnostics(str(refusal), "error")
        return {"verdict": "refused", "errors": errors, "faults": [] if errors and errors[0][0] else ["refused without a reason"]}
