// split_assign, axis_sums, histogram: points between the two children of their cluster, and along its axis.
#include "structs.cuh"

// <x - c, a>, added in order.
__device__ __forceinline__ double along(const real* x, const double* c, const double* a, int d) {
    double sum = 0.0;
#pragma unroll 1
    for (int j = 0; j < d; ++j) sum = __dadd_rn(sum, __dmul_rn(__dsub_rn(widen(x[j]), c[j]), a[j]));
    return sum;
}

// X         (n, d)        in   rows of the chunk
// weight    (n)           in   or null
// children  (R, K, 2, d)  in
// parents   (R, pitch)    in   all >= 0
// labels    (R, pitch)    in/out  twice the parent, plus one where the second child is nearer
// totals    (R, 2K, C), changed (R)  in/out, += what changes
// One thread per (restart, point), striding. grid = (any), block = (any), no shared memory.
extern "C" __global__ void split_assign(const real* __restrict__ X, const double* __restrict__ weight,
                                        const double* __restrict__ children, const int* __restrict__ parents,
                                        int* __restrict__ labels, idx* __restrict__ totals, idx* __restrict__ changed,
                                        Grid grid, Chunk chunk, Shape shape) {
    const int k = shape.k, d = shape.d, columns = columns_of(d, weight);
    const idx n = chunk.n, r = shape.r;
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < n * r; t += (idx)gridDim.x * blockDim.x) {
        const idx i = t % n, s = t / n, at = s * chunk.pitch + chunk.start + i;
        const int above = parents[at], old = labels[at];
        const double* pair = children + (s * k + above) * 2 * d;
        const int found = 2 * above + (canonical(X + i * d, pair + d, d) < canonical(X + i * d, pair, d));
        if (found == old) continue;
        labels[at] = found;
        add_to(changed + s, 1);
#pragma unroll 1
        for (int sign = 1; sign >= (old < 0 ? 1 : -1); sign -= 2)
            contribute(totals + (s * 2 * k + (sign > 0 ? found : old)) * columns, X + i * d, d, weight, i, grid.offset,
                       grid.scale, grid.weight_scale, sign);
    }
}

// centers, axes (R, K, d) in; wanted (R, K) in; labels (R, pitch) in; sums (2, R, K, d) in/out, += the limbs of
// w <x - c, a> (x - c). One thread per (restart, point), striding. grid = (any), block = (any), no shared memory.
extern "C" __global__ void axis_sums(const real* __restrict__ X, const double* __restrict__ weight,
                                     const double* __restrict__ centers, const double* __restrict__ axes,
                                     const int* __restrict__ wanted, const int* __restrict__ labels,
                                     idx* __restrict__ sums, Chunk chunk, Shape shape, double scale) {
    const int k = shape.k, d = shape.d;
    const idx n = chunk.n, r = shape.r;
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < n * r; t += (idx)gridDim.x * blockDim.x) {
        const idx i = t % n, s = t / n, cluster = s * k + labels[s * chunk.pitch + chunk.start + i];
        if (!wanted[cluster]) continue;
        const real* x = X + i * d;
        const double *c = centers + cluster * d, length = along(x, c, axes + cluster * d, d);
        idx *highs = sums + cluster * d, *lows = highs + r * k * d;
#pragma unroll 1
        for (int j = 0; j < d; ++j) {
            double v = __dmul_rn(__dsub_rn(widen(x[j]), c[j]), length);
            if (weight) v = __dmul_rn(v, weight[i]);
            v = __dmul_rn(v, scale);
            add_to(highs + j, next_limb(v));
            add_to(lows + j, next_limb(v));
        }
    }
}

// slots (R, K) in, -1 for clusters that are left out; counts (L, n_slots, bins) in/out. The rest as above: += 1, or the
// limbs of the weight, where floor(<x - c, a> + bins / 2) is, or at that end.
extern "C" __global__ void histogram(const real* __restrict__ X, const double* __restrict__ weight,
                                     const double* __restrict__ centers, const double* __restrict__ axes,
                                     const int* __restrict__ slots, const int* __restrict__ labels,
                                     idx* __restrict__ counts, Chunk chunk, Shape shape, int n_slots, int bins,
                                     double weight_scale) {
    const int k = shape.k, d = shape.d;
    const idx n = chunk.n, r = shape.r;
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < n * r; t += (idx)gridDim.x * blockDim.x) {
        const idx i = t % n, s = t / n, cluster = s * k + labels[s * chunk.pitch + chunk.start + i];
        const int slot = slots[cluster];
        if (slot < 0) continue;
        const double place = __dadd_rn(along(X + i * d, centers + cluster * d, axes + cluster * d, d), bins / 2);
        const int bin = place >= bins ? bins - 1 : place > 0.0 ? (int)place : 0;
        idx* count = counts + (idx)slot * bins + bin;
        if (!weight) {
            add_to(count, 1);
            continue;
        }
        double v = __dmul_rn(weight[i], weight_scale);
        add_to(count, next_limb(v));
        add_to(count + (idx)n_slots * bins, next_limb(v));
    }
}
