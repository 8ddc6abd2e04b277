// try_labels, explain, apply_trial: the trial labellings of a tabu search over labels.
//
// A trial is drawn, judged by what it changes, and forgotten; the one that is accepted is drawn again. The words are
// those of NumPy's Philox, made here: a block of four of them serves four consecutive points in one trial.
//
// TRIAL and PRINT, the purposes of the streams, are macros from core.random.
#include "random.cuh"
#include "structs.cuh"

// The label that a word draws for a point with label `old`, or none (-1). See contract.TrialBatch.
__device__ __forceinline__ int other_label(word drawn, int old, int k) {
    const int count = old >= 0 ? k - 1 : k;
    if (count == 0) return old;
    const int other = (int)((drawn & 0xFFFFFFFFull) * (word)count >> 32);
    return other + (old >= 0 && other >= old);
}

#define TRIALS_SHARED(ARRAY)                                                \
    ARRAY(idx, local_change, private_totals * trials * k * columns)         \
    ARRAY(word, local_fingerprints, private_totals * trials * 2)

// X        (n, d)        in   rows of the chunk
// weight   (n)           in   or null
// labels   (R, pitch)    in   all >= 0
// change   (R, T, K, C)  in/out, += what each trial changes in the totals
// fingerprints (R, T, 2) in/out, likewise, modulo 2^64
// private_totals: a block adds up both in shared memory.
// One thread per four points, for all trials of a restart; `blocks` blocks per restart stride over the points.
// grid = (R · blocks), block = (any).
extern "C" __global__ void try_labels(const real* __restrict__ X, const double* __restrict__ weight,
                                      const int* __restrict__ labels, idx* __restrict__ change,
                                      word* __restrict__ fingerprints, TrialBatch batch, Grid grid, Chunk chunk, int k,
                                      int d, int blocks, int private_totals) {
    const int columns = columns_of(d, weight), trials = batch.trials;
    const idx n = chunk.n, s = blockIdx.x / blocks, size = (idx)trials * k * columns;
    const idx n_private = private_totals ? size + 2 * trials : 0;
    DYNAMIC_SHARED(char, carved);
    TRIALS_SHARED(CARVE)
    for (idx t = threadIdx.x; t < n_private; t += blockDim.x) local_change[t] = 0;  // and the fingerprints behind it
    __syncthreads();
    change += s * size;
    fingerprints += s * 2 * trials;
    idx* sums = private_totals ? local_change : change;
    word* marks = private_totals ? local_fingerprints : fingerprints;
    const idx begin = batch.first + chunk.start, last = (begin + n + QUAD - 1) / QUAD;
    const idx thread = (blockIdx.x % blocks) * (idx)blockDim.x + threadIdx.x;
    for (idx q = begin / QUAD + thread; q < last; q += (idx)blocks * blockDim.x) {
        for (int t = 0; t < trials; ++t) {
            word drawn[QUAD];
            draw(drawn, t * batch.quads + q, batch.step, TRIAL, batch.seed, batch.restarts[s]);
#pragma unroll 1  // few change: registers are worth more
            for (int c = 0; c < QUAD; ++c) {
                const word point_word = pick(drawn, c);
                const idx row = q * QUAD + c, i = row - begin;
                if (point_word < batch.limit || i < 0 || i >= n) continue;
                const int old = labels[s * chunk.pitch + chunk.start + i], found = other_label(point_word, old, k);
                if (found == old) continue;  // K = 1
#pragma unroll 1
                for (int sign = 1; sign >= -1; sign -= 2) {
                    idx* cluster = sums + ((idx)t * k + (sign > 0 ? found : old)) * columns;
                    contribute(cluster, X + i * d, d, weight, i, grid.offset, grid.scale, grid.weight_scale, sign);
                }
                word factors[QUAD];  // of two points
                draw(factors, row / 2, 0, PRINT, batch.seed, 0);
                const word shift = (word)(idx)(found - old);
                atomicAdd(marks + 2 * t, shift * (row % 2 ? factors[2] : factors[0]));
                atomicAdd(marks + 2 * t + 1, shift * (row % 2 ? factors[3] : factors[1]));
            }
        }
    }
    if (!private_totals) return;
    __syncthreads();
    for (idx t = threadIdx.x; t < n_private; t += blockDim.x)
        if (local_change[t]) add_to(t < size ? change + t : (idx*)fingerprints + (t - size), local_change[t]);
}

