// lloyd_means and lloyd_step: the O(K) work of an iteration of K-Means, on the device (algorithms.lloyd.descend).
//
// R descents replay: assign, lloyd_means, lloyd_step. A restart with an empty cluster is PAUSED: the host finds the
// farthest points, and makes its step by the same two kernels. `turn` says whose step it is: 0 or PAUSED.
#include "ordered.cuh"
#include "search.cuh"

// 64 bits of the totals of cluster `number`. Each total goes through a bijection that mixes all bits (splitmix64).
__device__ word mark_of(const idx* cluster, int columns, int number) {
    word mark = (word)number;
    for (int c = 0; c < columns; ++c) {
        mark = (mark ^ (word)cluster[c]) + 0x9E3779B97F4A7C15ull;
        mark = (mark ^ (mark >> 30)) * 0xBF58476D1CE4E5B9ull;
        mark = (mark ^ (mark >> 27)) * 0x94D049BB133111EBull;
        mark ^= mark >> 31;
    }
    return mark;
}

// totals  (R, K, C)  in   of the labels
// lent    (R, K, C)  in   the same, but for points that were lent to empty clusters: means are made of these
// state              in   centers, done; out means, sums, marks
// One thread per cluster, striding. grid = (any), block = (any), no shared memory.
extern "C" __global__ void lloyd_means(const idx* totals, const idx* lent, Descents state, Grid grid, Shape shape,
                                       int weighted, int turn) {
    const int k = shape.k, d = shape.d, columns = columns_of(d, weighted);
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < (idx)shape.r * k; t += (idx)gridDim.x * blockDim.x) {
        const idx s = t / k, *cluster = totals + t * columns;
        const int a = (int)(t % k);
        if (state.done[s] != turn) continue;
        double shift = 0.0, away = 0.0;
        for (int j = 0; j < d; ++j) {
            const double before = state.centers[t * d + j], offset = grid.offset[j];
            const double mean = centroid(lent + t * columns, d, j, weighted, grid, before);
            state.means[t * d + j] = mean;
            shift = add_square(shift, mean, before);
            away = add_square(away, centroid(cluster, d, j, weighted, grid, offset), offset);
        }
        double* sums = state.sums + s * 2 * k;
        sums[a] = shift;
        sums[k + a] = __dmul_rn(weight_of(cluster, d, weighted, grid), away);
        state.marks[t] = mark_of(cluster, columns, a);
    }
}

// totals   (R, K, C)  in
// changed  (R)        in   points that changed cluster; out zero, for the next assign
// state               in/out  centers become means
// fast                out  of the new centers
// Judges the step and records it. One block per restart: grid = (R), block = (any).
extern "C" __global__ void lloyd_step(const idx* totals, idx* changed, Descents state, FastCenters fast, Grid grid,
                                      Doubt doubt, DescentLimits limits, Shape shape, int weighted, int turn) {
    __shared__ double waiting[ORDERED];
    __shared__ word widest, print;
    __shared__ int empty, known, over;
    const int k = shape.k, d = shape.d, columns = columns_of(d, weighted);
    const idx s = blockIdx.x, steps = limits.max_iter;
    if (state.done[s] != turn) return;
    const int age = state.age[s];
    if (threadIdx.x == 0) { print = 0; empty = known = 0; }
    __syncthreads();  // also: everyone has read `done` and the age
    for (int a = threadIdx.x; a < k; a += blockDim.x) {
        if (totals[(s * k + a + 1) * columns - 1] == 0) atomicExch(&empty, 1);
        atomicAdd(&print, state.marks[s * k + a]);
    }
    __syncthreads();
    if (empty && turn != PAUSED) {
        if (threadIdx.x == 0) state.done[s] = PAUSED;
        return;
    }
    for (int t = threadIdx.x; t < age; t += blockDim.x)  // then only rounding moves points to and fro
        if (state.prints[s * steps + t] == print) atomicExch(&known, 1);
    const double shift = sum_in_order(state.sums + s * 2 * k, k, waiting);
    const double between = sum_in_order(state.sums + s * 2 * k + k, k, waiting);
    __syncthreads();
    if (threadIdx.x == 0) {
        const idx moves = changed[s];
        changed[s] = 0;
        state.prints[s * steps + age] = print;
        state.age[s] = age + 1;
        if (state.current) {
            const double within = __dsub_rn(limits.scatter, between);
            state.current[s * (steps + 1) + age + 1] = within > 0.0 ? within : 0.0;
            state.moves[s * steps + age] = moves;
        }
        over = known || moves == 0 ? STOP_CONVERGED
               : limits.allowed > 0.0 && shift <= limits.allowed ? STOP_TOLERANCE
               : age + 1 == limits.max_iter ? STOP_MAX_ITER : 0;
        state.done[s] = over;
    }
    for (int t = threadIdx.x; t < k * d; t += blockDim.x) state.centers[s * k * d + t] = state.means[s * k * d + t];
    __syncthreads();
    if (!over) make_fast(state.centers + s * k * d, fast_of(fast, s, k, d), grid.offset, k, d, doubt, &widest);
}
