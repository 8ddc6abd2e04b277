// neighbours_choose, neighbours_step: the O(K) work of a tabu iteration with several neighbours (algorithms.quantized).
//
// Each of R restarts has M lanes, a neighbour of M_c each. An iteration replays: assign, prepare and survey of all
// lanes, neighbours_choose, a survey of the winners per runner-up, neighbours_step. A lane keeps the labels of its last
// neighbour: those of the next depend on its means alone, and totals are sums of integers.
#include "search.cuh"

// costs     (R·M, 3)  in   limbs of J
// restarts            in   done
// lanes               out  winner, lost
// One thread per restart, striding. grid = (any), block = (any), no shared memory. Ties, up to rounding: the first.
extern "C" __global__ void neighbours_choose(const idx* costs, Restarts restarts, Lanes lanes, Grid grid, int r,
                                             int neighbours) {
    for (idx s = (idx)blockIdx.x * blockDim.x + threadIdx.x; s < r; s += (idx)gridDim.x * blockDim.x) {
        if (restarts.done[s]) continue;
        double least = cost_of(costs + 3 * s * neighbours, grid);
        for (int m = 1; m < neighbours; ++m) {
            const double J = cost_of(costs + 3 * (s * neighbours + m), grid);
            if (J < least) least = J;
        }
        int winner = 0;
        while (!(cost_of(costs + 3 * (s * neighbours + winner), grid) <= __dmul_rn(least, 1.0 + NOISE))) ++winner;
        lanes.winner[s] = winner;
        for (int m = 0; m < neighbours; ++m) lanes.lost[s * neighbours + m] = m != winner;
    }
}

// X        (N, d)         in, weight (N) in or null
// labels   (R·M, N)       in
// totals   (R·M, K, C)    in
// keys     (M, R·M, K)    in   best free points of each cluster of the winners, best first
// costs    (R·M, 3)       in
// restarts, lanes         in/out  M_c becomes the winner, the lanes its neighbours
// centers (R·M, K, d), fast  out  of the lanes
// scratch  (R, 2, K)
// One block per restart: grid = (R), block = (any).
extern "C" __global__ void neighbours_step(const real* X, const double* weight, const int* labels, const idx* totals,
                                           const word* keys, const idx* costs, double* centers, FastCenters fast,
                                           idx* scratch, Restarts restarts, Lanes lanes, Grid grid, Doubt doubt,
                                           Limits limits, Shape shape, int neighbours, idx n) {
    __shared__ word widest;
    const int k = shape.k, d = shape.d, columns = columns_of(d, weight);
    const idx s = blockIdx.x, first = s * neighbours, all = (idx)shape.r * neighbours;
    if (restarts.done[s]) return;
    const Restarts me = restart_of(restarts, s, k, limits);
    const idx won = first + lanes.winner[s];
    for (int a = threadIdx.x; a < k; a += blockDim.x) me.means[a] = lanes.means[won * k + a];
    __syncthreads();  // also: everyone has read `done`
    const bool goes_on = advance(me, limits, cost_of(costs + 3 * won, grid), labels + won * n, weight,
                                 totals + won * k * columns, keys + won * k, k, columns, scratch + 2 * s * k);
    for (int m = threadIdx.x; m < neighbours; m += blockDim.x) {
        if (goes_on) lanes.age[first + m] = *me.age;
        lanes.done[first + m] = lanes.lost[first + m] = !goes_on;
    }
    if (!goes_on) return;
    for (int a = threadIdx.x; a < k; a += blockDim.x) {
        idx point = me.means[a];
        for (int m = 0; m < neighbours; ++m) {  // a cluster with fewer free points repeats its last
            const word key = keys[(m * all + won) * k + a];
            if (m > 0 && key != NO_KEY) point = (idx)(key & 0xFFFFFFFFull);
            lanes.means[(first + m) * k + a] = point;
        }
    }
    __syncthreads();
    for (idx t = threadIdx.x; t < (idx)neighbours * k * d; t += blockDim.x)
        centers[first * k * d + t] = widen(X[lanes.means[first * k + t / d] * d + t % d]);
    for (int m = 0; m < neighbours; ++m) {
        __syncthreads();  // the centres are there, and `widest` has been read
        make_fast(centers + (first + m) * k * d, fast_of(fast, first + m, k, d), grid.offset, k, d, doubt, &widest);
    }
}
