// try_labels, explain, apply_trial, try_steps, member_keys: the trial labellings of a tabu search over labels.
//
// A trial is drawn, judged by what it changes, and forgotten; the one that is accepted is drawn again. The words are
// those of NumPy's Philox, made here: a block of four of them serves four consecutive points in one trial.
//
// TRIAL and PRINT, the purposes of the streams, are macros from core.random.
// MODES = 1 is for trials that are not drawn by the threshold alone; without them a thread has fewer registers.
#include "random.cuh"
#include "structs.cuh"
#ifndef MODES
#define MODES 0
#endif

// The label that a word draws for a point with label `old`, or none (-1). See contract.TrialBatch.
__device__ __forceinline__ int other_label(word drawn, int old, int k) {
    const int count = old >= 0 ? k - 1 : k;
    if (count == 0) return old;
    const int other = (int)((drawn & 0xFFFFFFFFull) * (word)count >> 32);
    return other + (old >= 0 && other >= old);
}

// The label that the low half of a word draws by the distances of x to k centres.
__device__ int label_by_distance(word drawn, const real* x, const double* centers, int k, int d) {
    double most = 0.0, total = 0.0, running = 0.0;
#pragma unroll 1
    for (int a = 0; a < k; ++a) most = fmax(most, canonical(x, centers + (idx)a * d, d));
    most = __dmul_rn(1.5, __dsqrt_rn(most));
#pragma unroll 1
    for (int a = 0; a < k; ++a)
        total = __dadd_rn(total, __dadd_rn(__dsub_rn(most, __dsqrt_rn(canonical(x, centers + (idx)a * d, d))), 0.5));
    const double target = __dmul_rn(total, __dmul_rn((double)(drawn & 0xFFFFFFFFull), 2.3283064365386963e-10));  // 2^-32
#pragma unroll 1
    for (int a = 0; a < k - 1; ++a) {
        running = __dadd_rn(running, __dadd_rn(__dsub_rn(most, __dsqrt_rn(canonical(x, centers + (idx)a * d, d))), 0.5));
        if (running > target) return a;
    }
    return k - 1;
}

// Whether a trial may change a label at all, before anything is read of the point.
__device__ __forceinline__ bool stays(word drawn, const TrialBatch& batch) {
    return drawn < batch.limit && !(MODES && batch.cuts);
}

