"""Kernel sources as they are handed to CuPy, and the PTX that NVRTC makes of them: what can be seen without a GPU."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path.name for path in (ROOT / "kernels").glob("*.cu"))
NVRTC = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cuda_nvrtc")
needs_nvrtc = pytest.mark.skipif(not NVRTC, reason="NVRTC is not installed: pip install 'gputabu[kernels]'")

# ---- text


def sources(**environment: str) -> dict[str, str]:
    """All sources, read by a process with this environment; reading in the encoding of the locale is an error."""
    text = (
        "import json, sys; from gputabu.backend.cuda import sources; "
        "sys.stdout.buffer.write(json.dumps({file: sources.source(file) for file in sys.argv[1:]}).encode())"
    )
    options = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning:gputabu"]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *options, "-c", text, *FILES],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": path} | environment,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "environment",
    [{}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=["this locale", "C"],
)
def test_row_12_sources_are_read_in_any_locale_and_are_ascii(environment):
    found = sources(**environment)
    assert set(found) == set(FILES)
    for text in found.values():
        assert text.isascii()
        assert text.encode("cp1252").decode("ascii") == text  # what CuPy's file has on Windows


def test_row_12_sources_are_read_where_the_locale_is_that_of_windows(monkeypatch):
    """Files are opened as if cp1252 were the default."""
    from gputabu.backend.cuda import sources as module

    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, encoding=None, **more: read(path, encoding or "cp1252", **more))
    module.source.cache_clear()
    try:
        assert all(module.source(file).isascii() for file in FILES)
    finally:
        module.source.cache_clear()


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").glob("*.cu*")), ids=lambda path: path.name)
def test_row_12_only_comments_have_other_characters(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        assert line.split("//")[0].isascii(), f"{path.name}, line {number}"


def test_row_12_lines_keep_their_numbers():
    """A compiler's message names the file and the line as they are on disk."""
    from gputabu.backend.cuda.sources import source

    file, number, checked = "", 0, 0
    for line in source("block_search.cu").splitlines():
        if mark := re.fullmatch(r'#line (\d+) "(.+)"', line):
            number, file = int(mark[1]), mark[2]
            continue
        there = (ROOT / "kernels" / file).read_text(encoding="utf-8").splitlines()[number - 1]
        assert line == "" or (len(line) == len(there) and line.split("//")[0] == there.split("//")[0])
        number, checked = number + 1, checked + 1
    assert checked > 400


# ---- PTX

#: Kernels that may fuse a product and a sum in float64: fast distances, whose error is bounded, and their centres.
#: In everything else the order and the rounding of every operation are those of the NumPy twin. The survey fuses what
#: rounds once anyway, as its factors are powers of two.
FUSED = {
    "float": {
        "fast_centers",
        "half_centers",
        "step",
        "neighbours_step",
        "lloyd_step",
        "block_search",
        "survey",
        "reassign",
        "swap_gains",
    },
    "double": {
        "survey",
        "fast_centers",
        "half_centers",
        "step",
        "neighbours_step",
        "lloyd_step",
        "block_search",
        "assign",
        "assign_resident",
        "assign_tiled",
        "nearest_two",
        "reassign",
        "swap_gains",
    },
}


@functools.cache
def ptx() -> dict[str, str]:
    """Every kernel in every form, by "type, file, defines": the PTX. In a process of its own, as hostcuda is CuPy."""
    text = """
import sys
sys.path[:0] = [{hostcuda!r}, {benchmarks!r}, {root!r}]
import json
from nvrtc import Nvrtc, REALS
from gputabu.backend.cuda import diagnosis
from gputabu.backend.cuda.launch import options
from gputabu.backend.cuda.sources import source
nvrtc = Nvrtc()
more = ["-ftz=true", "-arch=compute_80"]
print(json.dumps({{
    f"{{real}}, {{file}}, {{defines}}": nvrtc.ptx_of(source(file), file, [*options(dtype, defines), *more])
    for file, defines in diagnosis.variants((4, 32)) for real, dtype in REALS.items()
}}))"""
    folders = {"hostcuda": ROOT / "tests" / "hostcuda", "benchmarks": ROOT / "benchmarks", "root": ROOT}
    command = [sys.executable, "-c", text.format(**{name: str(path) for name, path in folders.items()})]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def entries(text: str) -> dict[str, str]:
    """The body of every kernel, with what it calls: functions that are not inlined belong to all."""
    functions = dict(re.findall(r"^\.func\s+(?:\([^)]*\)\s+)?(\w+)\(.*?^\{(.*?)^\}", text, re.MULTILINE | re.DOTALL))
    bodies = dict(re.findall(r"\.entry (\w+)\(.*?^\{(.*?)^\}", text, re.MULTILINE | re.DOTALL))

    def whole(body: str) -> str:
        called = {name for name in functions if re.search(rf"\b{name}\b", body)}
        return body + "".join(functions[name] for name in called)

    return {name: whole(body) for name, body in bodies.items()}


