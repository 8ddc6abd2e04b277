"""The proof of how good a clustering is: a lower bound on J of all clusterings, by semidefinite programming."""
