// pair_nearest, settle, swap_gains: relocation of centres (gputabu.backend.pairing).
#include "common.cuh"

#define NOISE 9.094947017729282e-13  // 2^-40, gputabu.results.NOISE

// X        (n, d)      in   rows start .. start + n - 1 of the data set
// centers  (R, K, d)   in   K >= 2
// which    (m)         in   the restarts to look at
// first, second (R, pitch) out  the two nearest centres; near, far (R, pitch) out  canonical d² to them
// One thread per (restart, point), striding. grid = (any), block = (any), no shared memory. Ties: lowest number.
extern "C" __global__ void pair_nearest(const real* __restrict__ X, const double* __restrict__ centers,
                                        const idx* __restrict__ which, int* __restrict__ first,
                                        int* __restrict__ second, double* __restrict__ near, double* __restrict__ far,
                                        idx n, idx start, idx pitch, idx m, int k, int d) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < m * n; t += (idx)gridDim.x * blockDim.x) {
        const idx s = which[t / n], i = t % n, at = s * pitch + start + i;
        const double* its = centers + s * k * d;
        double low = __longlong_as_double(0x7FF0000000000000LL), next = low;
        int a = 0, b = 0;
        for (int c = 0; c < k; ++c) {
            const double square = canonical(X + i * d, its + (idx)c * d, d);
            if (square < low) { next = low; b = a; low = square; a = c; }
            else if (square < next) { next = square; b = c; }
        }
        first[at] = a;
        second[at] = b;
        near[at] = low;
        far[at] = next;
    }
}

// weight   (n)         in   or null
// mass     (R, 2, K)   in   weights of the clusters, or null: every point goes to its nearest centre
// labels   (R, pitch)  in/out
// totals   (R, K, C), changed (R)  in/out, += what changes
// costs    (R, 3)      in/out, += limbs of J at the centres of the pairs
// The rest as above; offset, scale (d): of the grid. One thread per point, striding. grid = (m, any).
extern "C" __global__ void settle(const real* __restrict__ X, const double* __restrict__ weight,
                                  const double* __restrict__ mass, const idx* __restrict__ which,
                                  const int* __restrict__ first, const int* __restrict__ second,
                                  const double* __restrict__ near, const double* __restrict__ far,
                                  int* __restrict__ labels, idx* __restrict__ totals, idx* __restrict__ changed,
                                  idx* __restrict__ costs, const double* __restrict__ offset, const double* __restrict__ scale, idx n,
                                  idx start, idx pitch, int k, int d, int columns, double heavy,
                                  double to_limbs) {
    const idx s = which[blockIdx.x];
    idx sums[3] = {0, 0, 0};
    for (idx i = (idx)blockIdx.y * blockDim.x + threadIdx.x; i < n; i += (idx)gridDim.y * blockDim.x) {
        const idx at = s * pitch + start + i;
        const int old = labels[at], a = first[at], b = second[at];
        const double w = weight ? weight[i] : 1.0;
        int found = a;
        if (mass && w > 0.0 && (old == a || old == b)) {
            const bool inner = old == a;
            const int other = inner ? b : a;
            const double left = mass[s * 2 * k + old], right = mass[s * 2 * k + k + other];
            const double rest = __dsub_rn(left, w);
            found = old;
            if (rest > 0.0) {
                const double leave = __dmul_rn(__ddiv_rn(left, rest), inner ? near[at] : far[at]);
                const double enter = __dmul_rn(__ddiv_rn(right, __dadd_rn(right, w)), inner ? far[at] : near[at]);
                if (__dsub_rn(leave, enter) > __dmul_rn(NOISE, leave)) found = other;
            }
        }
        double cost = found == a ? near[at] : far[at];
        if (weight) cost = __dmul_rn(cost, w);
        cost = __dmul_rn(cost, to_limbs);
        for (int limb = 0; limb < 3; ++limb) sums[limb] += next_limb(cost);
        if (found == old) continue;
        labels[at] = found;
        add_to(changed + s, 1);
        idx* its = totals + s * k * columns;
        contribute(its + (idx)found * columns, X + i * d, d, weight, i, offset, scale, heavy, 1);
        if (old >= 0) contribute(its + (idx)old * columns, X + i * d, d, weight, i, offset, scale, heavy, -1);
    }
    for (int limb = 0; limb < 3; ++limb)
        if (sums[limb]) add_to(costs + s * 3 + limb, sums[limb]);
}

// Adds (sign = 1) or takes away (-1) the limbs of a term of J.
__device__ void add_limbs(idx* sums, double value, idx sign) {
#pragma unroll 1  // the atomics take longer
    for (int limb = 0; limb < 3; ++limb) {
        const idx part = next_limb(value);
        if (part) add_to(sums + limb, sign * part);
    }
}

// candidates (R, T, d)         in
// loss       (R, K, 3)         in/out, += limbs of w (d₂ - d₁) over the points of each cluster
// change     (R, T, K + 1, 3)  in/out, += how a candidate changes that; in row K what it saves
// One thread per (restart, point), striding. grid = (any), block = (any), no shared memory.
extern "C" __global__ void swap_gains(const real* __restrict__ X, const double* __restrict__ weight,
                                      const double* __restrict__ candidates, const int* __restrict__ first,
                                      const double* __restrict__ near, const double* __restrict__ far,
                                      idx* __restrict__ loss, idx* __restrict__ change, idx n, idx start, idx pitch,
                                      int r, int trials, int k, int d, double to_limbs) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < r * n; t += (idx)gridDim.x * blockDim.x) {
        const idx s = t / n, i = t % n, at = s * pitch + start + i;
        const double w = weight ? weight[i] : 1.0, d1 = near[at], d2 = far[at];
        const int own = first[at];
        const double lost = __dmul_rn(__dmul_rn(__dsub_rn(d2, d1), w), to_limbs);
        add_limbs(loss + (s * k + own) * 3, lost, 1);
        for (int c = 0; c < trials; ++c) {
            const idx pair = s * trials + c;
            const double square = canonical(X + i * d, candidates + pair * d, d);
            if (!(square < d2)) continue;
            idx* mine = change + pair * (k + 1) * 3;
            add_limbs(mine + own * 3, lost, -1);
            const bool nearer = square < d1;
            const double moved = nearer ? __dsub_rn(d1, square) : __dsub_rn(square, d1);
            add_limbs(mine + (nearer ? k : own) * 3, __dmul_rn(__dmul_rn(moved, w), to_limbs), 1);
        }
    }
}
