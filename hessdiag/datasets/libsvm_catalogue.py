"""The LIBSVM multi-class data sets by name: their files, and how many rows, features and classes LIBSVM counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hessdiag.errors import HessdiagError
from hessdiag.suggestions import did_you_mean

SITE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"


@dataclass(frozen=True)
class LibsvmEntry:
    """One data set.

    Attributes:
        file: the training part on the site.
        rows, features, classes: of the training part.
        stand_ins: names of other files that are read from a folder where `file` is missing, and how they differ.
    """

    file: str
    rows: int
    features: int
    classes: int
    stand_ins: Mapping[str, str] = field(default_factory=dict)


CATALOGUE: dict[str, LibsvmEntry] = {
    "aloi": LibsvmEntry("aloi.scale.bz2", 108_000, 128, 1_000),
    "cifar10": LibsvmEntry("cifar10.bz2", 50_000, 3_072, 10),
    "connect-4": LibsvmEntry("connect-4", 67_557, 126, 3),
    "covtype": LibsvmEntry(
        "covtype.scale.bz2", 581_012, 54, 7, {"covtype": "unscaled", "covtype.first20k": "the first rows, unscaled"}
    ),
    "dna": LibsvmEntry("dna.scale", 2_000, 180, 3),
    "glass": LibsvmEntry("glass.scale", 214, 9, 6),
    "iris": LibsvmEntry("iris.scale", 150, 4, 3),
    "letter": LibsvmEntry("letter.scale", 15_000, 16, 26),
    "mnist": LibsvmEntry("mnist.bz2", 60_000, 780, 10),
    "news20": LibsvmEntry(
        "news20.bz2", 15_935, 62_061, 20, {"news20.bydate": "another split and vocabulary of the same newsgroups"}
    ),
    "pendigits": LibsvmEntry("pendigits", 7_494, 16, 10),
    "poker": LibsvmEntry("poker.bz2", 25_010, 10, 10),
    "protein": LibsvmEntry("protein.bz2", 17_766, 357, 3),
    "satimage": LibsvmEntry("satimage.scale", 4_435, 36, 6),
    "segment": LibsvmEntry("segment.scale", 2_310, 19, 7),
    "sensorless": LibsvmEntry("Sensorless.scale", 58_509, 48, 11),
    "shuttle": LibsvmEntry("shuttle.scale", 43_500, 9, 7, {"shuttle": "unscaled"}),
    "smallnorb": LibsvmEntry("smallNORB.xz", 24_300, 18_432, 5),
    "svhn": LibsvmEntry("SVHN.xz", 73_257, 3_072, 10),
    "svmguide2": LibsvmEntry("svmguide2", 391, 20, 3),
    "svmguide4": LibsvmEntry("svmguide4", 300, 10, 6),
    "usps": LibsvmEntry("usps.bz2", 7_291, 256, 10, {"usps.unsmoothed": "the images before smoothing"}),
    "vehicle": LibsvmEntry("vehicle.scale", 846, 18, 4),
    "vowel": LibsvmEntry("vowel.scale", 528, 10, 11),
    "wine": LibsvmEntry("wine.scale", 178, 13, 3),
}


def find_entry(name: str) -> LibsvmEntry:
    """Return the data set of that name.

    Raises:
        HessdiagError: there is none.
    """
    if name not in CATALOGUE:
        names = ", ".join(CATALOGUE)
        raise HessdiagError(f"unknown data set {name!r}: {did_you_mean(name, CATALOGUE, otherwise=f'use {names}')}")
    return CATALOGUE[name]
