"""`gputabu reproduce`: repeat the paper's experiments."""
