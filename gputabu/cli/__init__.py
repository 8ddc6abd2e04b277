"""The command line: `app`, and a module for each command."""

from gputabu.cli import fit, predict, certify, select, bench  # isort: skip  # the order of the help
from gputabu.cli.reproduce import command as reproduce  # isort: skip
from gputabu.cli import datasets, doctor, accept  # isort: skip
from gputabu.cli.app import app, main

__all__ = [
    "accept",
    "app",
    "bench",
    "certify",
    "datasets",
    "doctor",
    "fit",
    "main",
    "predict",
    "reproduce",
    "select",
]
