"""Does CuPy have what the stand-in offers? Compared with the real wheel, which imports without a driver."""

import importlib
import inspect
import json
import os
import subprocess
import sys

MODULES = [
    "", "cuda", "cuda.compiler", "cuda.device", "cuda.driver", "cuda.memory", "cuda.nvrtc", "cuda.runtime",
    "cuda.stream", "linalg",
]  # fmt: skip


def parameters(thing):
    """Names of the parameters: by inspection, or from the first line Cython puts into a docstring."""
    try:
        return list(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        line = (getattr(thing, "__doc__", None) or "").split("\n")[0]
        if "(" not in line:
            return None
        inside = line[line.index("(") + 1 : line.rindex(")")] if ")" in line else line[line.index("(") + 1 :]
        words = [part.split("=")[0].split() for part in inside.split(",")]
        return [word[-1].lstrip("*") for word in words if word]


def offered(package):
    """Every public name of the stand-in: {dotted name: names of its parameters, or None}."""
    found = {}
    for module in MODULES:
        for name in importlib.import_module(f"{package}.{module}".rstrip(".")).__all__:
            thing = getattr(importlib.import_module(f"{package}.{module}".rstrip(".")), name)
            dotted = f"{module}.{name}".lstrip(".")
            found[dotted] = None if inspect.ismodule(thing) or not callable(thing) else parameters(thing)
            for member in vars(thing) if inspect.isclass(thing) else ():
                if not member.startswith("_"):
                    value = getattr(thing, member)
                    found[f"{dotted}.{member}"] = parameters(value) if inspect.isfunction(value) else None
    return found


def real(names):
    """The same of the real CuPy, in another process; a string says why not."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "LD_PRELOAD")}
    if os.environ.get("GPUTABU_CUPY"):  # where a real CuPy lies that nothing else should find
        environment["PYTHONPATH"] = os.environ["GPUTABU_CUPY"]
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(names),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip().split("\n")[-1]


def differences(package):
    """Sentences about names and parameters that CuPy does not have; or a string: why nothing was compared."""
    ours = offered(package)
    theirs = real(list(ours))
    if isinstance(theirs, str):
        return theirs
    wrong = [f"CuPy has no {name}" for name in ours if name not in theirs]
    for name, names in ours.items():
        known = theirs.get(name)
        if names and known and not {"args", "kwargs"} & set(known):
            wrong += [
                f"CuPy's {name} has no parameter {p}" for p in names if p not in {*known, "self", "args", "kwargs"}
            ]
    return wrong


if __name__ == "__main__":
    sys.path = [path for path in sys.path if os.path.abspath(path) != os.path.dirname(os.path.abspath(__file__))]
    import cupy

    result = {}
    for name in json.load(sys.stdin):
        thing, missing = cupy, object()
        for part in name.split("."):
            thing = getattr(thing, part, missing)
        if thing is not missing:
            result[name] = parameters(thing) if callable(thing) else None
    json.dump(result, sys.stdout)
