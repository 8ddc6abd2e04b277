"""How many clusters: clusterings for several K, and criteria that choose among them."""
