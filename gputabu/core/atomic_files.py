"""Atomic replacement of files: readers see either the old file or the new one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def reason(error: BaseException) -> str:
    """The message of an error, on one line and without a full stop."""
    text = str(getattr(error, "strerror", None) or error) or type(error).__name__
    return " ".join(text.split())[:300].rstrip(".")


def temporary_name(path: Path) -> Path:
    """A name in the same folder that no other thread uses, with the same ending."""
    return path.with_name(f".{os.getpid()}.{threading.get_ident()}.{path.name}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file to write to, which replaces `path` at the end. Readers see the old file or the new one."""
    if path.exists() and not path.is_file():  # such as a device, which would be deleted
        raise ValueError(f"{path} is not a regular file, and only such a one is replaced.")
    path = path.resolve()  # a symbolic link is kept
    temporary = temporary_name(path)
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if error.errno is None:
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from error  # the name that the user knows
    finally:
        temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a text file atomically. Characters that cannot be encoded, as in names of files, are replaced."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")
