"""The output of commands: summaries, folders, reports."""
