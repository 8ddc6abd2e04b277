// What the kernels of a search share: centroids, the fast form of centres, and the O(K) part of a tabu iteration.
// Functions are called by all threads of a block, with pointers to the state of one restart.
#pragma once
#include "structs.cuh"

// Weight of a cluster: the same operations as fixed_point.Grid.weights.
__device__ __forceinline__ double weight_of(const idx* cluster, int d, bool weighted, const Grid& grid) {
    return weighted
        ? __dadd_rn(from_limb(cluster[2 * d], grid.weight_high), from_limb(cluster[2 * d + 1], grid.weight_low))
        : __ll2double_rn(cluster[2 * d]);
}

// Means of the clusters (eq. 3): the same operations as fixed_point.Grid.centroids.
__device__ double centroid(const idx* cluster, int d, int j, bool weighted, const Grid& grid, double fallback) {
    const double weight = weight_of(cluster, d, weighted, grid);
    if (!(weight > 0.0)) return fallback;
    const double moment = __dadd_rn(from_limb(cluster[j], grid.high[j]), from_limb(cluster[d + j], grid.low[j]));
    return __dadd_rn(grid.offset[j], __ddiv_rn(moment, weight));
}

// J from its limbs (3).
__device__ __forceinline__ double cost_of(const idx* limbs, const Grid& grid) {
    return __dadd_rn(__dadd_rn(from_limb(limbs[0], grid.cost0), from_limb(limbs[1], grid.cost1)),
                     from_limb(limbs[2], grid.cost2));
}

// The arrays of restart s.
__device__ __forceinline__ FastCenters fast_of(const FastCenters& all, idx s, int k, int d) {
    if (!all.centers) return all;
    return FastCenters{all.centers + s * k * d, all.norms + s * k, all.doubt + s * 3};
}
__device__ __forceinline__ Restarts restart_of(const Restarts& all, idx s, int k, const Limits& limits) {
    const idx columns = limits.max_iter + 1;  // of the trace
    return Restarts{all.means + s * k, all.rows + s * k * limits.capacity, all.length + s * k, all.best_means + s * k,
                    all.best_cost + s, all.stale + s, all.age + s, all.done + s, all.current + s * columns,
                    all.best + s * columns, all.path + s * columns * k};
}

// The fast centres of one restart and how far their distances can be trusted; by all threads of a block.
// `widest` is shared and holds a double that sorts like its bits.
__device__ void make_fast(const double* centers, const FastCenters& fast, const double* offset, int k, int d,
                          const Doubt& doubt, word* widest) {
    if (!fast.centers) return;  // the next assign makes halves of them
    if (threadIdx.x == 0) *widest = 0;
    __syncthreads();
    for (int a = threadIdx.x; a < k; a += blockDim.x) {
        double norm = 0.0;
        for (int j = 0; j < d; ++j) {
            const double c = (centers[(idx)a * d + j] - offset[j]) * doubt.unit;
            fast.centers[(idx)a * d + j] = (real)c;
            norm += c * c;
        }
        fast.norms[a] = (real)norm;
        atomicMax(widest, (word)__double_as_longlong(norm));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const double reach = sqrt(__longlong_as_double((idx)*widest)), trust = doubt.fast + doubt.exact;
        fast.doubt[0] = (real)(trust * reach * reach + doubt.floor);
        fast.doubt[1] = (real)(2 * trust * reach);
        fast.doubt[2] = (real)trust;  // the direct form errs with ‖x‖² as well
    }
}

// Judges M_c of one restart by its J, records it, and chooses and enters the next means (algorithms.quantized,
// algorithms.tabu_list). Returns whether the restart goes on. scratch (2·K): a thread reads only what it wrote.
__device__ bool advance(const Restarts& me, const Limits& limits, double J, const int* labels, const double* weight,
                        const idx* totals, const word* keys, int k, int columns, idx* scratch) {
    idx *next = scratch, *cut = scratch + k;
    // Every thread judges, from loads that do not wait for each other; the first one writes.
    const int iteration = *me.age - 1, since = *me.stale;
    const double before = *me.best_cost;
    const bool better = iteration == 0 || J < __dmul_rn(before, 1.0 - NOISE);
    const double best = better ? J : before;
    const int stale = better ? 0 : since + 1;
    const int done = best <= limits.target ? STOP_TARGET : stale >= limits.patience ? STOP_PATIENCE
                     : iteration == limits.max_iter ? STOP_MAX_ITER : 0;
    __syncthreads();  // everyone has read the age
    if (threadIdx.x == 0) {
        *me.best_cost = best;
        *me.stale = stale;
        *me.done = done;
        *me.age = iteration + 2;
        me.current[iteration] = J;
        me.best[iteration] = best;
    }
    for (int a = threadIdx.x; a < k; a += blockDim.x) {
        if (better) me.best_means[a] = me.means[a];
        me.path[(idx)iteration * k + a] = me.means[a];
    }
    if (done) return false;
    for (int a = threadIdx.x; a < k; a += blockDim.x) {  // every cluster looks at the rows as they are
        next[a] = me.means[a];
        cut[a] = -1;
        if (keys[a] != NO_KEY) {
            next[a] = (idx)(keys[a] & 0xFFFFFFFFull);
        } else if (totals[(idx)a * columns + columns - 1] > 0) {  // share: 0; all members are tabu: the deletion rule
            for (int l = me.length[a] - 1; l >= 0; --l) {  // trips: 1
                const idx n = me.rows[(idx)a * limits.capacity + l];
                if (labels[n] != a || (weight && weight[n] <= 0.0)) continue;
                bool elsewhere = false;
                for (int b = 0; limits.shared && b < k && !elsewhere; ++b)  // trips: shared * k
                    for (int m = 0; b != a && m < me.length[b] && !elsewhere; ++m)  // trips: capacity / 2
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
        const idx left = me.means[a], come = next[a];
        bool known = false;
#pragma unroll 8
        for (int l = 0; l < size; ++l) known |= row[l] == left;  // trips: ceil(capacity / 16); no load waits
        if (!known) row[size++] = left;
        me.length[a] = size;
        me.means[a] = come;
    }
    __syncthreads();
    return true;
}
