// find_moves, relabel: single points that lower J by moving to another cluster (gputabu.backend.moving).
#include "common.cuh"

#define NOISE 9.094947017729282e-13  // 2^-40, gputabu.results.NOISE

// X        (n, d)      in   rows start .. start + n - 1 of the data set
// weight   (n)         in   or null; points of weight zero stay
// centers  (R, K, d)   in   centroids
// mass     (R, 2, K)   in   weights of the clusters: to leave, zero where a point would be alone; to enter
// labels   (R, pitch)  in   all >= 0
// count    (1)         in/out, += moves found
// where    (capacity)  out  restart·pitch + row, in any order; what is beyond the capacity is only counted
// pairs    (capacity, 2) out  from and to
// One thread per (restart, point), striding. grid = (any), block = (any), no shared memory. Ties: lowest cluster.
extern "C" __global__ void find_moves(const real* __restrict__ X, const double* __restrict__ weight,
                                      const double* __restrict__ centers, const double* __restrict__ mass,
                                      const int* __restrict__ labels, word* __restrict__ count,
                                      idx* __restrict__ where, int* __restrict__ pairs, idx n, idx start, idx pitch,
                                      int r, int k, int d, double slack, idx capacity) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < r * n; t += (idx)gridDim.x * blockDim.x) {
        const idx s = t / n, i = t % n;
        const real* x = X + i * d;
        const double *its = centers + s * k * d, *left = mass + s * 2 * k, *entered = left + k;
        const int own = labels[s * pitch + start + i];
        const double w = weight ? weight[i] : 1.0;
        const double rest = __dsub_rn(left[own], w);
        if (!(rest > 0.0) || !(w > 0.0)) continue;
        const double factor = __ddiv_rn(left[own], rest);
        const double leave = __dmul_rn(factor, canonical(x, its + (idx)own * d, d));
        double least = leave;  // what costs as much is no move
        int found = -1;
        for (int b = 0; b < k; ++b) {
            if (b == own) continue;
            const double share = __ddiv_rn(entered[b], __dadd_rn(entered[b], w));
            const double cost = __dmul_rn(canonical(x, its + (idx)b * d, d), share);
            if (cost < least) { least = cost; found = b; }
        }
        if (found < 0) continue;
        const double noise = __dadd_rn(__dmul_rn(NOISE, leave), __dmul_rn(slack, __dsqrt_rn(__dmul_rn(factor, leave))));
        if (!(__dsub_rn(leave, least) > noise)) continue;
        const idx at = (idx)atomicAdd(count, 1ull);
        if (at >= capacity) continue;
        where[at] = s * pitch + start + i;
        pairs[2 * at] = own;
        pairs[2 * at + 1] = found;
    }
}

// labels (R · pitch) in/out: = to[t] at where[t], all of them different. One thread per move, striding.
extern "C" __global__ void relabel(int* __restrict__ labels, const idx* __restrict__ where, const int* __restrict__ to,
                                   idx m) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < m; t += (idx)gridDim.x * blockDim.x)
        labels[where[t]] = to[t];
}
