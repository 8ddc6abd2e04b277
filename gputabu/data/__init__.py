"""Points and their sources: arrays, data frames, files, chunks read one after the other."""
