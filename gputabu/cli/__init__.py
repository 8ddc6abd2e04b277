"""The command line: a module for each command, and `app`, which they belong to."""

from gputabu.cli import bench, datasets, doctor, fit, predict, select

from gputabu.cli.reproduce.command import command as reproduce  # isort: skip  # the order of the help
from gputabu.cli.app import app, main

__all__ = ["app", "bench", "datasets", "doctor", "fit", "main", "predict", "reproduce", "select"]
