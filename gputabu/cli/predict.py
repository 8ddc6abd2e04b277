"""`gputabu predict`: label the rows of a file by a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gputabu.cli import options
from gputabu.cli.app import Command, Debug, app


@app.command(cls=Command)
def predict(
    data: options.Data,
    debug: Debug = False,
) -> None:
    """Label."""
