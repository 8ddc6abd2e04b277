// prepare and step: the O(K) work of a tabu iteration, on the device, so that no iteration waits for the host.
//
// A search of R restarts replays: assign, prepare, survey, step. All state stays in device memory.
#include "search.cuh"

// totals     (R, K, C)     in
// centers    (R, K, d)     in   kept where a cluster is empty
// centroids  (R, K, d)     out
// rows       (R, K, L)     in   tabu rows, of length (R, K); or null
// labels     (R, pitch)    in
// stamps     (R, pitch)    in/out, = age where the survey may not choose the point
// costs (R, 3), keys (R, K) out  cleared for the survey; keys may be null
// One thread per element of the longest array, striding. grid = (any), block = (any), no shared memory.
extern "C" __global__ void prepare(const idx* __restrict__ totals, const double* __restrict__ centers,
                                   double* __restrict__ centroids, const idx* __restrict__ rows,
                                   const int* __restrict__ length, const int* __restrict__ labels,
                                   int* __restrict__ stamps, const int* __restrict__ age,
                                   idx* __restrict__ costs, word* __restrict__ keys, const int* __restrict__ done,
                                   const double* __restrict__ offset, const double* __restrict__ high,
                                   const double* __restrict__ low, double weight_high, double weight_low,
                                   idx pitch, int r, int k, int d, int capacity, int weighted, int global_scope) {
    const idx me = (idx)blockIdx.x * blockDim.x + threadIdx.x, all = (idx)gridDim.x * blockDim.x;
    const int columns = 2 * d + 1 + (weighted ? 2 : 0);
    for (idx t = me; t < (idx)r * k * d; t += all) {
        const idx cluster = t / d;
        centroids[t] = centroid(totals + cluster * columns, d, (int)(t % d), weighted, offset, high, low, weight_high,
                                weight_low, centers[t]);
    }
    for (idx t = me; t < (idx)r * 3; t += all) costs[t] = 0;
    if (keys)
        for (idx t = me; t < (idx)r * k; t += all) keys[t] = NO_KEY;
    if (!rows) return;
    for (idx t = me; t < (idx)r * k * capacity; t += all) {
        const idx cluster = t / capacity, s = cluster / k;
        if ((int)(t % capacity) >= length[cluster] || done[s]) continue;
        const idx n = rows[t];
        if (global_scope || labels[s * pitch + n] == (int)(cluster % k)) atomicExch(stamps + s * pitch + n, age[s]);
    }
}

// centers (R, K, d) in -> fast (R, K, d), norms (R, K), doubt (R, 3) out. grid = (R), block = (any).
extern "C" __global__ void ready(const double* __restrict__ centers, real* __restrict__ fast, real* __restrict__ norms,
                                 real* __restrict__ doubt, const double* __restrict__ offset, int k, int d,
                                 double unit, double trust, double exact, double floor) {
    __shared__ word widest;
    const idx s = blockIdx.x;
    make_fast(centers + s * k * d, fast + s * k * d, norms + s * k, doubt + s * 3, offset, k, d, unit, trust, exact,
              floor, &widest);
}

// X            (N, d)          in, weight (N) in or null
// labels       (R, N)          in   of the current means
// totals       (R, K, C)       in   counts in the last column
// keys         (R, K)          in   best free point of each cluster
// costs        (R, 3)          in   limbs of J
// means        (R, K)          in/out  M_c, then M_n
// rows         (R, K, L)       in/out  tabu rows, length (R, K)
// best_means   (R, K), best_cost (R), stale (R), age (R), done (R)   in/out
// current, best (R, T + 1), path (R, T + 1, K)   out   the trace, one column per iteration
// centers, fast, norms, doubt  out   of M_n, for the next assign
// Judges M_c and moves on. One block per restart: grid = (R), block = (any). Shared: 16·K bytes.
extern "C" __global__ void step(const real* __restrict__ X, const double* __restrict__ weight,
                                const int* __restrict__ labels,
                                const idx* __restrict__ totals, const word* __restrict__ keys,
                                const idx* __restrict__ costs, idx* __restrict__ means, idx* __restrict__ rows,
                                int* __restrict__ length, idx* __restrict__ best_means,
                                double* __restrict__ best_cost, int* __restrict__ stale, int* __restrict__ age,
                                int* __restrict__ done, double* __restrict__ current, double* __restrict__ best,
                                idx* __restrict__ path, double* __restrict__ centers, real* __restrict__ fast,
                                real* __restrict__ norms, real* __restrict__ doubt,
                                const double* __restrict__ offset, double cost0, double cost1, double cost2,
                                double noise, double target, double unit, double trust, double exact, double floor,
                                idx pitch, int k, int d, int columns, int capacity, int max_iter, int patience,
                                int global_scope) {
    DYNAMIC_SHARED(idx, scratch);  // (2, K)
    __shared__ word widest;
    const idx s = blockIdx.x, columns_of_trace = max_iter + 1;
    if (done[s]) return;
    const Restart me = {means + s * k, rows + s * k * capacity, length + s * k, best_means + s * k, best_cost + s,
                        stale + s, age + s, done + s, current + s * columns_of_trace, best + s * columns_of_trace,
                        path + s * columns_of_trace * k};
    const Limits limits = {noise, target, capacity, max_iter, patience, global_scope};
    const double J = __dadd_rn(__dadd_rn(from_limb(costs[3 * s], cost0), from_limb(costs[3 * s + 1], cost1)),
                               from_limb(costs[3 * s + 2], cost2));
    __syncthreads();  // everyone has read `done`
    if (!advance(me, limits, J, labels + s * pitch, weight, totals + s * k * columns, keys + s * k, k, columns, scratch)) return;
    for (int t = threadIdx.x; t < k * d; t += blockDim.x) centers[s * k * d + t] = widen(X[me.means[t / d] * d + t % d]);
    __syncthreads();
    make_fast(centers + s * k * d, fast + s * k * d, norms + s * k, doubt + s * 3, offset, k, d, unit, trust, exact,
              floor, &widest);
}
