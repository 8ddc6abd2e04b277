// fuzzy_sums, memberships: fuzzy memberships, and what they sum up to (backend.arithmetic.powers has the formulas).
#include "powers.cuh"

// X        (n, d)            in   rows of the chunk
// weight   (n)               in   or null
// centers  (R, K, d)         in
// scale    (d + 1)           in   to the terms of the sums, last that of weights
// sums     (2, R, K, d + 1)  in/out, += limbs of the moments of memberships and of their weight
// costs    (R, 3)            in/out, += limbs of J
// A block has FUZZY_TILE points: first a thread for each, which finds its memberships of some centres; then a thread for
// each of the sums of these centres, striding, over all points of the tile. No atomics but for what a tile comes to.
// grid = (any), block = (FUZZY_TILE).
extern "C" __global__ void fuzzy_sums(const real* __restrict__ X, const double* __restrict__ weight,
                                      const double* __restrict__ centers, const double* __restrict__ scale,
                                      idx* __restrict__ sums, idx* __restrict__ costs, Fuzzifier m, Grid grid, idx n,
                                      Shape shape, double cost_scale) {
    __shared__ double shares[FUZZY_CENTERS][FUZZY_TILE];
    const int k = shape.k, d = shape.d, me = threadIdx.x;
    const idx r = shape.r, tiles = (n + FUZZY_TILE - 1) / FUZZY_TILE;
    for (idx t = blockIdx.x; t < tiles * r; t += gridDim.x) {
        const idx s = t / tiles, first = t % tiles * FUZZY_TILE, i = first + me;
        const int count = (int)min((idx)FUZZY_TILE, n - first);
        const double* mine = centers + s * k * d;
        const double w = weight && me < count ? weight[i] : 1.0;
        double least = 0.0, total = 1.0;
        if (me < count) {
            member(X + i * d, mine, k, d, m, least, total);
            double cost = __ddiv_rn(least, raised(total, m.total, m.total_whole, m.total_half, m.total_quarter, m.series));
            if (weight) cost = __dmul_rn(cost, w);
            cost = __dmul_rn(cost, cost_scale);
            for (int limb = 0; limb < 3; ++limb) add_to(costs + s * 3 + limb, next_limb(cost));
        }
        const double inverse = __ddiv_rn(1.0, total);
        for (int a = 0; a < k; a += FUZZY_CENTERS) {
            const int some = min(FUZZY_CENTERS, k - a);
            __syncthreads();
            for (int c = 0; c < some; ++c) {
                double share = 0.0;
                if (me < count) {
                    const double near = closeness(least, canonical(X + i * d, mine + (idx)(a + c) * d, d), m);
                    share = raised(__dmul_rn(near, inverse), m.share, m.share_whole, m.share_half, m.share_quarter,
                                   m.series);
                    if (weight) share = __dmul_rn(share, w);
                }
                shares[c][me] = share;
            }
            __syncthreads();
            for (int pair = me; pair < some * (d + 1); pair += FUZZY_TILE) {
                const int c = pair / (d + 1), j = pair % (d + 1);
                idx sum = 0;
                for (int p = 0; p < count; ++p) {
                    double v = scale[j];
                    if (j < d) v = __dmul_rn(__dsub_rn(widen(X[(first + p) * d + j]), grid.offset[j]), v);
                    sum += __double2ll_rn(rint(__dmul_rn(shares[c][p], v)));
                }
                idx* high = sums + (s * k + a + c) * (d + 1) + j;
                add_to(high, sum >> LIMB);
                add_to(high + r * k * (d + 1), sum & ((1ll << LIMB) - 1));
            }
        }
    }
}

// u of n points in k clusters, (n, k) out. One thread per point, striding. grid = (any), block = (any).
extern "C" __global__ void memberships(const real* __restrict__ X, const double* __restrict__ centers,
                                       real* __restrict__ out, Fuzzifier m, idx n, int k, int d) {
    for (idx i = (idx)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (idx)gridDim.x * blockDim.x) {
        double least, total;
        member(X + i * d, centers, k, d, m, least, total);
        const double inverse = __ddiv_rn(1.0, total);
        for (int a = 0; a < k; ++a)
            narrow(__dmul_rn(closeness(least, canonical(X + i * d, centers + (idx)a * d, d), m), inverse), out + i * k + a);
    }
}
