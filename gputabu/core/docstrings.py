"""Docstrings with shared parts: a parameter that several functions take is described once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from textwrap import dedent, indent
from typing import Any, TypeVar

Documented = TypeVar("Documented", bound=Callable[..., Any])


def inserting(texts: Mapping[str, str]) -> Callable[[Documented], Documented]:
    """A decorator that replaces each line `%(name)s` of a docstring by texts[name], with the same indent."""

    def insert(documented: Documented) -> Documented:
        if documented.__doc__ is not None:  # it is None under python -OO
            documented.__doc__ = re.sub(
                r"^( *)%\((\w+)\)s$",
                lambda match: indent(dedent(texts[match[2]]).strip("\n"), match[1]),
                documented.__doc__,
                flags=re.MULTILINE,
            )
        return documented

    return insert
