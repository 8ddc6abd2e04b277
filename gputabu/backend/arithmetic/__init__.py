"""What every backend must compute to the bit: distances, certified argmin, sums, keys, Hartigan's rule."""