// The label of point x, which has label `old`, in trial t of restart s, unless it stays. See contract.TrialBatch.
__device__ __forceinline__ int trial_label(word drawn, int old, const real* x, idx s, int t, const TrialBatch& batch, int k,
                                           int d) {
#if MODES
    if (batch.cuts) {
        const int* cut = batch.cuts + (s * batch.trials + t) * 3;
        if (old == cut[0]) return cut[1];
        if (old != cut[2]) return old;
        const double* pair = batch.pairs + (s * batch.trials + t) * 2 * d;
        return canonical(x, pair + d, d) < canonical(x, pair, d) ? cut[0] : old;
    }
    if (batch.centers) return label_by_distance(drawn, x, batch.centers + s * k * d, k, d);
#endif
    return other_label(drawn, old, k);
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
                if (stays(point_word, batch) || i < 0 || i >= n) continue;
                const int old = labels[s * chunk.pitch + chunk.start + i];
                const int found = trial_label(point_word, old, X + i * d, s, t, batch, k, d);
                if (found == old) continue;
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
// given    (1 or R, pitch)  in  the trial, or null: it is drawn; rows are `given_pitch` apart
// chosen   (R)         in   the trial to apply, or -1
// better   (R)         in
// totals   (R, K, C)   in/out, += what changes
// changed  (R)         in/out, += points whose label is new
// The rest as for try_labels. One thread per four points of a restart, striding. grid = (any), block = (any).
extern "C" __global__ void apply_trial(const real* __restrict__ X, const double* __restrict__ weight,
                                       int* __restrict__ labels, int* __restrict__ best, const int* __restrict__ given,
                                       idx given_pitch, const int* __restrict__ chosen,
                                       const int* __restrict__ better, idx* __restrict__ totals,
                                       idx* __restrict__ changed, TrialBatch batch, Grid grid, Chunk chunk, Shape shape) {
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
            const int found = given ? given[s * given_pitch + row]
                : stays(point_word, batch) ? old : trial_label(point_word, old, X + i * d, s, chosen[s], batch, k, d);
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

// The cluster that Hartigan's rule moves point x of weight w to, from cluster `source`; `source` if none. See hartigan.cu.
__device__ int moved_to(const real* x, double w, int source, const double* centers, const double* mass, int k, int d,
                        double slack) {
    const double *left = mass, *entered = mass + k;
    const double rest = __dsub_rn(left[source], w);
    if (!(rest > 0.0) || !(w > 0.0)) return source;
    const double factor = __ddiv_rn(left[source], rest);
    const double leave = __dmul_rn(factor, canonical(x, centers + (idx)source * d, d));
    double least = leave;
    int target = source;
#pragma unroll 1
    for (int b = 0; b < k; ++b) {
        if (b == source) continue;
        const double share = __ddiv_rn(entered[b], __dadd_rn(entered[b], w));
        const double cost = __dmul_rn(canonical(x, centers + (idx)b * d, d), share);
        if (cost < least) { least = cost; target = b; }
    }
    const double noise = __dadd_rn(__dmul_rn(NOISE, leave), __dmul_rn(slack, __dsqrt_rn(__dmul_rn(factor, leave))));
    return __dsub_rn(leave, least) > noise ? target : source;
}

// centers (S, K, d)  in   whose nearest is a point's label
// between (S, K, d), mass (S, 2, K)  in  centroids and weights of these clusters, between which single points then move;
//                         or null
// totals  (S, K, C)  in/out, += those of the labels
// fingerprints (S, 2)  in/out, likewise, modulo 2^64
// One thread per point of a set, striding; `blocks` blocks per set. grid = (S · blocks), block = (any). Ties: lowest cluster.
extern "C" __global__ void try_steps(const real* __restrict__ X, const double* __restrict__ weight,
                                     const double* __restrict__ centers, const double* __restrict__ between,
                                     const double* __restrict__ mass, idx* __restrict__ totals,
                                     word* __restrict__ fingerprints, TrialBatch batch, Grid grid, Chunk chunk, int k,
                                     int d, int blocks, double slack) {
    const idx s = blockIdx.x / blocks, n = chunk.n, begin = batch.first + chunk.start;
    word marks[2] = {0, 0};
    for (idx i = (blockIdx.x % blocks) * (idx)blockDim.x + threadIdx.x; i < n; i += (idx)blocks * blockDim.x) {
        const real* x = X + i * d;
        int label = nearest_canonical(x, centers + s * k * d, k, d);
        if (between)
            label = moved_to(x, weight ? weight[i] : 1.0, label, between + s * k * d, mass + s * 2 * k, k, d, slack);
        contribute(totals + (s * k + label) * columns_of(d, weight), x, d, weight, i, grid.offset, grid.scale,
                   grid.weight_scale, 1);
        const idx row = begin + i;
        word factors[QUAD];  // of two points
        draw(factors, row / 2, 0, PRINT, batch.seed, 0);
        marks[0] += (word)label * (row % 2 ? factors[2] : factors[0]);
        marks[1] += (word)label * (row % 2 ? factors[3] : factors[1]);
    }
    atomicAdd(fingerprints + 2 * s, marks[0]);
    atomicAdd(fingerprints + 2 * s + 1, marks[1]);
}

// weight   (n)         in   or null
// labels   (R, pitch)  in
// clusters (R, T)      in   whose members are wanted
// keys     (R, T, 2)   in/out, the least and the largest key of the members of positive weight
// One thread per four points, for all trials of a restart; `blocks` blocks per restart. grid = (R · blocks), block = (any).
extern "C" __global__ void member_keys(const double* __restrict__ weight, const int* __restrict__ labels,
                                       const int* __restrict__ clusters, word* __restrict__ keys, TrialBatch batch,
                                       Chunk chunk, int blocks) {
    const idx n = chunk.n, s = blockIdx.x / blocks, begin = batch.first + chunk.start;
    const idx last = (begin + n + QUAD - 1) / QUAD, thread = (blockIdx.x % blocks) * (idx)blockDim.x + threadIdx.x;
    for (idx q = begin / QUAD + thread; q < last; q += (idx)blocks * blockDim.x) {
        for (int t = 0; t < batch.trials; ++t) {
            word drawn[QUAD];
            draw(drawn, t * batch.quads + q, batch.step, TRIAL, batch.seed, batch.restarts[s]);
#pragma unroll 1
            for (int c = 0; c < QUAD; ++c) {
                const idx row = q * QUAD + c, i = row - begin, at = s * batch.trials + t;
                if (i < 0 || i >= n || (weight && !(weight[i] > 0.0))) continue;
                if (labels[s * chunk.pitch + chunk.start + i] != clusters[at]) continue;
                const word key = pick(drawn, c) >> ROW_BITS << ROW_BITS | (word)row;
                atomicMin(keys + 2 * at, key);
                atomicMax(keys + 2 * at + 1, key);
            }
        }
    }
}
