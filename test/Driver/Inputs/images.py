"""images.py FOLDER: FOLDER/train with three classes of small images in four formats, and FOLDER/test with two of them.

A PPM file is written byte by byte: what is in its .npy is known exactly. images.py FOLDER check compares.
"""
import pathlib
import sys

import numpy
from PIL import Image

folder = pathlib.Path(sys.argv[1])
rng = numpy.random.default_rng(7)
pixels = rng.integers(256, size=(6, 10, 8, 3), dtype=numpy.uint8)


def ppm(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"P6 %d %d 255\n" % (values.shape[1], values.shape[0]) + values.tobytes())


def make():
    ppm(folder / "train/cat/b.ppm", pixels[1])
    ppm(folder / "train/cat/a.PPM", pixels[0])
    (folder / "train/dog/deeper").mkdir(parents=True)
    Image.fromarray(pixels[2]).save(folder / "train/dog/deeper/c.png")
    (folder / "train/dog/notes.txt").write_text("no image")
    (folder / "train/ant").mkdir()
    Image.fromarray(pixels[3]).save(folder / "train/ant/d.jpeg", quality=100, subsampling=0)
    Image.fromarray(pixels[4][:, :, 0]).save(folder / "train/ant/e.pgm")
    ppm(folder / "test/dog/f.ppm", pixels[5])


def check():
    images, labels = numpy.load(folder / "data/input.npy"), numpy.load(folder / "data/label.npy")
    assert labels.tolist() == [0, 0, 1, 1, 2] and labels.dtype == numpy.int64, labels
    mean, std = (numpy.float32(values).reshape(3, 1, 1) for values in ([0.5, 0.25, 0], [1, 2, 4]))

    def whole(i):
        return (pixels[i].transpose(2, 0, 1).astype(numpy.float32) / numpy.float32(255) - mean) / std
    assert images.dtype == numpy.float32 and images.shape == (5, 3, 10, 8) and images.flags.c_contiguous
    for place, number in ((2, 0), (3, 1), (4, 2)):
        assert (images[place] == whole(number)).all(), place
    assert abs(images[0] - whole(3)).max() < 0.1 and not (images[0] == whole(3)).all()  # JPEG loses a little
    gray = numpy.broadcast_to(pixels[4][:, :, 0].astype(numpy.float32) / numpy.float32(255), (3, 10, 8))
    assert (images[1] == (gray - mean) / std).all()
    test = numpy.load(folder / "test-data/x.npy")
    assert numpy.load(folder / "test-data/y.npy").tolist() == [2] and test.shape == (1, 1, 3, 3)
    # As torchvision: the shorter side of 10x8 becomes 5, the other one int(5 * 10 / 8), then the middle.
    resized = Image.fromarray(pixels[5]).convert("L").resize((5, 6), Image.BILINEAR).crop((1, 2, 4, 5))
    assert (test[0, 0] == numpy.asarray(resized).astype(numpy.float32) / numpy.float32(255)).all()
    print("pixels, labels and order are right")


check() if sys.argv[2:] else make()
