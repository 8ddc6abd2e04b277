// reassign, swap_gains: relocation of centres (backend.arithmetic.rules has the formulas).
//
// A warp has 32 points at a time. What only some of them need is done by all lanes together. Sums are integers, and may
// be added in any order: of the costs in registers, of the swaps in shared memory where that has room.
#include "limbs.cuh"
#include "lists.cuh"

#define THREADS 256
#define REASSIGN_SHARED(ARRAY) ARRAY(double, factors, tabled * 2 * k)

// X        (n, d)      in   rows of the chunk
// weight   (n)         in   or null
// mass     (R, 2, K)   in   weights of the clusters, or null: every point goes to its nearest centre
// which    (m)         in   the restarts to look at
// nearest              in
// labels   (R, pitch)  in/out
// totals   (R, K, C), changed (R)  in/out, += what changes
// costs    (R, 3)      in/out, += limbs of J at the centres of `nearest`
// done     (R)         in   or null: restarts to leave alone
// tabled: the two quotients of each cluster are in shared memory, where all weights are one.
// 32 points per warp, striding. grid = (m, any), block = (THREADS).
// bytes: n * m * 32
extern "C" __global__ void __launch_bounds__(THREADS, 2)
reassign(const real* __restrict__ X, const double* __restrict__ weight, const double* __restrict__ mass,
         const idx* __restrict__ which, NearestTwo nearest, int* __restrict__ labels, idx* __restrict__ totals,
         idx* __restrict__ changed, idx* __restrict__ costs, const int* __restrict__ done, Grid grid, Chunk chunk, int k,
         int d, int tabled) {
    __shared__ idx sums[3];
    __shared__ unsigned moves;
    const idx s = which[blockIdx.x], n = chunk.n;
    if (done && done[s]) return;
    DYNAMIC_SHARED(char, carved);
    REASSIGN_SHARED(CARVE)
    const double *left = mass + s * 2 * k, *entered = left + k;
    if (tabled)
#pragma unroll 1
        for (int a = threadIdx.x; a < k; a += THREADS) {
            const double rest = __dsub_rn(left[a], 1.0);
            factors[a] = rest > 0.0 ? __ddiv_rn(left[a], rest) : -1.0;
            factors[k + a] = __ddiv_rn(entered[a], __dadd_rn(entered[a], 1.0));
        }
    if (threadIdx.x < 3) sums[threadIdx.x] = 0;
    if (threadIdx.x == 0) moves = 0;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    const Power power = power_of(grid.cost_scale);
    idx limbs[3] = {0, 0, 0};
    int moved = 0;
#pragma unroll 1
    for (idx base = ((idx)blockIdx.y * THREADS + threadIdx.x) / 32 * 32; base < n; base += (idx)gridDim.y * THREADS) {
        const bool alive = base + lane < n;
        const idx i = alive ? base + lane : n - 1, at = s * chunk.pitch + chunk.start + i;
        const int old = alive ? labels[at] : 0;  // the last lanes repeat a point, whose own lane may write its label
        const int a = nearest.first[at], b = nearest.second[at];
        const double near = nearest.near[at], far = nearest.far[at], w = weight ? weight[i] : 1.0;
        int found = a;
        if (mass && w > 0.0 && (old == a || old == b)) {
            const bool inner = old == a;
            const int other = inner ? b : a;
            double leaving = -1.0, entering = 0.0;
            if (tabled) {
                leaving = factors[old];
                entering = factors[k + other];
            } else {  // share: not tabled
                const double rest = __dsub_rn(left[old], w);
                if (rest > 0.0) leaving = __ddiv_rn(left[old], rest);
                entering = __ddiv_rn(entered[other], __dadd_rn(entered[other], w));
            }
            found = old;
            const double leave = __dmul_rn(leaving, inner ? near : far), enter = __dmul_rn(entering, inner ? far : near);
            if (leaving >= 0.0 && __dsub_rn(leave, enter) > __dmul_rn(NOISE, leave)) found = other;
        }
        const double cost = found == a ? near : far;
        if (alive) add_limbs(limbs, weight ? __dmul_rn(cost, w) : cost, power);
        unsigned leavers = __ballot_sync(ALL_LANES, alive && found != old);
        if (!leavers) continue;  // beyond: warp(changed)
        if (leavers >> lane & 1) labels[at] = found;
        moved += __popc(leavers);
#pragma unroll 1
        while (leavers) {  // trips: 32 * changed / max(1e-9, warp(changed))
            const int who = __ffs((int)leavers) - 1;
            const idx row = base + who;
            move_by_warp(totals + s * k * columns_of(d, weight), __shfl_sync(ALL_LANES, old, who),
                         __shfl_sync(ALL_LANES, found, who), X + row * d, d, weight, row, grid.offset, grid.scale,
                         grid.weight_scale);
            leavers &= leavers - 1;
        }
    }
#pragma unroll
    for (int limb = 0; limb < 3; ++limb) {
        const idx sum = warp_sum(limbs[limb]);
        if (lane == 0 && sum) add_to(sums + limb, sum);
    }
    if (lane == 0 && moved) atomicAdd(&moves, (unsigned)moved);
    __syncthreads();
    if (threadIdx.x < 3 && sums[threadIdx.x]) add_to(costs + s * 3 + threadIdx.x, sums[threadIdx.x]);
    if (threadIdx.x == 0 && moves) add_to(changed + s, moves);
}
