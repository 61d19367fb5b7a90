#!/usr/bin/python3
"""hostile_names.py SOURCE BUILD WORK COUNT: models whose every string is one that a stranger may have chosen.

For each of COUNT models, every place where ONNX allows a string (and the name of the file) has another of 100 hostile ones. What
pdc generates from it must compile to the machine code of the model with plain names, its page must be inert, and its text form
must read back. With COUNT = 1 the folder is also built as pdc-run builds it, and trained for a step.
"""
import itertools
import os
import pathlib
import struct
import subprocess
import sys

import numpy
from onnx import TensorProto, helper, numpy_helper

source, build, work = map(pathlib.Path, sys.argv[1:4])
count = int(sys.argv[4])
tools = build / "bin"

HOSTILE = [
    '"', '\\', "'", '*/', '/*', '//', '\n', '\r\n', '\t', '??/', '??=', '\\\n', '$()', '$(touch pwned)', '`touch pwned`', '${HOME}',
    '; rm -rf .', '| cat', '&& touch pwned', '> pwned', '</script>', '<script>alert(1)</script>', '<img src=x onerror=alert(1)>',
    '<!--', '-->', ']]>', '&lt;', '&#0;', '" onload="x', "' onload='x", '</style>', '</title>', '%s%n%x', '%d', '{}', '{0}', '$name$',
    '@OUT@', '#include "/etc/passwd"', '#error', 'R"(', ')"', 'R"x(', '_Pragma("x")', '__FILE__', 'int', 'class', 'main', 'stage', 'base',
    'frame', 'forward', 'NULL', 'errno', 'View', 'template', '__cplusplus', 'operator new', 'std', 'pdcrt', 'a.b', 'a/b', 'a::b', 'a b',
    'a_b', 'A_B', '../../etc/passwd', '/etc/passwd', 'C:\\x', '..', '.', ' ', '  ', '-', '--help', '-o', '=', '[GENEX]',
    '$<CONFIG>', '$ENV{HOME}', ';', '"; system("x"); "', '1', '0x', '1e9', 'ä', '名前', '\u202e', '\u2028', '\u200b', '\ufeff', '😀', '\x7f', '\x1b[2J',
    '\x01', '\x08\x08', 'e\u0301', 'null', 'true', '__proto__', '\n#define float double\n', '*/ int x; /*', '\\u000a', '\\x22', '\\"',
]
HOSTILE = list(dict.fromkeys(HOSTILE))[:99] + ["L" * 1_000_000]
assert len(HOSTILE) == 100, len(HOSTILE)


class Names:
    """Strings for the places of one model: plain, or hostile ones, from the number `first` on."""

    def __init__(self, first=None):
        self.first, self.places, self.values = first, itertools.count(), set()

    def any(self):
        place = next(self.places)
        return f"plain{place}" if self.first is None else HOSTILE[(self.first + place) % len(HOSTILE)]

    def value(self):
        """Not one that the model has."""
        name = self.any()
        while name in self.values or not name:
            name += name[:1] or "x"
        self.values.add(name)
        return name


