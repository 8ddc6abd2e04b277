"""Judging clusterings: criteria that choose among several K, and proofs of how good one is (`proof/`)."""