@needs_nvrtc
def test_float64_is_fused_in_fast_distances_alone():
    seen: dict[str, set[str]] = {"float": set(), "double": set()}
    for form, text in ptx().items():
        for kernel, body in entries(text).items():
            if "fma.rn.f64" in body:
                seen[form.split(",")[0]].add(kernel)
    assert seen == FUSED


def roots(body: str) -> tuple[set[str], set[str]]:
    """Parameters from which a kernel loads through the cache that is not coherent, and those that it stores to.

    Addresses are followed back through registers to the parameters that they are made of.
    """
    made: dict[str, set[str]] = {}
    definitions = re.findall(r"^\s*(?:@!?%p\d+ )?([a-z][\w.]*)\s+(%rd\d+),\s*([^;]+);", body, re.MULTILINE)
    for _ in range(len(definitions)):  # until nothing changes: loops go back
        before = {register: set(found) for register, found in made.items()}
        for operation, register, operands in definitions:
            if operation.startswith("ld.param"):
                found = set(re.findall(r"\[(\w+(?:\+\d+)?)\]", operands))
            elif operation.startswith("ld."):
                continue  # a number from memory; structs with pointers are parameters
            else:
                found = set().union(*(made.get(name, set()) for name in re.findall(r"%rd\d+", operands)))
            made.setdefault(register, set()).update(found)
        if made == before:
            break
    loads = re.findall(r"ld\.global\.nc[\w.]*\s+[^\[]*\[(%rd\d+)", body)
    stores = re.findall(r"(?:st|atom|red)\.(?:volatile\.|relaxed\.|gpu\.)*global[\w.]*\s+[^\[]*\[(%rd\d+)", body)
    return tuple(set().union(*(made.get(name, set()) for name in names)) for names in (loads, stores))  # type: ignore


@needs_nvrtc
def test_nothing_that_a_kernel_stores_is_read_through_the_cache_that_is_not_coherent():
    looked = 0
    for form, text in ptx().items():
        for kernel, body in entries(text).items():
            loads, stores = roots(body)
            looked += bool(loads and stores)
            numbers = {name for name in loads & stores if is_pointer(form, kernel, name)}
            assert not numbers, f"{kernel} ({form})"
    assert looked > 20


def is_pointer(form: str, kernel: str, name: str) -> bool:
    """Whether a parameter of the PTX, `kernel_param_3+16`, is an array: sizes are in addresses as well."""
    from gputabu.backend.cuda.sources import layout, signatures, structs

    file = form.split(", ")[1]
    number, _, offset = name.removeprefix(f"{kernel}_param_").partition("+")
    parameter = signatures(file)[kernel][int(number)]
    if parameter.kind not in structs(file):
        return parameter.pointer
    import numpy as np

    struct = structs(file)[parameter.kind]
    places = layout(struct, np.dtype(np.float32)).fields
    assert places is not None
    return any(field.pointer and places[field.name][1] == int(offset or 0) for field in struct.fields)


def test_a_planted_load_is_seen():
    body = """
    ld.param.u64 %rd1, [k_param_0];
    cvta.to.global.u64 %rd2, %rd1;
    add.s64 %rd3, %rd2, 8;
    ld.global.nc.f32 %f1, [%rd3];
    ld.param.u64 %rd4, [k_param_1+16];
    st.global.f32 [%rd4+4], %f1;
    red.global.add.u64 [%rd2], %rd9;
    """
    assert roots(body) == ({"k_param_0"}, {"k_param_0", "k_param_1+16"})
