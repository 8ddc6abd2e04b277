// nearest_two, reassign, swap_gains: relocation of centres (backend.arithmetic.rules has the formulas).
#include "structs.cuh"

// The two nearest of k centres by the canonical formula.
__device__ void two_canonical(const real* x, const double* centers, int k, int d, int& first, int& second) {
    double low = __longlong_as_double(0x7FF0000000000000LL), next = low;
    first = second = 0;
#pragma unroll 1
    for (int number = 0; number < k; ++number) {
        const double square = canonical(x, centers + (idx)number * d, d);
        if (square < low) { next = low; second = first; low = square; first = number; }
        else if (square < next) { next = square; second = number; }
    }
}

#define AT_ONCE 4  // centres that share a read of the point

// X        (n, d)      in   rows of the chunk
// centers  (R, K, d)   in   K >= 2
// fast                 in   of the same centres, relative to offset (d), times unit
// which    (m)         in   the restarts to look at
// nearest              out
// done     (R)         in   or null: restarts to leave alone
// Fast distances name the two wherever first, second and third are apart by more than their error; only the canonical
// distances to these two are computed then. The canonical formula decides the rest.
// One thread per (restart, point), striding. grid = (any), block = (any), no shared memory. Ties: lowest number.
extern "C" __global__ void nearest_two(const real* __restrict__ X, const double* __restrict__ centers, FastCenters fast,
                                       const double* __restrict__ offset, const idx* __restrict__ which,
                                       NearestTwo nearest, const int* __restrict__ done, Chunk chunk, idx m, int k,
                                       int d, double unit) {
    const idx n = chunk.n;
#pragma unroll 1
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < m * n; t += (idx)gridDim.x * blockDim.x) {
        const idx s = which[t / n], i = t % n, at = s * chunk.pitch + chunk.start + i;
        if (done && done[s]) continue;  // beyond: 1
        const real *x = X + i * d, *near = fast.centers + s * k * d, *doubt = fast.doubt + 3 * s;
        real low = infinite(), next = low, third = low, norm = 0;
        int a = 0, b = 0;
#pragma unroll 1
        for (int first = 0; first < k; first += AT_ONCE) {
            real score[AT_ONCE];
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) score[c] = 0;
            norm = 0;
#pragma unroll 1
            for (int j = 0; j < d; ++j) {
                const real moved = relative(x[j], offset[j], unit);
                norm += moved * moved;
#pragma unroll
                for (int c = 0; c < AT_ONCE; ++c) {
                    const real diff = moved - near[(idx)min(first + c, k - 1) * d + j];
                    score[c] += diff * diff;
                }
            }
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) {
                if (first + c >= k) break;
                if (score[c] < low) { third = next; next = low; b = a; low = score[c]; a = first + c; }
                else if (score[c] < next) { third = next; next = score[c]; b = first + c; }
                else if (score[c] < third) third = score[c];
            }
        }
        norm = sqrt(norm);
        const real bound = doubt[0] + norm * (doubt[1] + norm * doubt[2]);
        if (!(next - low > bound && third - next > bound))  // share: warp(doubt); also where one is not a number
            two_canonical(x, centers + s * k * d, k, d, a, b);
        nearest.first[at] = a;
        nearest.second[at] = b;
        nearest.near[at] = canonical(x, centers + (s * k + a) * d, d);
        nearest.far[at] = canonical(x, centers + (s * k + b) * d, d);
    }
}

// weight   (n)         in   or null
// mass     (R, 2, K)   in   weights of the clusters, or null: every point goes to its nearest centre
// labels   (R, pitch)  in/out
// totals   (R, K, C), changed (R)  in/out, += what changes
// costs    (R, 3)      in/out, += limbs of J at the centres of `nearest`
// The rest as above. One thread per point, striding. grid = (m, any).
extern "C" __global__ void reassign(const real* __restrict__ X, const double* __restrict__ weight,
                                    const double* __restrict__ mass, const idx* __restrict__ which, NearestTwo nearest,
                                    int* __restrict__ labels, idx* __restrict__ totals, idx* __restrict__ changed,
                                    idx* __restrict__ costs, const int* __restrict__ done, Grid grid, Chunk chunk,
                                    int k, int d) {
    const int columns = columns_of(d, weight);
    const idx s = which[blockIdx.x], n = chunk.n;
    if (done && done[s]) return;
    const double *near = nearest.near, *far = nearest.far;
    idx sums[3] = {0, 0, 0};
    for (idx i = (idx)blockIdx.y * blockDim.x + threadIdx.x; i < n; i += (idx)gridDim.y * blockDim.x) {
        const idx at = s * chunk.pitch + chunk.start + i;
        const int old = labels[at], a = nearest.first[at], b = nearest.second[at];
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
        cost = __dmul_rn(cost, grid.cost_scale);
        for (int limb = 0; limb < 3; ++limb) sums[limb] += next_limb(cost);
        if (found == old) continue;
        labels[at] = found;
        add_to(changed + s, 1);
        idx* clusters = totals + s * k * columns;
        contribute(clusters + (idx)found * columns, X + i * d, d, weight, i, grid.offset, grid.scale,
                   grid.weight_scale, 1);
        if (old >= 0)
            contribute(clusters + (idx)old * columns, X + i * d, d, weight, i, grid.offset, grid.scale,
                       grid.weight_scale, -1);
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
                                      const double* __restrict__ candidates, NearestTwo nearest,
                                      idx* __restrict__ loss, idx* __restrict__ change,
                                      const int* __restrict__ done, Chunk chunk, Shape shape, int trials,
                                      double cost_scale) {
    const int k = shape.k, d = shape.d;
    const idx n = chunk.n, r = shape.r;
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < r * n; t += (idx)gridDim.x * blockDim.x) {
        const idx s = t / n, i = t % n, at = s * chunk.pitch + chunk.start + i;
        if (done && done[s]) continue;
        const double w = weight ? weight[i] : 1.0, d1 = nearest.near[at], d2 = nearest.far[at];
        const int label = nearest.first[at];
        const double lost = __dmul_rn(__dmul_rn(__dsub_rn(d2, d1), w), cost_scale);
        add_limbs(loss + (s * k + label) * 3, lost, 1);
        for (int c = 0; c < trials; ++c) {
            const idx pair = s * trials + c;
            const double square = canonical(X + i * d, candidates + pair * d, d);
            if (!(square < d2)) continue;
            idx* changes = change + pair * (k + 1) * 3;
            add_limbs(changes + label * 3, lost, -1);
            const bool nearer = square < d1;
            const double moved = nearer ? __dsub_rn(d1, square) : __dsub_rn(square, d1);
            add_limbs(changes + (nearer ? k : label) * 3, __dmul_rn(__dmul_rn(moved, w), cost_scale), 1);
        }
    }
}
