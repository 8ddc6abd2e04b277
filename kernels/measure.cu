// measure: the box around the points, their totals, single rows, distances: what is asked for once.
#include "structs.cuh"

// A float or double whose bits, as an unsigned integer, sort like its value.
__device__ word sortable(double v) {
    const idx bits = __double_as_longlong(v);
    return bits < 0 ? ~(word)bits : (word)bits | 0x8000000000000000ull;
}

// X (n, d) in, weight (n) in or null; low, high (d) in/out: least and greatest sortable bits over points of positive
// weight; bad (1) in/out: += values that are not finite. One thread per (point, column), striding over points with
// the column fixed. grid = (ceil(d / blockDim.x), any), block = (any).
extern "C" __global__ void bounds(const real* __restrict__ X, const double* __restrict__ weight, word* __restrict__ low,
                                  word* __restrict__ high, idx* __restrict__ bad, idx n, int d) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= d) return;
    word least = NO_KEY, most = 0;
    idx wrong = 0;
    for (idx i = blockIdx.y; i < n; i += gridDim.y) {
        const double v = widen(X[i * d + j]);
        if (!(v - v == 0.0)) ++wrong;
        if (weight && weight[i] <= 0.0) continue;
        const word bits = sortable(v);
        least = bits < least ? bits : least;
        most = bits > most ? bits : most;
    }
    if (least <= most) { atomicMin(low + j, least); atomicMax(high + j, most); }
    if (wrong) add_to(bad, wrong);
}

// Totals of all points as one cluster: X (n, d), weight (n) or null in; totals (C) in/out.
// One thread per (point, column) as above; the weight and the count belong to column 0.
extern "C" __global__ void moments(const real* __restrict__ X, const double* __restrict__ weight,
                                   idx* __restrict__ totals, Grid grid, idx n, int d) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= d) return;
    idx high = 0, low = 0, heavy = 0, light = 0, count = 0;
    for (idx i = blockIdx.y; i < n; i += gridDim.y) {
        double v = __dsub_rn(widen(X[i * d + j]), grid.offset[j]);
        if (weight) v = __dmul_rn(v, weight[i]);
        v = __dmul_rn(v, grid.scale[j]);
        high += next_limb(v);
        low += next_limb(v);
        if (j > 0) continue;
        if (weight) {
            double w = __dmul_rn(weight[i], grid.weight_scale);
            heavy += next_limb(w);
            light += next_limb(w);
        }
        count += !weight || weight[i] > 0.0;
    }
    add_to(totals + j, high);
    add_to(totals + d + j, low);
    if (j > 0) return;
    idx* rest = totals + 2 * d;
    if (weight) { add_to(rest, heavy); add_to(rest + 1, light); rest += 2; }
    add_to(rest, count);
}

// X (n, d) in; wanted (m) in, row numbers; found (m, d) out for those in [start, start + n). One thread per element.
extern "C" __global__ void fetch_rows(const real* __restrict__ X, const idx* __restrict__ wanted,
                                      double* __restrict__ found, idx n, idx start, idx m, int d) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < m * d; t += (idx)gridDim.x * blockDim.x) {
        const idx i = wanted[t / d] - start;
        if (i >= 0 && i < n) found[t] = widen(X[i * d + t % d]);
    }
}

// Euclidean distances of n points to k centres, (n, k) out. One thread per pair.
extern "C" __global__ void distances(const real* __restrict__ X, const double* __restrict__ centers,
                                     real* __restrict__ out, idx n, int k, int d) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < n * k; t += (idx)gridDim.x * blockDim.x)
        narrow(__dsqrt_rn(canonical(X + t / k * d, centers + t % k * d, d)), out + t);
}

// Σ w ‖x − c‖ over the points of each cluster: sums (2, R, K) in/out, += the limbs. labels (R, pitch) in. One thread
// per (restart, point).
extern "C" __global__ void spreads(const real* __restrict__ X, const double* __restrict__ weight,
                                   const double* __restrict__ centers, const int* __restrict__ labels,
                                   idx* __restrict__ sums, idx n, idx start, idx pitch, int r, int k, int d,
                                   double scale) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < n * r; t += (idx)gridDim.x * blockDim.x) {
        const idx i = t % n, s = t / n, cluster = s * k + labels[s * pitch + start + i];
        double v = __dsqrt_rn(canonical(X + i * d, centers + cluster * d, d));
        if (weight) v = __dmul_rn(v, weight[i]);
        v = __dmul_rn(v, scale);
        add_to(sums + cluster, next_limb(v));
        add_to(sums + (idx)r * k + cluster, next_limb(v));
    }
}

// closest, in two launches: least (k) in/out, the bits of the least d² (phase 0); row (k) in/out, the lowest row that
// has it (phase 1). One thread per pair; points of weight zero do not count.
extern "C" __global__ void closest(const real* __restrict__ X, const double* __restrict__ weight,
                                   const double* __restrict__ centers, word* __restrict__ least, word* __restrict__ row,
                                   idx n, idx start, int k, int d, int phase) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < n * k; t += (idx)gridDim.x * blockDim.x) {
        const idx i = t / k, a = t % k;
        if (weight && weight[i] <= 0.0) continue;
        const word bits = (word)__double_as_longlong(canonical(X + i * d, centers + a * d, d));
        if (phase == 0) atomicMin(least + a, bits);
        else if (bits == least[a]) atomicMin(row + a, (word)(start + i));
    }
}

// The farthest point from its centre below `bar`: key (1) in/out, max of (d² as float32) << 32 | ~row.
// labels (n) of one restart from `start` on. One thread per point.
extern "C" __global__ void farthest(const real* __restrict__ X, const double* __restrict__ weight,
                                    const double* __restrict__ centers, const int* __restrict__ labels,
                                    word* __restrict__ key, idx n, idx start, int d, double key_scale, word bar) {
    word most = 0;
    for (idx i = (idx)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (idx)gridDim.x * blockDim.x) {
        if (weight && weight[i] <= 0.0) continue;
        const double v = __dmul_rn(canonical(X + i * d, centers + (idx)labels[start + i] * d, d), key_scale);
        const unsigned bits = float_bits(v);
        if (!(widen(__uint_as_float(bits)) > ON_CENTER)) continue;
        const word candidate = (word)bits << 32 | (word)(0xFFFFFFFFu - (unsigned)(start + i));
        if (candidate < bar && candidate > most) most = candidate;
    }
    if (most) atomicMax(key, most);
}
