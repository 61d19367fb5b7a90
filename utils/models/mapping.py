"""Whether what a model trains are the parameters of the module that it was exported from, and whether pdc tells where not."""
import re

import numpy


class Mapping:
    """Which of the module's parameters the trained initializers hold: by name, else by value, also transposed or packed."""

    def __init__(self, trained, values, parameters, aliases):
        """`values`: of initializers; `aliases`: every name of each parameter, for those that a module has under several."""
        stored = values
        values = {name: value_of(name, stored, parameters, aliases) for name in trained}
        self.parts = {}  # initializer: [(parameter, places in it, places in the initializer)]
        self.renamed, self.merged, self.extra, self.parted = [], {}, [], []
        self.shared = []  # with what was computed from them and is trained in its place
        everything = slice(None)
        for name in trained:
            parameter = aliases.get(name)
            if parameter and numpy.array_equal(values[name], parameters[parameter]):
                self.parts[name] = [(parameter, everything, everything)]
        left = {name: value for name, value in parameters.items() if name not in self.covered()}
        for name in trained:
            if name in self.parts:
                continue
            meant = aliases.get(parted_for(name, stored))
            own = {meant: parameters[meant]} if meant else {}
            if found := held(values[name], own) or held(values[name], left) or held(values[name], parameters):
                self.parts[name] = found
                for parameter, _, _ in found:
                    left.pop(parameter, None)
                self.renamed.append(name)
            else:
                self.extra.append(name)
        covered = self.covered()
        self.parted = sorted(name for name in set(covered) if covered.count(name) > 1 and self.held_twice(name, parameters))
        self.missing = []
        for name in sorted(set(parameters) - set(covered)):
            same = [key for key in self.parts if numpy.array_equal(values[key], parameters[name])]
            if same:
                self.merged.setdefault(same[0], []).append(name)
            else:
                self.missing.append(name)

    def covered(self):
        return [parameter for parts in self.parts.values() for parameter, _, _ in parts]

    def held_twice(self, name, parameters):
        count = numpy.zeros(parameters[name].size)
        for parameter, places, _ in sum(self.parts.values(), []):
            if parameter == name:
                count[places] += 1
        return count.max() > 1

    def to_parameters(self, tensors, parameters):
        """What initializers have, for the module's parameters: sums where one is held twice."""
        found = {name: numpy.zeros(parameters[name].size) for name in self.covered()}
        for name, parts in self.parts.items():
            for parameter, places, own in parts:
                found[parameter][places] += tensors[name].reshape(-1)[own]
        return {name: value.reshape(parameters[name].shape) for name, value in found.items()}


def parted_for(name, stored):
    """The parameter for which pdc has parted what is stored in another form: "fc.weight" of "val_2.fc.weight"."""
    return next((name[len(key) + 1:] for key in stored if name.startswith(key + ".")), None) if name not in stored else None


def value_of(name, stored, parameters, aliases):
    """What the file stores for a trained initializer, also for one that pdc has parted again, whose name the file lacks."""
    if name in stored:
        return stored[name]
    if name in aliases:
        return parameters[aliases[name]]
    return next((value for key, value in stored.items() if name.startswith(key + ".")), numpy.zeros(0))


def held(value, parameters):
    """The parts of parameters whose numbers the initializer consists of; empty if it does not."""
    everything, flat = slice(None), value.reshape(-1)
    for name, parameter in parameters.items():
        if parameter.size == value.size and numpy.array_equal(parameter.reshape(-1), flat):
            return [(name, everything, everything)]
    for name, parameter in parameters.items():
        if parameter.ndim == 2 and parameter.size == value.size and numpy.array_equal(parameter.T.reshape(-1), flat):
            return [(name, numpy.arange(parameter.size).reshape(parameter.shape).T.reshape(-1), everything)]
    if value.size > 1 << 16 or not parameters:
        return []
    names, numbers = list(parameters), numpy.concatenate([entry.reshape(-1) for entry in parameters.values()])
    owners = numpy.repeat(numpy.arange(len(names)), [entry.size for entry in parameters.values()])
    places = numpy.concatenate([numpy.arange(entry.size) for entry in parameters.values()])
    order = numpy.argsort(numbers, kind="stable")
    at = order[numpy.minimum(numpy.searchsorted(numbers[order], flat), len(order) - 1)]
    if not numpy.array_equal(numbers[at], flat) or len(set(at)) < len(at):
        return []
    return [(names[owner], places[at[owners[at] == owner]], numpy.flatnonzero(owners[at] == owner))
            for owner in sorted(set(owners[at]))]


def told(names, warnings, related=(), places=0):
    """Whether warnings name all of these, or some of them, or of what they are related to, and how many more there are.
    `places`: of things that each stand for several of the names, so that as many may be counted."""
    texts = {" ".join([message, *more]).replace("[.]", ".").replace("\\", "") for message, more in warnings}
    naming = {text: {name for name in {*names, *related} if is_named(name, text)} for text in texts}
    named = set(names) & set().union(*naming.values())
    counts = {text: max(map(int, re.findall(r"(?<![\w'.])\d+(?![\w'.])", text)), default=0) for text in texts}
    more = sum(max(0, counts[text] - len(found & set(names))) for text, found in naming.items() if found)
    return len(named) + more >= (min(len(names), places) if places else len(names))


def is_named(name, text):
    return re.search(r"(?<![\w.])" + re.escape(name) + r"(?![\w.]*\w)", text) is not None
