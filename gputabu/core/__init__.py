"""What everything rests on: results, random words, checks, Ctrl-C, the log, files."""
