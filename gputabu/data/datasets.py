"""Data sets of the clustering literature, found on this machine or downloaded, and verified by their values.

No data set is part of the package. It is looked for in `data_home`, in the folder named by the environment variable
GPUTABU_DATA, and in the user's cache. Iris comes with scikit-learn. Anything else is downloaded from its origin with
pooch (the extra `gputabu[data]`). The file may be the original (`bavaria1.txt`, `Cloud.zip`, `a3.data.gz`) or plain
numbers (`bavaria1.csv`, `cloud.csv`, `a3.csv`).

Origins differ in format: archives, a first line with N and d, a last column with classes. So the checksum is not of the
file but of its content: SHA-256 of the shape and of the (N, d) float64 values, little-endian, row by row. A file in any
format either has exactly these values or is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gputabu.core.validation import check_choice

#: Preprocessing of the points: none, or z-scores of every feature with N − 1, as MATLAB's `zscore`.
PREPROCESSINGS = ("raw", "zscore")


class DataUnavailable(RuntimeError):
    """A data set is neither here nor can be downloaded, or the file in its place has other values."""


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A loaded data set.

    Attributes
    ----------
    name : str
    points : (N, d) float64
    labels : (N,) int64 or None
        Known classes of the points; None if there are none.
    ks : tuple of int
        Numbers of clusters used in the literature.
    best_known : dict of int to float
        The lowest J known for a number of clusters, with this preprocessing; empty if none is known.
    origin : str
        Where the values come from.
    terms : str
        Licence or terms, as stated at the origin.
    preprocessing : {"raw", "zscore"}
        How the values were preprocessed.
    """

    name: str
    points: np.ndarray
    labels: np.ndarray | None
    ks: tuple[int, ...]
    best_known: Mapping[int, float]
    origin: str
    terms: str
    preprocessing: str


@dataclass(frozen=True, slots=True)
class Source:
    """What is known about a data set before it is loaded."""

    shape: tuple[int, int]  # (N, d)
    url: str
    terms: str
    digest: str  # of the values, see `digest`
    best_known: Mapping[int, float]
    preprocessing: str = "raw"  # of the points that `best_known` refers to
    classes: Mapping[int, int] = field(default_factory=dict)  # class: number of rows, in the order of the rows

    @property
    def file(self) -> str:
        """Name of the file at the origin."""
        return self.url.rsplit("/", 1)[1]


def load(name: str, data_home: str | os.PathLike[str] | None = None, preprocessing: str = "raw") -> Dataset:
    """Load a data set by name; download it if it is not on this machine.

    Parameters
    ----------
    name : str
        One of `gputabu.datasets.SOURCES`.
    data_home : path, optional
        A folder to look in first, and to download into; the default is the user's cache.
    preprocessing : {"raw", "zscore"}
        "raw" gives the values as they are. "zscore" subtracts the mean of every feature and divides by its standard
        deviation with N − 1; the paper's "normalized Cloud" is `load("cloud", preprocessing="zscore")`.

    Returns
    -------
    Dataset

    Raises
    ------
    DataUnavailable
        If the data set is neither here nor can be downloaded, or a file in its place holds other values.

    Examples
    --------
    >>> from gputabu import datasets
    >>> iris = datasets.load("iris")
    >>> iris.points.shape, iris.best_known
    ((150, 4), {3: 78.85144142614601})
    """
    source = SOURCES[check_choice("name", name, SOURCES)]
    check_choice("preprocessing", preprocessing, PREPROCESSINGS)
    path = find(name, data_home)
    if path is not None:
        X = read(name, path)
    elif name == "iris":
        X = _from_sklearn()
    else:
        X = read(name, download(name, cache_folder() if data_home is None else Path(data_home).expanduser()))
    return Dataset(
        name,
        X if preprocessing == "raw" else zscore(X),
        np.repeat(list(source.classes), list(source.classes.values())) if source.classes else None,
        tuple(source.best_known),
        dict(source.best_known) if preprocessing == source.preprocessing else {},
        source.url,
        source.terms,
        preprocessing,
    )


def zscore(X: np.ndarray) -> np.ndarray:
    """Every feature with mean 0 and standard deviation 1 (with N − 1); a constant one becomes 0."""
    spread = X.std(axis=0, ddof=1)
    return (X - X.mean(axis=0)) / np.where(spread == 0, 1, spread)


def folders(data_home: str | os.PathLike[str] | None = None) -> list[Path]:
    """Where data sets are looked for, in this order."""
    candidates = [data_home, os.environ.get("GPUTABU_DATA")]
    return [*(Path(folder).expanduser() for folder in candidates if folder), cache_folder()]


