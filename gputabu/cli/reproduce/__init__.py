"""`gputabu reproduce`: the paper's experiments, run again."""
