"""Files that replace others whole: whoever looks sees the old file or the new."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def reason(error: BaseException) -> str:
    """What an error says, on one line and without a full stop."""
    text = str(getattr(error, "strerror", None) or error) or type(error).__name__
    return " ".join(text.split())[:300].rstrip(".")


def aside_of(path: Path) -> Path:
    """Another name in the same folder, nobody else's, with the same ending."""
    return path.with_name(f".{os.getpid()}.{threading.get_ident()}.{path.name}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` in the end: whoever looks, at any time, sees the old file or the new."""
    if path.exists() and not path.is_file():  # such as a device, which would be gone
        raise ValueError(f"{path} is not a regular file, and only such a one is replaced.")
    path = path.resolve()  # a link stays one
    aside = aside_of(path)
    try:
        yield aside
        aside.replace(path)
    except OSError as error:
        if error.errno is None:
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from error  # the name that the user knows
    finally:
        aside.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a file of text, whole or not at all; a name of a file in it need not be text, and must not fail here."""
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8", errors="replace")
