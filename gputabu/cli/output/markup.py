"""Self-contained HTML pages, without network access: elements, tables, pictures, whole documents."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Drawing = Callable[["Axes"], object]
#: The style sheet of all pages.
STYLE = Path(__file__).with_name("page.css")


class Markup(str):
    """Text that is HTML. All other text is escaped before it enters a page."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. Attributes and children that are not Markup are escaped (`class_` is `class`, "" is left out)."""
    escaped_attributes = {
        key.rstrip("_").replace("_", "-"): html.escape(str(value)) for key, value in attributes.items()
    }
    pairs = "".join(f' {key}="{value}"' for key, value in escaped_attributes.items() if value)
    content = "".join(child if isinstance(child, Markup) else escaped(str(child)) for child in children)
    return Markup(f"<{name}{pairs}>{content}" + ("" if name in ("img", "meta", "br") else f"</{name}>"))


def escaped(text: str) -> str:
    return html.escape(text).replace(" %", "&nbsp;%")  # no line break between a number and its unit


def document(title: str, *body: object) -> str:
    """A whole page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(STYLE.read_text(encoding="utf-8"))),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', tag('main', *body)), lang='en')}\n"


def facts(pairs: Mapping[str, object]) -> Markup:
    """A list of names and values."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs.items()))


def figures(drawings: Iterable[tuple[str, Drawing]]) -> Markup:
    """Pictures with captions, side by side if there is room."""
    drawn = (tag("figure", tag("img", src=svg(draw), alt=text), tag("figcaption", text)) for text, draw in drawings)
    return tag("div", *drawn, class_="figures")


def svg(draw: Drawing) -> str:
    """A picture as a data URL."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "gputabu", "font.size": 10, "legend.fontsize": 8.5, "savefig.dpi": 200}):
        figure = Figure(figsize=(4.8, 3.5), layout="constrained")
        ax = figure.subplots()
        draw(ax)
        ax.set_title("", loc="left")  # the caption has it
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def titles(first: str, *rest: str, style: str = "") -> Markup:
    """The title row of a table; `style` is the class of all columns except the first."""
    return tag("tr", tag("th", first, scope="col"), *(tag("th", name, scope="col", class_=style) for name in rest))


def row(first: object, *rest: object, **attributes: object) -> Markup:
    """A row of a table; `rest` are cells or their contents."""
    cells = (cell if isinstance(cell, Markup) and cell.startswith("<td") else tag("td", cell) for cell in rest)
    return tag("tr", tag("th", first, scope="row"), *cells, **attributes)


def number(text: str, label: str = "") -> Markup:
    """A cell with a number. Its label is shown if the page is too narrow for column titles."""
    return tag("td", text, class_="number", data_label=label)


def scrolling(label: str, head: Markup, rows: Iterable[Markup], **attributes: object) -> Markup:
    """A table that scrolls if the page is too narrow for it."""
    table = tag("table", tag("thead", head), tag("tbody", *rows), **attributes)
    return tag("div", table, class_="scroll", role="region", aria_label=label, tabindex=0)
