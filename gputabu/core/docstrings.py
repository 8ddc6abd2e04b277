"""Docstrings with shared parts: a parameter that several functions take is described once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from textwrap import dedent, indent
from typing import Any, TypeVar

Documented = TypeVar("Documented", bound=Callable[..., Any])


def inserting(texts: Mapping[str, str]) -> Callable[[Documented], Documented]:
    """A decorator that replaces each line `%(name)s` of a docstring by texts[name], indented as that line was."""

    def insert(documented: Documented) -> Documented:
        if documented.__doc__ is not None:  # as under python -OO
            documented.__doc__ = re.sub(
                r"^( *)%\((\w+)\)s$",
                lambda found: indent(dedent(texts[found[2]]).strip("\n"), found[1]),
                documented.__doc__,
                flags=re.MULTILINE,
            )
        return documented

    return insert
