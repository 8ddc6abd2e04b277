// swap_gains: by what candidates in place of centres change J (backend.arithmetic.rules has the formula).
//
// A warp has 32 points at a time, in shared memory. Distances to AT_ONCE candidates together, in the type of the points,
// leave out those that are farther than the second nearest centre by more than their error: nearly all. The rest are a
// list of pairs, which lanes measure canonically. Sums are integers, in shared memory where that has room for them.
//
// Macros: D: coordinates, or 0 where the compiler need not know; STAGED: the points are in shared memory; WARPS.
#include "limbs.cuh"
#include "rows.cuh"
#include "structs.cuh"

// Candidates whose distances are computed together.
#define AT_ONCE 8

#define SWAP_GAINS_SHARED(ARRAY)                              \
    ARRAY(double, origin, d)                                  \
    ARRAY(idx, own_loss, private_sums * 3 * k)                \
    ARRAY(idx, own_change, private_sums * trials * 3 * (k + 1)) \
    ARRAY(real, near, 8 * groups * d)                         \
    ARRAY(real, offsets, d)                                   \
    ARRAY(real, all_rows, STAGED * WARPS * 32 * (d | 1))      \
    ARRAY(int, all_pairs, WARPS * 32 * 8)

__device__ __forceinline__ void add_three(idx* to, const idx (&limbs)[3]) {
#pragma unroll
    for (int limb = 0; limb < 3; ++limb)
        if (limbs[limb]) add_to(to + limb, limbs[limb]);
}

