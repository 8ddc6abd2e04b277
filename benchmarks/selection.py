"""How often `select_k` finds the K of separated blobs by BIC, and its time against fitting every K by itself.

Blobs are standard Gaussians whose centres, at random in a box, are at least 6 apart.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from gputabu import KMeans, select_k

KS = range(1, 16)
TRUE = range(2, 13)
#: Features, and how much larger the largest blob can be than the smallest.
FAMILIES = ((2, 1), (3, 1), (5, 1), (10, 1), (2, 4), (5, 4))
#: N, d and the number of blobs, none for points without clusters.
SHAPES = ((500, 2, 5), (5000, 4, 8), (20_000, 8, 6), (100_000, 8, 10), (20_000, 2, 1), (20_000, 16, 1))


def blobs(k: int, d: int, n: int, seed: int, ratio: int = 1, apart: float = 6.0) -> np.ndarray:
    """About n points in k blobs."""
    rng = np.random.default_rng([k, d, seed])
    centers = np.empty((0, d))
    while len(centers) < k:
        new = rng.uniform(0, 2 * apart * k ** (1 / d), d)
        if ((centers - new) ** 2).sum(axis=1).min(initial=np.inf) >= apart**2:
            centers = np.vstack([centers, new])
    share = rng.uniform(1, ratio, k)
    sizes = np.rint(n * share / share.sum()).astype(int)
    return np.concatenate([c + rng.normal(size=(size, d)) for c, size in zip(centers, sizes, strict=True)])


def recovery(seeds: int) -> None:
    print(
        f"K found by BIC among {KS[0]} to {KS[-1]}, of {seeds} sets of 100·K points for every K; whether J always falls"
    )
    print("d   sizes  " + "".join(f"{f'K={k}':>6}" for k in TRUE) + "   J falls")
    for d, ratio in FAMILIES:
        found, falls = [], True
        for k in TRUE:
            hits = 0
            for seed in range(seeds):
                chosen = select_k(blobs(k, d, 100 * k, seed, ratio), KS, seed=seed)
                hits += chosen.n_clusters == k
                falls &= bool((np.diff(chosen.table["inertia"]) < 0).all())
            found.append(hits)
        print(
            f"{d:<4}1:{ratio:<5}" + "".join(f"{hits:>6}" for hits in found) + f"   {'yes' if falls else 'NO'}",
            flush=True,
        )


def speed(repeats: int) -> None:
    print(f"\nTime of select_k for K = {KS[0]} to {KS[-1]} over that of as many KMeans(K).fit(X); J of both")
    ratios = []
    for n, d, k in SHAPES:
        X = blobs(k, d, n, 0)
        ours, theirs = [], []
        for _ in range(repeats):
            begun = time.perf_counter()
            alone = [KMeans(each, random_state=0).fit(X).inertia_ for each in KS]
            between = time.perf_counter()
            chosen = select_k(X, KS)
            ours.append(time.perf_counter() - between)
            theirs.append(between - begun)
        ratios.append(min(ours) / min(theirs))  # other programs only ever add
        lower = chosen.table["inertia"] / np.array(alone)
        print(
            f"{n:>7} × {d:<3} {k:>2} blobs: {ratios[-1]:.2f} ({min(ours):.2f} s); "
            f"J {lower.min():.3f} to {lower.max():.3f} of theirs, {lower.mean():.3f} on average",
            flush=True,
        )
    print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, largest {max(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["recovery", "speed"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.only != "speed":
        recovery(options.seeds)
    if options.only != "recovery":
        speed(options.repeats)


if __name__ == "__main__":
    main()
