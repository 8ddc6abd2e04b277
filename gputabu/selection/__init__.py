"""The number of clusters: clusterings for several K, and criteria that choose among them."""
