// What the kernels of a search share: centroids, the fast form of centres, and the O(K) part of a tabu iteration.
// Functions are called by all threads of a block, with pointers to the state of one restart.
#pragma once
#include "common.cuh"

// Means of the clusters (eq. 3): the same operations as gputabu.points.Grid.centroids.
__device__ double centroid(const idx* cluster, int d, int j, bool weighted, const double* offset,
                           const double* high, const double* low, double weight_high, double weight_low,
                           double fallback) {
    const double weight = weighted
        ? __dadd_rn(from_limb(cluster[2 * d], weight_high), from_limb(cluster[2 * d + 1], weight_low))
        : __ll2double_rn(cluster[2 * d]);
    if (!(weight > 0.0)) return fallback;
    const double moment = __dadd_rn(from_limb(cluster[j], high[j]), from_limb(cluster[d + j], low[j]));
    return __dadd_rn(offset[j], __ddiv_rn(moment, weight));
}

// The fast centres of one restart and how far their distances can be trusted; by all threads of a block.
// `widest` is shared and holds a double that sorts like its bits.
__device__ void make_fast(const double* centers, real* fast, real* norms, real* doubt, const double* offset,
                          int k, int d, double unit, double trust, double exact, double floor, word* widest) {
    if (threadIdx.x == 0) *widest = 0;
    __syncthreads();
    for (int a = threadIdx.x; a < k; a += blockDim.x) {
        double norm = 0.0;
        for (int j = 0; j < d; ++j) {
            const double c = (centers[(idx)a * d + j] - offset[j]) * unit;
            fast[(idx)a * d + j] = (real)c;
            norm += c * c;
        }
        norms[a] = (real)norm;
        atomicMax(widest, (word)__double_as_longlong(norm));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const double reach = sqrt(__longlong_as_double((idx)*widest));
        doubt[0] = (real)((trust + exact) * reach * reach + floor);
        doubt[1] = (real)(2 * (trust + exact) * reach);
        doubt[2] = (real)(trust + exact);  // the direct form errs with ‖x‖² as well
    }
}

#define STOP_PATIENCE 1
#define STOP_MAX_ITER 2
#define STOP_TARGET 3

// The state of one restart between two iterations, and where its trace goes.
struct Restart {
    idx* means;  // (K) M_c
    idx* rows;  // (K, L) tabu rows
    int* length;  // (K)
    idx* best_means;  // (K) M_b
    double* best_cost;  // J_b
    int *stale, *age, *done;
    double *current, *best;  // (T + 1)
    idx* path;  // (T + 1, K)
};

struct Limits {
    double noise;  // 1 - 2^-40: what must be undercut to be better
    double target;  // J to stop at, negative for none
    int capacity, max_iter, patience, global_scope;
};

// Judges M_c by its J, records it, and chooses and enters the next means (gputabu.quantized.step and neighbours,
// gputabu.tabu). Returns whether the restart goes on. scratch (2·K) is shared memory.
__device__ bool advance(const Restart& me, const Limits& limits, double J, const int* labels, const double* weight,
                        const idx* totals, const word* keys, int k, int columns, idx* scratch) {
    __shared__ int better;
    idx *next = scratch, *cut = scratch + k;
    const int iteration = *me.age - 1;
    __syncthreads();  // everyone has read the age
    if (threadIdx.x == 0) {
        better = iteration == 0 || J < __dmul_rn(*me.best_cost, limits.noise);
        if (better) *me.best_cost = J;
        const int stale = better ? 0 : *me.stale + 1;
        *me.stale = stale;
        me.current[iteration] = J;
        me.best[iteration] = *me.best_cost;
        *me.done = *me.best_cost <= limits.target ? STOP_TARGET : stale >= limits.patience ? STOP_PATIENCE
                   : iteration == limits.max_iter ? STOP_MAX_ITER : 0;
        *me.age = iteration + 2;
    }
    __syncthreads();
    for (int a = threadIdx.x; a < k; a += blockDim.x) {
        if (better) me.best_means[a] = me.means[a];
        me.path[(idx)iteration * k + a] = me.means[a];
    }
    if (*me.done) return false;
    for (int a = threadIdx.x; a < k; a += blockDim.x) {  // every cluster looks at the rows as they are
        next[a] = me.means[a];
        cut[a] = -1;
        if (keys[a] != NO_KEY) {
            next[a] = (idx)(keys[a] & 0xFFFFFFFFull);
        } else if (totals[(idx)a * columns + columns - 1] > 0) {  // all members are tabu: the deletion rule
            for (int l = me.length[a] - 1; l >= 0; --l) {
                const idx n = me.rows[(idx)a * limits.capacity + l];
                if (labels[n] != a || (weight && weight[n] <= 0.0)) continue;
                bool elsewhere = false;
                for (int b = 0; limits.global_scope && b < k && !elsewhere; ++b)
                    for (int m = 0; b != a && m < me.length[b] && !elsewhere; ++m)
                        elsewhere = me.rows[(idx)b * limits.capacity + m] == n;
                if (elsewhere) continue;
                next[a] = n;
                cut[a] = l;
                break;
            }
        }
    }
    __syncthreads();
    for (int a = threadIdx.x; a < k; a += blockDim.x) {
        idx* row = me.rows + (idx)a * limits.capacity;
        int size = cut[a] >= 0 ? (int)cut[a] : me.length[a];
        bool held = false;
        for (int l = 0; l < size && !held; ++l) held = row[l] == me.means[a];
        if (!held) row[size++] = me.means[a];
        me.length[a] = size;
        me.means[a] = next[a];
    }
    __syncthreads();
    return true;
}
