// prepare and step: the O(K) work of a tabu iteration, on the device, so that no iteration waits for the host.
//
// A search of R restarts replays: assign, prepare, survey, step. All state stays in device memory.
#include "search.cuh"

// totals     (R, K, C)     in
// centers    (R, K, d)     in   kept where a cluster is empty
// centroids  (R, K, d)     out
// labels     (R, pitch)    in
// stamps     (R, pitch)    in/out, = age where the survey may not choose the point
// costs (R, 3), keys (lanes, R, K) out  cleared for the surveys
// restarts                 in   tabu rows, age, done; each has `lanes` of the R rows of the other arrays
// bytes: r * k * (8 * capacity + 48 * d + 16)
// One thread per element of the longest array, striding. grid = (any), block = (any), no shared memory.
extern "C" __global__ void prepare(const idx* __restrict__ totals, const double* __restrict__ centers,
                                   double* __restrict__ centroids, const int* __restrict__ labels,
                                   int* __restrict__ stamps, idx* __restrict__ costs, word* __restrict__ keys,
                                   Restarts restarts, Grid grid, Limits limits, Shape shape, idx pitch, int weighted,
                                   int lanes) {
    const idx me = (idx)blockIdx.x * blockDim.x + threadIdx.x, all = (idx)gridDim.x * blockDim.x;
    const int r = shape.r, k = shape.k, d = shape.d, columns = columns_of(d, weighted), capacity = limits.capacity;
    for (idx t = me; t < (idx)r * k * d; t += all) {
        const idx cluster = t / d;
        centroids[t] = centroid(totals + cluster * columns, d, (int)(t % d), weighted, grid, centers[t]);
    }
    for (idx t = me; t < (idx)r * 3; t += all) costs[t] = 0;
    for (idx t = me; t < (idx)lanes * r * k; t += all) keys[t] = NO_KEY;
    for (idx t = me; t < (idx)r * k * capacity; t += all) {
        const idx cluster = t / capacity, s = cluster / k, restart = s / lanes, row = restart * k + cluster % k;
        const int length = restarts.length[row], done = restarts.done[restart], age = restarts.age[restart];
        const idx n = restarts.rows[row * capacity + t % capacity];  // behind the length: some row, or 0
        if ((int)(t % capacity) >= length || done) continue;
        if (limits.shared || labels[s * pitch + n] == (int)(cluster % k)) atomicExch(stamps + s * pitch + n, age);
    }
}

// X            (N, d)     in, weight (N) in or null
// labels       (R, N)     in   of the current means
// totals       (R, K, C)  in   counts in the last column
// keys         (R, K)     in   best free point of each cluster
// costs        (R, 3)     in   limbs of J
// restarts                in/out  M_c becomes M_n
// centers (R, K, d), fast out  of M_n, for the next assign
// scratch      (R, 2, K)  not in shared memory: K may be in the thousands
// gathers: centers are written here; otherwise `gather` does it, and halves are made of them.
// bytes: r * k * (24 * d * gathers + 64)
// Judges M_c and moves on. One block per restart: grid = (R), block = (any).
extern "C" __global__ void step(const real* __restrict__ X, const double* __restrict__ weight,
                                const int* __restrict__ labels, const idx* __restrict__ totals,
                                const word* __restrict__ keys, const idx* __restrict__ costs,
                                double* __restrict__ centers, FastCenters fast, idx* __restrict__ scratch,
                                Restarts restarts, Grid grid, Doubt doubt, Limits limits, Shape shape, idx pitch, int gathers) {
    __shared__ word widest;
    const int k = shape.k, d = shape.d, columns = columns_of(d, weight);
    const idx s = blockIdx.x;
    if (restarts.done[s]) return;
    const Restarts me = restart_of(restarts, s, k, limits);
    const double J = cost_of(costs + 3 * s, grid);
    __syncthreads();  // everyone has read `done`
    labels += s * pitch;
    const idx* mine = totals + s * k * columns;
    if (!advance(me, limits, J, labels, weight, mine, keys + s * k, k, columns, scratch + 2 * s * k)) return;
    if (!gathers) return;  // beyond: gathers
    for (int t = threadIdx.x; t < k * d; t += blockDim.x)
        centers[s * k * d + t] = widen(X[me.means[t / d] * d + t % d]);
    __syncthreads();
    make_fast(centers + s * k * d, fast_of(fast, s, k, d), grid.offset, k, d, doubt, &widest);
}

// X        (N, d)     in
// restarts            in   means, done
// centers  (R, K, d)  out  of the means
// bytes: r * k * d * 16
// The centres behind `step`, where these are many numbers. One thread per number, striding. grid = (any), block = (any).
extern "C" __global__ void gather(const real* __restrict__ X, double* __restrict__ centers, Restarts restarts,
                                  Shape shape) {
    const int k = shape.k, d = shape.d;
    const idx all = (idx)shape.r * k * d, pace = (idx)gridDim.x * blockDim.x;
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < all; t += pace)
        if (!restarts.done[t / d / k]) centers[t] = widen(X[restarts.means[t / d] * d + t % d]);
}
