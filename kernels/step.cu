// prepare and step: the O(K) work of a tabu iteration, on the device, so that no iteration waits for the host.
//
// A search of R restarts replays: assign, prepare, survey, step. All state stays in device memory.

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

// centers (R, K, d) in -> fast (R, K, d), norms (R, K), doubt (R, 3) out. grid = (R), block = (any).
extern "C" __global__ void ready(const double* __restrict__ centers, real* __restrict__ fast, real* __restrict__ norms,
                                 real* __restrict__ doubt, const double* __restrict__ offset, int k, int d,
                                 double unit, double trust, double exact, double floor) {
    __shared__ word widest;
    const idx s = blockIdx.x;
    make_fast(centers + s * k * d, fast + s * k * d, norms + s * k, doubt + s * 3, offset, k, d, unit, trust, exact,
              floor, &widest);
}

// What a restart carries from iteration to iteration. Scalars of the search are in `Plan`.
#define STOP_PATIENCE 1
#define STOP_MAX_ITER 2

// X            (N, d)          in
// labels       (R, N)          in   of the current means
// totals       (R, K, C)       in   counts in the last column
// keys         (R, K)          in   best free point of each cluster
// costs        (R, 3)          in   limbs of J
// means        (R, K)          in/out  M_c, then M_n
// rows         (R, K, L)       in/out  tabu rows, length (R, K)
// best_means   (R, K), best_cost (R), stale (R), age (R), done (R)   in/out
// current, best (R, T + 1), path (R, T + 1, K)   out   the trace, one column per iteration
// centers, fast, norms, doubt  out   of M_n, for the next assign
// Judges M_c by its J, then moves on (gputabu.quantized.step and neighbours, gputabu.tabu). One block per restart:
// grid = (R), block = (any). Shared: 16·K bytes. Ties are those of the keys.
extern "C" __global__ void step(const real* __restrict__ X, const int* __restrict__ labels,
                                const idx* __restrict__ totals, const word* __restrict__ keys,
                                const idx* __restrict__ costs, idx* __restrict__ means, idx* __restrict__ rows,
                                int* __restrict__ length, idx* __restrict__ best_means,
                                double* __restrict__ best_cost, int* __restrict__ stale, int* __restrict__ age,
                                int* __restrict__ done, double* __restrict__ current, double* __restrict__ best,
                                idx* __restrict__ path, double* __restrict__ centers, real* __restrict__ fast,
                                real* __restrict__ norms, real* __restrict__ doubt,
                                const double* __restrict__ offset, double cost0, double cost1, double cost2,
                                double noise, double unit, double trust, double exact, double floor, idx pitch,
                                int k, int d, int columns, int capacity, int max_iter, int patience,
                                int global_scope) {
    DYNAMIC_SHARED(idx, next);  // (K) then (K): the next means, and where rows are cut
    __shared__ word widest;
    __shared__ int verdict;  // 0 goes on, 1 is a new best, 2 is not
    idx* cut = next + k;
    const idx s = blockIdx.x;
    if (done[s]) return;
    const int iteration = age[s] - 1;
    __syncthreads();  // everyone has read age and done
    idx* mean = means + s * k;
    if (threadIdx.x == 0) {
        const double J = __dadd_rn(__dadd_rn(from_limb(costs[3 * s], cost0), from_limb(costs[3 * s + 1], cost1)),
                                   from_limb(costs[3 * s + 2], cost2));
        const bool better = iteration == 0 || J < __dmul_rn(best_cost[s], noise);
        if (better) best_cost[s] = J;
        stale[s] = better ? 0 : stale[s] + 1;
        current[s * (max_iter + 1) + iteration] = J;
        best[s * (max_iter + 1) + iteration] = best_cost[s];
        if (stale[s] >= patience) done[s] = STOP_PATIENCE;
        else if (iteration == max_iter) done[s] = STOP_MAX_ITER;
        age[s] = iteration + 2;
        verdict = better;
    }
    __syncthreads();
    for (int a = threadIdx.x; a < k; a += blockDim.x) {
        if (verdict) best_means[s * k + a] = mean[a];
        path[(s * (max_iter + 1) + iteration) * k + a] = mean[a];
    }
    if (done[s]) return;
    for (int a = threadIdx.x; a < k; a += blockDim.x) {  // every cluster looks at the rows as they are
        const idx cluster = s * k + a;
        next[a] = mean[a];
        cut[a] = -1;
        if (keys[cluster] != NO_KEY) {
            next[a] = (idx)(keys[cluster] & 0xFFFFFFFFull);
        } else if (totals[cluster * columns + columns - 1] > 0) {  // all members are tabu: the deletion rule
            for (int l = length[cluster] - 1; l >= 0; --l) {
                const idx n = rows[cluster * capacity + l];
                if (labels[s * pitch + n] != a) continue;
                bool elsewhere = false;
                if (global_scope)
                    for (int b = 0; b < k && !elsewhere; ++b)
                        for (int m = 0; b != a && m < length[s * k + b] && !elsewhere; ++m)
                            elsewhere = rows[(s * k + b) * capacity + m] == n;
                if (elsewhere) continue;
                next[a] = n;
                cut[a] = l;
                break;
            }
        }
    }
    __syncthreads();
    for (int a = threadIdx.x; a < k; a += blockDim.x) {
        const idx cluster = s * k + a;
        int size = cut[a] >= 0 ? (int)cut[a] : length[cluster];
        bool held = false;
        for (int l = 0; l < size && !held; ++l) held = rows[cluster * capacity + l] == mean[a];
        if (!held) rows[cluster * capacity + size++] = mean[a];
        length[cluster] = size;
        mean[a] = next[a];
        for (int j = 0; j < d; ++j) centers[cluster * d + j] = widen(X[next[a] * d + j]);
    }
    __syncthreads();
    make_fast(centers + s * k * d, fast + s * k * d, norms + s * k, doubt + s * 3, offset, k, d, unit, trust, exact,
              floor, &widest);
}