// change    (R, T, K, C)  in   of the totals, by each trial
// totals    (R, K, C)     in   of the labels that the trials change
// explained (R, T)        out  fixed_point.Grid.explained of their sum
// One block per trial, a thread per cluster, striding; shares are added in the order of clusters.
// grid = (R · T), block = (EXPLAINERS).
extern "C" __global__ void explain(const idx* __restrict__ change, const idx* __restrict__ totals,
                                   double* __restrict__ explained, Grid grid, int k, int d, int trials, int weighted) {
    __shared__ double shares[EXPLAINERS];
    const int columns = columns_of(d, weighted);
    const idx trial = blockIdx.x, s = trial / trials;
    double sum = 0.0;
    for (int first = 0; first < k; first += blockDim.x) {
        const int a = first + threadIdx.x;
        double share = 0.0;
        if (a < k) {
            const idx *more = change + (trial * k + a) * columns, *cluster = totals + (s * k + a) * columns;
            const idx* rest = cluster + 2 * d;
            const double weight = weighted
                ? __dadd_rn(from_limb(rest[0] + more[2 * d], grid.weight_high),
                            from_limb(rest[1] + more[2 * d + 1], grid.weight_low))
                : __ll2double_rn(rest[0] + more[2 * d]);
            if (weight > 0.0) {
                for (int j = 0; j < d; ++j) {
                    const double moment = __dadd_rn(from_limb(cluster[j] + more[j], grid.high[j]),
                                                    from_limb(cluster[d + j] + more[d + j], grid.low[j]));
                    const double away = __ddiv_rn(moment, weight);
                    share = __dadd_rn(share, __dmul_rn(away, away));
                }
                share = __dmul_rn(share, weight);
            }
        }
        shares[threadIdx.x] = share;
        __syncthreads();
        if (threadIdx.x == 0)
            for (int t = 0; t < (int)blockDim.x && first + t < k; ++t) sum = __dadd_rn(sum, shares[t]);
        __syncthreads();
    }
    if (threadIdx.x == 0) explained[trial] = sum;
}

// labels   (R, pitch)  in/out  -1 where a point has no label yet
// best     (R, pitch)  in/out, = labels where better
// given    (pitch)     in   the trial, or null: it is drawn
// chosen   (R)         in   the trial to apply, or -1
// better   (R)         in
// totals   (R, K, C)   in/out, += what changes
// changed  (R)         in/out, += points whose label is new
// The rest as for try_labels. One thread per four points of a restart, striding. grid = (any), block = (any).
extern "C" __global__ void apply_trial(const real* __restrict__ X, const double* __restrict__ weight,
                                       int* __restrict__ labels, int* __restrict__ best, const int* __restrict__ given,
                                       const int* __restrict__ chosen, const int* __restrict__ better,
                                       idx* __restrict__ totals, idx* __restrict__ changed, TrialBatch batch, Grid grid,
                                       Chunk chunk, Shape shape) {
    const int k = shape.k, d = shape.d, columns = columns_of(d, weight);
    const idx n = chunk.n, r = shape.r, begin = batch.first + chunk.start, first = begin / QUAD;
    const idx quads = (begin + n + QUAD - 1) / QUAD - first;  // of the chunk
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < r * quads; t += (idx)gridDim.x * blockDim.x) {
        const idx s = t / quads, q = first + t % quads;
        if (chosen[s] < 0) continue;
        word drawn[QUAD];
        draw(drawn, chosen[s] * batch.quads + q, batch.step, TRIAL, batch.seed, batch.restarts[s]);
#pragma unroll 1
        for (int c = 0; c < QUAD; ++c) {
            const idx i = q * QUAD + c - begin, row = chunk.start + i;
            if (i < 0 || i >= n) continue;
            const int old = labels[s * chunk.pitch + row];
            const word point_word = pick(drawn, c);
            const int found = given ? given[row] : point_word < batch.limit ? old : other_label(point_word, old, k);
            if (better[s]) best[s * chunk.pitch + row] = found;
            if (found == old) continue;
            labels[s * chunk.pitch + row] = found;
            add_to(changed + s, 1);
            idx* clusters = totals + s * k * columns;
#pragma unroll 1
            for (int sign = 1; sign >= (old < 0 ? 1 : -1); sign -= 2)
                contribute(clusters + (idx)(sign > 0 ? found : old) * columns, X + i * d, d, weight, i, grid.offset,
                           grid.scale, grid.weight_scale, sign);
        }
    }
}