// X          (n, d)        in   rows of the chunk
// weight     (n)           in   or null
// candidates (R, T, d)     in
// loss       (R, K, 3)         in/out, += limbs of w (d₂ - d₁) over the points of each cluster
// change     (R, T, K + 1, 3)  in/out, += how a candidate changes that; in row K what it saves
// done       (R)           in   or null: restarts to leave alone
// private_sums: both are in shared memory, and are added up at the end; groups of AT_ONCE candidates.
// 32 points per warp, striding. grid = (R, any), block = (32 WARPS).
// bytes: n * (4 * d + 20 * r)
extern "C" __global__ void __launch_bounds__(32 * WARPS, 16 / WARPS)
swap_gains(const real* __restrict__ X, const double* __restrict__ weight, const double* __restrict__ candidates,
           NearestTwo nearest, idx* __restrict__ loss, idx* __restrict__ change, const int* __restrict__ done,
           const double* __restrict__ offset, Chunk chunk, Shape shape, Doubt doubt, int trials, int groups,
           int private_sums, double cost_scale) {
    __shared__ unsigned widest;
    const int k = shape.k, d = D > 0 ? D : shape.d, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const idx s = blockIdx.x, n = chunk.n;
    if (done && done[s]) return;
    DYNAMIC_SHARED(char, carved);
    SWAP_GAINS_SHARED(CARVE)
    const double* const from = candidates + s * trials * d;
    const int sums = private_sums * 3 * (k + trials * (k + 1));
    for (int t = threadIdx.x; t < sums; t += 32 * WARPS) own_loss[t] = 0;  // the changes follow
    for (int j = threadIdx.x; j < d; j += 32 * WARPS) {
        origin[j] = offset[j];
        offsets[j] = (real)offset[j];
    }
    idx* const losses = private_sums ? own_loss : loss + s * 3 * k;
    idx* const changes = private_sums ? own_change : change + s * trials * 3 * (k + 1);
    if (threadIdx.x == 0) widest = 0;
    __syncthreads();
#pragma unroll 1
    for (int t = threadIdx.x; t < 8 * groups * d; t += 32 * WARPS) {  // padding is the last candidate again
        const int c = min(t / (8 * d) * 8 + t % 8, trials - 1), j = t / 8 % d;
        near[t] = (real)((from[(idx)c * d + j] - origin[j]) * doubt.unit);
    }
    __syncthreads();
#pragma unroll 1
    for (int c = threadIdx.x; c < trials; c += 32 * WARPS) {  // trips: trials / threads
        real norm = 0;
#pragma unroll 1
        for (int j = 0; j < d; ++j) {
            const real v = near[(c / 8 * d + j) * 8 + c % 8];
            norm += v * v;
        }
        atomicMax(&widest, __float_as_uint((float)norm * 1.0001f));
    }
    __syncthreads();
    const real reach = sqrt((real)__uint_as_float(widest)), trust = (real)(doubt.fast + doubt.exact);
    const bool plain = doubt.unit == 1.0;
    const idx stride = STAGED ? STRIDE(d) : d;
    const Power power = power_of(cost_scale);
    int* const pairs = all_pairs + warp * 256;
#pragma unroll 1
    for (idx base = ((idx)blockIdx.y * WARPS + warp) * 32; base < n; base += (idx)gridDim.y * WARPS * 32) {
        const int count = (int)min((idx)32, n - base);
        const real* rows = X + base * d;
        if (STAGED) {
            stage<D>(rows, all_rows + warp * 32 * STRIDE(d), count, d);
            rows = all_rows + warp * 32 * STRIDE(d);
        }
        const idx i = base + min(lane, count - 1), at = s * chunk.pitch + chunk.start + i;
        const double w = weight ? weight[i] : 1.0, d1 = nearest.near[at], d2 = nearest.far[at];
        const int label = nearest.first[at];
        idx lost[3] = {0, 0, 0};
        add_limbs(lost, __dmul_rn(__dsub_rn(d2, d1), w), power);
        if (lane < count) add_three(losses + label * 3, lost);
        const real* const x = rows + (STAGED ? lane : min(lane, count - 1)) * stride;
        const real second = (real)(plain ? d2 : d2 * doubt.unit * doubt.unit);
#pragma unroll 1
        for (int g = 0; g < groups; ++g) {
            real squares[AT_ONCE], norm = 0;
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) squares[c] = 0;
#pragma unroll 2
            for (int j = 0; j < d; ++j) {  // trips: ceil(d / 2)
                real v = x[j] - offsets[j];
                if (!plain) v = relative(x[j], origin[j], doubt.unit);  // share: 0
                const real* const others = near + ((idx)g * d + j) * AT_ONCE;
                norm += v * v;
#pragma unroll
                for (int c = 0; c < AT_ONCE; ++c) {
                    const real diff = v - others[c];
                    squares[c] += diff * diff;
                }
            }
            const real both = sqrt(norm) + reach;
            const real limit = (second + trust * both * both + (real)doubt.floor) * (real)1.00001;
            int listed = 0;
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) {  // also where one is not a number
                const bool hit = lane < count && 8 * g + c < trials && !(squares[c] > limit);
                const unsigned mask = __ballot_sync(ALL_LANES, hit);
                if (hit) pairs[listed + __popc(mask & ((1u << lane) - 1))] = 32 * c + lane;
                listed += __popc(mask);
            }
            __syncwarp();
#pragma unroll 1
            for (int first = 0; first < listed; first += 32) {  // trips: 1; a pair for a warp and group of candidates
                const bool mine = first + lane < listed;
                const int pair = pairs[mine ? first + lane : first], who = pair % 32, c = 8 * g + pair / 32;
                const real* const y = rows + who * stride;
                const double* const z = from + (idx)c * d;
                double square = 0.0;
#pragma unroll 4
                for (int j = 0; j < d; ++j) square = add_square(square, unflushed(y[j]), __ldg(z + j));  // trips: ceil(d / 4)
                const double p = __shfl_sync(ALL_LANES, d1, who), q = __shfl_sync(ALL_LANES, d2, who);
                const double heavy = __shfl_sync(ALL_LANES, w, who);
                const int whose = __shfl_sync(ALL_LANES, label, who);
                if (!mine || !(square < q)) continue;
                // The candidate takes the place of the second, and of the first where it is nearer than that.
                const bool nearer = square < p;
                idx gone[3] = {0, 0, 0}, moved[3] = {0, 0, 0};
                add_limbs(gone, __dmul_rn(__dsub_rn(q, p), heavy), power);
                add_limbs(moved, __dmul_rn(nearer ? __dsub_rn(p, square) : __dsub_rn(square, p), heavy), power);
                idx* const row = changes + (idx)c * (k + 1) * 3;
#pragma unroll
                for (int limb = 0; limb < 3; ++limb) gone[limb] = (nearer ? 0 : moved[limb]) - gone[limb];
                add_three(row + whose * 3, gone);
                if (nearer) add_three(row + k * 3, moved);
            }
            __syncwarp();  // the pairs have been read
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int t = threadIdx.x; t < sums; t += 32 * WARPS)
        if (own_loss[t])
            add_to(t < 3 * k ? loss + s * 3 * k + t : change + s * trials * 3 * (k + 1) + (t - 3 * k), own_loss[t]);
}
