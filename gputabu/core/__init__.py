"""The base of all other packages: results, random words, checks, Ctrl-C, the log, files."""
