#!/usr/bin/python3
"""Makes a folder of .npy files, which pdc-run --data reads, from folders of images.

    pdc-images train/ -o train-data --resize=256 --crop=224 --mean=0.485,0.456,0.406 --std=0.229,0.224,0.225
    pdc-images val/ -o val-data --classes=train-data/classes.txt --resize=256 --crop=224 --mean=… --std=…

Each folder in train/ is a class; its images are PPM, PGM, PNG or JPEG files, also in folders below. OUT gets

    input.npy    f32[images, channels, height, width]: (value / 255 - MEAN) / STD
    label.npy    i64[images]: the number of the class
    classes.txt  the names of the classes, one a line; the first one is number 0

Classes, and the images of a class, come in the order of their names, so the same folder gives the same files. An image
is resized (bilinear), then cropped, as torchvision's Resize and CenterCrop do it.

Needs NumPy and Pillow (Debian: python3-numpy, python3-pil). Exit codes: 0 done, 2 a wrong flag, 65 an image or a folder
that cannot be used, 74 files that cannot be written.
"""
import argparse
import os
import pathlib
import re
import sys

SUFFIXES = {".ppm", ".pgm", ".png", ".jpg", ".jpeg"}
USAGE, BAD_DATA, CANNOT_WRITE = 2, 65, 74
SHOWN = 10  # errors of one kind


class Failed(Exception):
    def __init__(self, code, message, remedy=None):
        super().__init__(message)
        self.code, self.remedy = code, remedy


class Unusable(Exception):
    """An image, and why."""


def numbers(text):
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number, or one per channel with commas between") from None


def size(text):
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)?", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a size: give N, or HEIGHTxWIDTH")
    return [int(word) for word in text.split("x")]


def flags():
    parser = argparse.ArgumentParser(prog="pdc-images", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", type=pathlib.Path, help="a folder of images for each class")
    parser.add_argument("-o", dest="out", metavar="OUT", type=pathlib.Path, required=True, help="folder to write")
    parser.add_argument("--resize", metavar="N|HxW", type=size, help="the shorter side becomes N, or the image HxW")
    parser.add_argument("--crop", metavar="N|HxW", type=size, help="then its centre is taken")
    parser.add_argument("--gray", action="store_true", help="one channel instead of red, green and blue")
    parser.add_argument("--mean", metavar="LIST", type=numbers, default=[0.0], help="of each channel, 0 to 1 (0)")
    parser.add_argument("--std", metavar="LIST", type=numbers, default=[1.0], help="of each channel (1)")
    parser.add_argument("--classes", metavar="F.txt", type=pathlib.Path, help="number the classes as in this file")
    parser.add_argument("--input", metavar="NAME", default="input", help="the model's input (input)")
    parser.add_argument("--label", metavar="NAME", default="label", help="the model's label (label)")
    options = parser.parse_args()
    channels = 1 if options.gray else 3
    for flag, values in (("--mean", options.mean), ("--std", options.std)):
        if len(values) not in (1, channels):
            parser.error(f"{flag} has {len(values)} numbers, give one or {channels}: as many as there are channels")
    if not all(value > 0 for value in options.std):
        parser.error("--std must be positive")
    for flag, name in (("--input", options.input), ("--label", options.label)):
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name):
            parser.error(f"{flag}: '{name}' is not a file's name; README.txt of pdc's folder lists the names")
    return options


def classes_of(options):
    if not options.folder.is_dir():
        raise Failed(BAD_DATA, f"{options.folder}: is not a folder", "give a folder that has a folder for each class")
    found = sorted(entry.name for entry in options.folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    if not found:
        raise Failed(BAD_DATA, f"{options.folder}: has no folders",
                     "put the images of each class in a folder of its own")
    if not options.classes:
        return found
    try:
        known = options.classes.read_text().splitlines()
    except OSError as error:
        raise Failed(BAD_DATA, f"{options.classes}: cannot be read: {error.strerror}",
                     "name the classes.txt of the training data") from None
    for name in found:
        if name not in known:
            raise Failed(BAD_DATA,
                         f"{options.folder / name}: is not among the {len(known)} classes of {options.classes}",
                         "rename the folder, or leave out --classes to number these classes by themselves")
    return known


def images_of(folder, classes):
    """Paths and their classes' numbers, in order."""
    images = []
    for number, name in enumerate(classes):
        paths = (path for path in (folder / name).rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
        images += [(path, number) for path in sorted(paths)]
    if not images:
        raise Failed(BAD_DATA, f"{folder}: has no images", f"their names must end in {', '.join(sorted(SUFFIXES))}")
    return images


def resized(image, wanted):
    from PIL import Image
    width, height = image.size
    if len(wanted) == 2:
        target = (wanted[1], wanted[0])
    elif width <= height:
        target = (wanted[0], int(wanted[0] * height / width))
    else:
        target = (int(wanted[0] * width / height), wanted[0])
    return image if target == image.size else image.resize(target, Image.BILINEAR)


def cropped(image, wanted):
    height, width = wanted if len(wanted) == 2 else wanted * 2
    if width > image.width or height > image.height:
        raise Unusable(f"has {image.height}x{image.width} pixels, --crop={height}x{width} takes more")
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))


