"""The report of `gputabu accept`: one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gputabu.cli.output.markup import Markup, document, facts, number, row, scrolling, tag, titles

BADGES = {"passed": "yes", "failed": "no", "skipped": "none"}


def acceptance_page(found: dict[str, Any]) -> str:
    """The page, of what acceptance.json has."""
    here = found["environment"]
    device = here["device"]
    title = f"gputabu on {device['name']}"
    told = {
        "gputabu": here["gputabu"],
        "CuPy": here["CuPy"],
        "CUDA": here["CUDA"],
        "compute capability": f"{device['compute_capability'][:-1]}.{device['compute_capability'][-1]}",
        "memory": f"{device['memory_free'] / 2**30:.1f} of {device['memory_total'] / 2**30:.1f} GiB free",
        "written": found["written"],
    }
    said = tag("p", tag("strong", found["verdict"]), class_="" if found["passed"] else "warning")
    old = [tag("p", text, class_="warning") for text in here["too old"]]
    return document(
        title,
        tag("header", tag("h1", title), said, *old, facts(told)),
        *_failures(found),
        tag("section", tag("h2", "Cases"), _counted(found), _cases(found)),
        tag("section", tag("h2", "Speed"), *_speed(found)),
        tag("section", tag("h2", "For a report of a fault"), *_environment(found)),
    )


def _failures(found: dict[str, Any]) -> Iterator[Markup]:
    failed = [case for case in found["cases"] if case["status"] == "failed"]
    if not failed:
        return
    told: list[object] = []
    for case in failed:
        told += [tag("h3", f"{case['group']}: {case['name']}"), tag("p", case["detail"])]
        told += [tag("pre", tag("code", case["traceback"]))] if case["traceback"] else []
    yield tag("section", tag("h2", "What failed"), *told)


def _counted(found: dict[str, Any]) -> Markup:
    counts = {status: sum(case["status"] == status for case in found["cases"]) for status in BADGES}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    text = f"{said}. Rows are those of the list of faults that were expected on a first device; the sweep tries shapes."
    return tag("p", text, class_="quiet")


def _cases(found: dict[str, Any]) -> Markup:
    rows = []
    for case in found["cases"]:
        badge = tag("td", tag("span", case["status"], class_=f"badge {BADGES[case['status']]}"))
        rows.append(row(case["group"], case["name"], badge, number(f"{case['seconds']:.1f} s"), case["detail"]))
    head = titles("group", "case", "result", "time", "what differs")
    return scrolling("Cases", head, rows, class_="sources cases")


def _speed(found: dict[str, Any]) -> Iterator[Markup]:
    yield tag(
        "p",
        "Milliseconds of an iteration, by CUDA's events: the median of differences between runs of 25 and of 5 "
        "iterations on the same float32 points in one process. A tabu iteration (QM-TS) is two passes over the points. "
        "Ratios are to gputabu K-Means; above 1 is slower.",
        class_="quiet",
    )
    yield tag("p", found["prediction"], class_="quiet")
    for shape in found["speed"]:
        rows = []
        for name, one in shape["times"].items():
            took = "" if one["ms"] is None else f"{one['ms']:.3f}"
            ratio = "" if one["ratio"] is None else f"{one['ratio']:.2f} ×"
            guess, off = one["predicted_ms"], ""
            if guess is not None and one["ms"] is not None:
                off = f"{one['ms'] / guess:.2f} ×"
            predicted = "" if guess is None else f"{guess:.3f}"
            rows.append(row(name, number(took), number(ratio), number(predicted), number(off), one["note"]))
        caption = f"N = {shape['n']:,}, d = {shape['d']}, K = {shape['k']}"
        yield tag("p", tag("strong", caption))
        head = titles("", "ms", "ratio", "predicted ms", "measured by predicted", "", style="number")
        yield scrolling(caption, head, rows)


def _environment(found: dict[str, Any]) -> Iterator[Markup]:
    here = dict(found["environment"])
    device = here.pop("device")
    here.pop("too old")
    pairs = {name: value for name, value in here.items() if not isinstance(value, dict)}
    pairs |= here["others"] | {"device": f"{device['name']}, number {device['number']}"}
    yield tag("p", "acceptance.json has all of this page and more; please send it. It names folders of this machine.")
    yield scrolling("Versions", titles("what", "version"), [row(name, value) for name, value in pairs.items()])
    variables = here["variables"] or {"none that matters": ""}
    yield scrolling("Variables", titles("variable", "value"), [row(name, value) for name, value in variables.items()])
    attributes = ((name, number(str(value))) for name, value in device["attributes"].items())
    yield tag("details", tag("summary", "Attributes of the device"),
              scrolling("Attributes", titles("attribute", "value"), [row(*pair) for pair in attributes]))  # fmt: skip
    yield tag("p", "To do it again:")
    yield tag("pre", tag("code", found["command"]))
