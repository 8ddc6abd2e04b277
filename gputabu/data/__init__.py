"""Points and where they come from: arrays, data frames, files, chunks that are read in turn."""
