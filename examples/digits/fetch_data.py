#!/usr/bin/env python3
"""Writes the UCI handwritten digits as .npy folders for training and evaluation; standard library only.

The 1,797 images of 8x8 grey values (0 to 16) are those of scikit-learn's digits.csv.gz, which is taken out of Debian's
package python3-sklearn without installing it. The last 360 images are the test set; scaled to 0..1.

    fetch_data.py DIR [--csv digits.csv.gz]      writes DIR/{train,test}/{input,label}.npy
"""
import argparse
import gzip
import pathlib
import struct
import subprocess
import sys
import tempfile

PACKAGE = "python3-sklearn"
MEMBER = "./usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
IMAGES, TEST_IMAGES, SIDE, LARGEST = 1797, 360, 8, 16


def read_from_package():
    """The bytes of digits.csv.gz inside the package, downloaded to a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "-qq", "download", PACKAGE], cwd=folder, check=True, stderr=subprocess.DEVNULL)
        package = next(pathlib.Path(folder).glob(f"{PACKAGE}_*.deb"))
        tree = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE, check=True).stdout
        return subprocess.run(["tar", "-xO", MEMBER], input=tree, stdout=subprocess.PIPE, check=True).stdout


def parse(csv):
    """(pixels, label) of each line; pixels as fractions."""
    samples = []
    for line in csv.splitlines():
        *pixels, label = (int(float(field)) for field in line.split(","))
        if len(pixels) != SIDE * SIDE or not all(0 <= p <= LARGEST for p in pixels) or not 0 <= label <= 9:
            raise ValueError(f"line {len(samples) + 1} is not {SIDE * SIDE} pixels and a digit")
        samples.append(([p / LARGEST for p in pixels], label))
    if len(samples) != IMAGES:
        raise ValueError(f"{len(samples)} images, expected {IMAGES}")
    return samples


def write_npy(path, descr, shape, body):
    """Version 1.0 of NumPy's format: magic, length of the header, header padded to 64 bytes, row-major elements."""
    dims = "".join(f"{dim}, " for dim in shape)
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("ascii") + body)


def write_set(folder, samples):
    folder.mkdir(parents=True, exist_ok=True)
    pixels = [p for image, _ in samples for p in image]
    write_npy(folder / "input.npy", "<f4", (len(samples), 1, SIDE, SIDE), struct.pack(f"<{len(pixels)}f", *pixels))
    labels = [label for _, label in samples]
    write_npy(folder / "label.npy", "<i8", (len(labels),), struct.pack(f"<{len(labels)}q", *labels))
    print(f"{folder}: {len(samples)} images")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--csv", type=pathlib.Path, help="digits.csv.gz, where it is at hand")
    arguments = parser.parse_args()
    try:
        packed = arguments.csv.read_bytes() if arguments.csv else read_from_package()
        samples = parse(gzip.decompress(packed).decode("ascii"))
    except (OSError, ValueError, StopIteration, subprocess.CalledProcessError) as error:
        sys.exit(f"fetch_data.py: cannot get the digits: {error}\n"
                 f"help: 'apt-get download {PACKAGE}' must work, or give --csv=digits.csv.gz")
    write_set(arguments.dir / "train", samples[:-TEST_IMAGES])
    write_set(arguments.dir / "test", samples[-TEST_IMAGES:])


if __name__ == "__main__":
    main()
