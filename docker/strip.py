"""Delete from this Python what installs packages, for an image that stays as it was: `python strip.py --delete`."""

import importlib.util
import shutil
import sys
from importlib.metadata import distributions
from pathlib import Path

TOOLS = ("pip", "setuptools", "wheel", "ensurepip", "pkg_resources", "_distutils_hack")

if sys.argv[1:] != ["--delete"]:
    sys.exit(__doc__)
for name in TOOLS:
    spec = importlib.util.find_spec(name)
    for folder in () if spec is None else spec.submodule_search_locations or ():
        shutil.rmtree(folder)
for one in list(distributions()):
    if one.metadata["Name"] in TOOLS:
        shutil.rmtree(one._path)
for folder in {Path(sys.executable).parent, Path(sys.prefix) / "bin", Path("/usr/local/bin")}:
    for script in (*folder.glob("pip*"), *folder.glob("wheel")):
        script.unlink()
