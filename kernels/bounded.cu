// Clusters of bounded size: labels by cost and price, and what it costs to hand points of one cluster to another
// (Backend.transfers_partial; backend.arithmetic.transport has the costs).
#include "common.cuh"

#define LIST 256           // pairs that a block sorts: 128 that are kept and a new one per thread
#define NEVER 0x7FFFFFFFFFFFFFFFll

// c(i, k): w d² or d², times a power of two, to the nearest integer.
__device__ __forceinline__ idx cost_of(const real* x, const double* center, int d, double w, int weighted, double scale) {
    double v = canonical(x, center, d);
    if (weighted) v = __dmul_rn(v, w);
    return __double2ll_rn(__dmul_rn(v, scale));
}

// X        (n, d)  in   rows start .. start + n - 1 of the data set
// weight   (n)     in   or null
// centers  (K, d)  in
// prices   (K)     in   or null: labels stay as they are
// slot     (K)     in   which list a cluster has, or -1
// labels   (N)     in/out
// sizes    (K)     in/out, += sizes of the points: rint(w unit), or 1 where unit is 0; nothing for weight zero
// members  (S)     in/out, += points of positive weight of the clusters that have a list
// One thread per point, striding. grid = (any), block = (any), no shared memory. Ties: lowest cluster.
extern "C" __global__ void price_labels(const real* __restrict__ X, const double* __restrict__ weight,
                                        const double* __restrict__ centers, const idx* __restrict__ prices,
                                        const int* __restrict__ slot, int* __restrict__ labels, idx* __restrict__ sizes,
                                        idx* __restrict__ members, idx n, idx start, int k, int d, int weighted,
                                        double scale, double unit) {
    for (idx i = (idx)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (idx)gridDim.x * blockDim.x) {
        const real* x = X + i * d;
        const double w = weight ? weight[i] : 1.0;
        int label = labels[start + i];
        if (prices) {
            if (w > 0.0) {
                label = 0;
                idx least = cost_of(x, centers, d, w, weighted, scale) + prices[0];
                for (int a = 1; a < k; ++a) {
                    const idx cost = cost_of(x, centers + (idx)a * d, d, w, weighted, scale) + prices[a];
                    if (cost < least) { least = cost; label = a; }
                }
            } else {
                label = nearest_canonical(x, centers, k, d);
            }
            labels[start + i] = label;
        }
        if (!(w > 0.0)) continue;
        add_to(sizes + label, unit > 0.0 ? __double2ll_rn(__dmul_rn(w, unit)) : 1);
        if (slot[label] >= 0) add_to(members + slot[label], 1);
    }
}

// labels (N), slot (K), weight (n) or null in; next (S) in/out, where the next point of a list goes; listed (m) out, the
// points of the clusters that have a list, cluster by cluster, in any order within. One thread per point, striding.
extern "C" __global__ void list_members(const double* __restrict__ weight, const int* __restrict__ slot,
                                        const int* __restrict__ labels, idx* __restrict__ next, idx* __restrict__ listed,
                                        idx n, idx start) {
    for (idx i = (idx)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (idx)gridDim.x * blockDim.x) {
        const int s = slot[labels[start + i]];
        if (s < 0 || (weight && !(weight[i] > 0.0))) continue;
        listed[atomicAdd((word*)(next + s), 1ull)] = i;
    }
}

// Sort LIST pairs in shared memory by value, then by row. All threads of the block.
__device__ void sort_pairs(idx* value, idx* row) {
    for (int run = 2; run <= LIST; run *= 2) {
        for (int step = run / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int t = threadIdx.x; t < LIST / 2; t += blockDim.x) {
                const int low = t / step * 2 * step + t % step, high = low + step;
                const bool up = (low & run) == 0;
                const bool after = value[low] > value[high] || (value[low] == value[high] && row[low] > row[high]);
                if (after == up) {
                    const idx v = value[low], r = row[low];
                    value[low] = value[high];
                    row[low] = row[high];
                    value[high] = v;
                    row[high] = r;
                }
            }
        }
    }
    __syncthreads();
}

// X, weight, centers as above; sources (S) in, the clusters that have a list; first (S + 1) in, where their points begin
// in `listed`; value, row (S, K, count) out, the least pairs, NEVER and -1 behind the last.
// One block per (source, cluster). grid = (S·K), block = 128. A thread brings one pair at a time where it is below the
// last of those that are kept; when there might be no room for the next, the block sorts them and keeps the least.
extern "C" __global__ void transfers(const real* __restrict__ X, const double* __restrict__ weight,
                                     const double* __restrict__ centers, const int* __restrict__ sources,
                                     const idx* __restrict__ first, const idx* __restrict__ listed,
                                     idx* __restrict__ value, idx* __restrict__ row, idx start, int k, int d,
                                     int count, int weighted, double scale) {
    __shared__ idx values[LIST];
    __shared__ idx rows[LIST];
    __shared__ int filled;
    const int s = blockIdx.x / k, b = blockIdx.x % k, a = sources[s];
    const idx begin = first[s], end = a == b ? begin : first[s + 1];
    const double *from = centers + (idx)a * d, *to = centers + (idx)b * d;
    for (int t = threadIdx.x; t < LIST; t += blockDim.x) { values[t] = NEVER; rows[t] = NEVER; }
    if (threadIdx.x == 0) filled = 0;
    __syncthreads();
    idx bar = NEVER, bar_row = NEVER;
    for (idx base = begin; base < end; base += blockDim.x) {
        const idx at = base + threadIdx.x;
        if (at < end) {
            const idx i = listed[at];
            const double w = weight ? weight[i] : 1.0;
            const idx v = cost_of(X + i * d, to, d, w, weighted, scale) - cost_of(X + i * d, from, d, w, weighted, scale);
            if (v < bar || (v == bar && start + i < bar_row)) {
                const int place = atomicAdd(&filled, 1);
                values[place] = v;
                rows[place] = start + i;
            }
        }
        __syncthreads();
        if (filled + (int)blockDim.x > LIST) {  // the same for all threads
            sort_pairs(values, rows);
            for (int t = count + threadIdx.x; t < LIST; t += blockDim.x) { values[t] = NEVER; rows[t] = NEVER; }
            if (threadIdx.x == 0 && filled > count) filled = count;
            bar = values[count - 1];
            bar_row = rows[count - 1];
        }
        __syncthreads();
    }
    sort_pairs(values, rows);
    for (int t = threadIdx.x; t < count; t += blockDim.x) {
        value[(idx)blockIdx.x * count + t] = values[t];
        row[(idx)blockIdx.x * count + t] = rows[t] == NEVER ? -1 : rows[t];
    }
}