def cache_folder() -> Path:
    """The user's cache, where downloads go."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gputabu"


def find(name: str, data_home: str | os.PathLike[str] | None = None) -> Path | None:
    """The file that holds the data set on this machine, or None."""
    names = (f"{name}.csv", SOURCES[name].file)
    return next((path for folder in folders(data_home) for path in map(folder.joinpath, names) if path.is_file()), None)


def read(name: str, path: Path) -> np.ndarray:
    """The (N, d) values in a file of any format, if they are those of the data set."""
    remedy = f"; remove it, or put {SOURCES[name].url} there"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read: {error}{remedy}.") from error
    return _verified(name, content, str(path), remedy)


def _verified(name: str, content: bytes, place: str, remedy: str = "") -> np.ndarray:
    """The values in the content of a file; raise if they are not those of the data set."""
    source = SOURCES[name]
    try:
        X = _table(_decompressed(content), *source.shape)
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataUnavailable(f"{place} is not the data set {name!r}: {error}{remedy}.") from error
    if digest(X) != source.digest:
        shape, expected = (f"{n} × {d}" for n, d in (X.shape, source.shape))
        difference = "other values" if shape == expected else f"{shape} numbers, not {expected}"
        raise DataUnavailable(f"{place} is not the data set {name!r}: it holds {difference}{remedy}.")
    return X


def digest(X: np.ndarray) -> str:
    """SHA-256 of the shape and the values, which identifies a data set."""
    values = np.ascontiguousarray(X + 0.0, dtype="<f8")  # + 0.0: no minus zero
    return hashlib.sha256(b"%d %d " % X.shape + values.tobytes()).hexdigest()


def download(name: str, folder: Path) -> Path:
    """Download a data set from its origin into a folder; only a file with the right values is kept."""
    source = SOURCES[name]
    searched = ", ".join(str(place) for place in dict.fromkeys([folder, *folders()]))
    not_found = f"The data set {name!r} is not in {searched}"
    remedy = f"put {source.url} as {folder / source.file}"
    try:
        from pooch import HTTPDownloader
    except ImportError as error:
        message = f"{not_found} and pooch is not installed: pip install 'gputabu[data]', or {remedy}."
        raise DataUnavailable(message) from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            path = Path(temporary) / source.file
            HTTPDownloader()(source.url, str(path), None)
            _verified(name, path.read_bytes(), source.url)
            return path.replace(folder / source.file)
    except OSError as error:  # from the network (requests' errors are OSErrors) or the disk
        reason = str(error) if len(str(error)) < 120 else type(error).__name__
        message = f"{not_found} and could not be downloaded ({reason}): {remedy}."
        raise DataUnavailable(message) from error


def _from_sklearn() -> np.ndarray:
    from sklearn.datasets import load_iris

    X = load_iris().data
    if digest(X) != SOURCES["iris"].digest:  # two versions of Iris are in circulation
        raise DataUnavailable("The Iris of this scikit-learn has other values; put iris.csv in GPUTABU_DATA.")
    return X


def _decompressed(content: bytes) -> str:
    """The text of a plain file, a compressed file, or an archive of one file."""
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    elif content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [name for name in archive.namelist() if not name.startswith("__MACOSX") and name[-1] != "/"]
            if len(members) != 1:
                raise ValueError(f"the archive holds {len(members)} files and should hold one")
            content = archive.read(members[0])
    return content.decode()


def _table(text: str, n: int, d: int) -> np.ndarray:
    """The numbers in a text, without a title line or a column of classes; the digest then verifies them."""
    lines = [line for line in text.replace(",", " ").splitlines() if line.strip()]
    if not lines:
        raise ValueError("it is empty")
    X = np.loadtxt(lines[len(lines) == n + 1 :], ndmin=2)
    return X[:, :d] if X.shape[1] == d + 1 else X


_GITHUB = "https://raw.githubusercontent.com/"
_HGMEANS = _GITHUB + "danielgribel/hg-means/3b4880fdbf22/data/"
_BREATHING = _GITHUB + "gittar/breathing-k-means/033eb98a09be/data/"
_SIPU = _GITHUB + "gagolews/clustering-data-v1/27ac73a6fd33/sipu/"
_GPL = "repository GPL-3.0; original UCI, Späth or TSPLIB"
_RESEARCH = "SIPU (Fränti and Sieranoja); research use"

# fmt: off
#: The data sets by name; `best_known` is J of the best partition known, in exact arithmetic.
SOURCES: Mapping[str, Source] = {
    "iris": Source(
        (150, 4), _HGMEANS + "iris.txt", _GPL,
        "a930bfa4bd4b3bfb45ce4bab38fd43e35ea56dfa84575ea579d518db679bf6f5", {3: 78.85144142614601},
        classes={0: 50, 1: 50, 2: 50}),  # setosa, versicolor, virginica
    "glass": Source(
        (214, 9), _GITHUB + "kingsley1989/global_kmeans/e9ab9bdbb50b/data/glass",
        "UCI Glass Identification; see UCI for its terms",
        "012a22bf011b96387ab08f12a876852ee32b2dbb3c6e84106e5c55d6063cd0a5", {6: 336.06053893723515},
        classes={1: 70, 2: 76, 3: 17, 5: 13, 6: 9, 7: 29}),  # UCI's types of glass; none is of type 4
    "bavaria1": Source(
        (89, 3), _HGMEANS + "bavaria1.txt", _GPL,
        "192b2ab3ef3022f8638aaaab8e37d1cdaab41a461d105d89b14577d5349d66d6",
        {4: 104474664100.71602, 5: 59761526720.52686}),
    "bavaria2": Source(
        (89, 4), _HGMEANS + "bavaria2.txt", _GPL,
        "6a9ecb7412300e41bf91acea4432e1d8325e725736141102d21013cf65f874ec", {5: 5342885919.21065}),
    "cloud": Source(
        (1024, 10), _BREATHING + "Cloud.zip", "UCI Cloud (P. Collard 1989); see UCI for its terms",
        "62e0023be89c7d74e86dda1da0cca00f05a0b77a7caf1873ccf71c8a4e875780",
        {10: 1503.01315035287, 25: 804.31067039004}, preprocessing="zscore"),
    "liver": Source(
        (345, 6), _HGMEANS + "liver.txt", _GPL,
        "f94e986137225b9bc4a7fb951067ad18569c038aeeb7befd95b1000d1ddb7be1",
        {10: 127416.5568335135, 50: 37534.278766033625}),
    "heart": Source(
        (297, 13), _HGMEANS + "heart.txt", _GPL,
        "7be33636344b176485061fa052deeef820a74e63a2e4b79473885e8f84aee889",
        {10: 200529.3860607988, 50: 54204.773138888835}),
    "breast": Source(
        (683, 9), _HGMEANS + "breast.txt", _GPL,
        "feaf86f27628a1c4832ac1a2349daded88b963ea76b728a73503bf21313421bf",
        {10: 10190.259667200913, 50: 4730.087344229262}),
    "tsplib1060": Source(
        (1060, 2), _HGMEANS + "tsplib1060.txt", _GPL,
        "cd481a22ce2b7d209a51876fa870dc4980b63707ed86797e6ebb9801c21e8bf8",
        {10: 1754840214.0600286, 50: 255509536.17151767}),
    "tsplib3038": Source(
        (3038, 2), _HGMEANS + "tsplib3038.txt", _GPL,
        "3a5b70c94f4b5620f3fa7841c1810a6b79955b721b12b6e6306a60a3789f6f7d",
        {10: 560251191.2542852, 50: 98252122.1292421}),
    "image": Source(
        (2310, 19), _HGMEANS + "image.txt", _GPL,
        "52e84038ebc89cb11fa99e4b2855ff70c40269788431698f07b712940be7dce3",
        {10: 9795192.238354707, 50: 2224337.195649666}),
    "letter": Source(
        (20000, 16), _HGMEANS + "letter.txt", _GPL,
        "a744d71ba8c4b2ef24e53c18aee900d2417cfa501d82d3528bbdfd833e4354dc", {50: 476020.2069974464}),
    "a3": Source(
        (7500, 2), _SIPU + "a3.data.gz", _RESEARCH,
        "5379ca5cefefe1ead080d1ca876b31c82123b2154d35712bf31ed815e4ffa234", {50: 28937415099.689598}),
    "s4": Source(
        (5000, 2), _SIPU + "s4.data.gz", _RESEARCH,
        "a2c88b41ac70d7bafcff117d96439b89e26bad9109baa7b85903ac2545b422cb", {15: 15703142236260.086}),
    "unbalance": Source(
        (6500, 2), _SIPU + "unbalance.data.gz", _RESEARCH,
        "dd9e541e3d6e5e981eb13c47ca8acdbfe65592ffe22fb24167ed70cfaef8a6e7", {8: 214492062847.68295}),
    "norm25": Source(
        (10000, 15), _BREATHING + "Norm25-new.zip", "repository MIT",
        "7972e7fe282f84dab32bf9312816172e290f552432985c9bcc21a101af71a984", {25: 149088.1220446697}),
}
# fmt: on