def load(path, options):
    """uint8[channels, height, width]"""
    import numpy
    from PIL import Image
    try:
        with Image.open(path) as image:
            if image.mode[0] in "IF":  # conversion to 8 bits would cut values off
                raise Unusable("has more than 8 bits per channel")
            image = image.convert("L" if options.gray else "RGB")
    except Unusable:
        raise
    except Exception as error:  # decoders raise many kinds
        raise Unusable(f"cannot be read: {error}") from None
    if options.resize:
        image = resized(image, options.resize)
    if options.crop:
        image = cropped(image, options.crop)
    values = numpy.asarray(image)
    return values[numpy.newaxis] if options.gray else values.transpose(2, 0, 1)


def write(images, classes, options):
    """Under other names first: what is there under its own name is complete."""
    import numpy
    channels = 1 if options.gray else 3
    mean, std = (numpy.broadcast_to(numpy.float32(values), (channels,)).reshape(channels, 1, 1)
                 for values in (options.mean, options.std))
    part, inputs, shape, unusable = options.out / f"{options.input}.npy.part", None, None, []
    try:
        for i, (path, _) in enumerate(images):
            try:
                values = load(path, options)
                if shape is None:
                    shape, first = values.shape, path
                    inputs = numpy.lib.format.open_memmap(part, "w+", numpy.float32, (len(images), *shape))
                if values.shape != shape:
                    raise Unusable(f"has {values.shape[1]}x{values.shape[2]} pixels, {first} has {shape[1]}x{shape[2]}")
                inputs[i] = (values.astype(numpy.float32) / numpy.float32(255) - mean) / std
            except Unusable as problem:
                unusable.append(f"{path}: {problem}")
        if unusable:
            more = f"\n… and {len(unusable) - SHOWN} more" if len(unusable) > SHOWN else ""
            raise Failed(BAD_DATA, "\n".join(unusable[:SHOWN]) + more,
                         "remove or replace these files; images of several sizes need --resize=HxW, or --resize=N "
                         "--crop=N")
        inputs.flush()
        numpy.save(options.out / f"{options.label}.npy", numpy.array([number for _, number in images], numpy.int64))
        (options.out / "classes.txt").write_text("".join(name + "\n" for name in classes))
        os.replace(part, options.out / f"{options.input}.npy")
    finally:
        part.unlink(missing_ok=True)
    return shape


def main():
    options = flags()
    try:
        try:
            import numpy  # noqa: F401
            import PIL  # noqa: F401
        except ModuleNotFoundError as error:
            raise Failed(USAGE, f"Python has no module '{error.name}'",
                         "apt-get install python3-numpy python3-pil") from None
        classes = classes_of(options)
        images = images_of(options.folder, classes)
        try:
            options.out.mkdir(parents=True, exist_ok=True)
            shape = write(images, classes, options)
        except OSError as error:
            raise Failed(CANNOT_WRITE,
                         f"{error.filename or options.out}: cannot be written: {error.strerror}") from None
    except Failed as failure:
        for line in str(failure).splitlines():
            print(line if line.startswith("…") else f"error: {line}", file=sys.stderr)
        if failure.remedy:
            print(f"help: {failure.remedy}", file=sys.stderr)
        sys.exit(failure.code)
    print(f"{len(images)} images of {len(classes)} classes")
    print(f"  {options.input}.npy  f32[{len(images)}, {', '.join(map(str, shape))}]")
    print(f"  {options.label}.npy  i64[{len(images)}]")


if __name__ == "__main__":
    main()