def make(names, folder):
    """Two layers, a function of the model's own, data in another file; what is computed does not depend on names."""
    x, y = names.value(), names.value()
    w1, b1, w2, s, b, m, v = (names.value() for _ in range(7))
    h, n, mean, var, r, t = (names.value() for _ in range(6))
    batch = names.any() or "batch"
    domain, function = "d" + names.any()[:50], names.any()
    rng = numpy.random.RandomState(1)

    def tensor(name, *shape):
        return numpy_helper.from_array(rng.rand(*shape).astype(numpy.float32), name)
    a, c = names.any(), names.any()
    c = c + "2" if c == a else c
    twice = helper.make_function(domain, function, [a], [c], [helper.make_node("Add", [a, a], [c], names.any())],
                                 [helper.make_opsetid("", 17)])
    twice.doc_string = names.any()
    nodes = [helper.make_node("Gemm", [x, w1, b1], [h], names.any()),
             helper.make_node("BatchNormalization", [h, s, b, m, v], [n, mean, var], names.any(), training_mode=1),
             helper.make_node("Relu", [n], [r], names.any()), helper.make_node(function, [r], [t], names.any(), domain=domain),
             helper.make_node("MatMul", [t, w2], [y], names.any())]
    initializers = [tensor(w1, 6, 16), tensor(b1, 16), tensor(w2, 16, 3), *(tensor(name, 16) for name in (s, b, m, v))]
    for message in (*nodes, *initializers):
        message.doc_string = names.any()
    for attribute in nodes[1].attribute:
        attribute.doc_string = names.any()
    location = (names.any().replace("/", "_").replace("\0", "_")[:100] or "data")
    location = f"data{location}" if names.first is not None else "data"
    data = initializers[0].raw_data
    (folder / location).write_bytes(data)
    initializers[0].ClearField("raw_data")
    initializers[0].data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "0", "length": str(len(data)), names.any(): names.any()}.items():
        if key not in ("location", "offset", "length") or value in (location, "0", str(len(data))):
            initializers[0].external_data.add(key=key, value=value)
    shape = helper.make_tensor_value_info(x, TensorProto.FLOAT, [batch, 6]), helper.make_tensor_value_info(y, TensorProto.FLOAT, [batch, 3])
    graph = helper.make_graph(nodes, names.any(), [shape[0]], [shape[1]], initializers, doc_string=names.any(),
                              value_info=[helper.make_tensor_value_info(h, TensorProto.FLOAT, [batch, 16])])
    for info in (*graph.input, *graph.output, *graph.value_info):
        info.doc_string = names.any()
    graph.input[0].type.tensor_type.shape.dim[0].denotation = names.any()
    graph.input[0].type.denotation = names.any()
    annotation = graph.quantization_annotation.add(tensor_name=h)
    annotation.quant_parameter_tensor_names.add(key=names.any(), value=names.any())
    model = helper.make_model(graph, producer_name=names.any(), functions=[twice], ir_version=8,
                              opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)])
    model.producer_version, model.domain, model.doc_string = names.any(), names.any(), names.any()
    model.metadata_props.add(key=names.any(), value=names.any())
    file = names.any().replace("/", "_").replace("\0", "_")[:60]
    path = folder / (f"m{file}.onnx" if names.first is not None else "m.onnx")
    path.write_bytes(model.SerializeToString())
    return path, x


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, **more)
    if done.returncode:
        sys.exit(f"{words[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-3000:]}")
    return done.stdout


def code_of(path):
    """Sections that are executed, and places and kinds of their relocations, of an ELF object."""
    data = path.read_bytes()
    table, = struct.unpack_from("<Q", data, 0x28)
    size, number, names = struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(number)]
    code = [data[s[4]:s[4] + s[5]] if s[1] == 1 and s[2] & 4 else None for s in sections]
    moves = [[struct.unpack_from("<QI", data, s[4] + 24 * i) for i in range(s[5] // 24)]
             for s in sections if s[1] == 4 and code[s[7]] is not None]
    return [section for section in code if section is not None], moves


def compile_model(names, folder):
    folder.mkdir(parents=True)
    model, data = make(names, folder)
    out = folder / "out"
    flags = ["--batch=4", "--profile=analytic", "--loss=mse", "--replicas=1,1"]
    run(tools / "pdc", model.name, "-o", "out", *flags, cwd=folder)
    text = folder / "ir"
    text.write_bytes(run(tools / "pdc", model.name, *flags, "--emit=ir", cwd=folder))
    if run(tools / "pdc-opt", text) != run(tools / "pdc-opt", "-", input=run(tools / "pdc-opt", text)):
        sys.exit("the text of the IR does not read back")
    objects = []
    for stage in range(2):
        run("g++", "-std=c++20", "-O1", "-ffp-contract=off", f"-I{source}/runtime/include", "-c",
            out / f"stage{stage}.cpp", "-o", folder / f"stage{stage}.o")
        objects.append(code_of(folder / f"stage{stage}.o"))
    return out, objects


os.environ["SOURCE_DATE_EPOCH"] = "0"
_, plain = compile_model(Names(), work / "plain")
for number in range(count):
    out, hostile = compile_model(Names(first=number * (1 if count > 1 else 7)), work / str(number))
    if hostile != plain:
        sys.exit(f"model {number}: other machine code than with plain names")
    run(sys.executable, source / "test/Report/Inputs/well_formed.py", out / "report.html")
    if count == 1:
        run(tools / "pdc-run", out, "--data=synthetic", "--steps=2")
    if list(work.rglob("pwned")):
        sys.exit("a name was executed")
print(f"{count} of {count} models: machine code of plain names, inert page, text that reads back")
