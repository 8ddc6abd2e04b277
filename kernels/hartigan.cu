// find_moves: single points that lower J by moving to another cluster (backend.numpy.hartigan has the formula).
#include "common.cuh"

// X        (n, d)      in   rows start .. start + n - 1 of the data set
// weight   (n)         in   or null; points of weight zero stay
// centers  (R, K, d)   in   centroids
// mass     (R, 2, K)   in   weights of the clusters: to leave, zero where a point would be alone; to enter
// labels   (R, pitch)  in   all >= 0
// count    (1)         in/out, += moves found
// where    (capacity)  out  restart·pitch + row, in any order; what is beyond the capacity is only counted
// moves    (capacity, 2) out  source and target
// One thread per (restart, point), striding. grid = (any), block = (any), no shared memory. Ties: lowest cluster.
extern "C" __global__ void find_moves(const real* __restrict__ X, const double* __restrict__ weight,
                                      const double* __restrict__ centers, const double* __restrict__ mass,
                                      const int* __restrict__ labels, word* __restrict__ count,
                                      idx* __restrict__ where, int* __restrict__ moves, idx n, idx start, idx pitch,
                                      int r, int k, int d, double slack, idx capacity) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < r * n; t += (idx)gridDim.x * blockDim.x) {
        const idx s = t / n, i = t % n;
        const real* x = X + i * d;
        const double *clusters = centers + s * k * d, *left = mass + s * 2 * k, *entered = left + k;
        const int source = labels[s * pitch + start + i];
        const double w = weight ? weight[i] : 1.0;
        const double rest = __dsub_rn(left[source], w);
        if (!(rest > 0.0) || !(w > 0.0)) continue;
        const double factor = __ddiv_rn(left[source], rest);
        const double leave = __dmul_rn(factor, canonical(x, clusters + (idx)source * d, d));
        double least = leave;  // what costs as much is no move
        int target = -1;
        for (int b = 0; b < k; ++b) {
            if (b == source) continue;
            const double share = __ddiv_rn(entered[b], __dadd_rn(entered[b], w));
            const double cost = __dmul_rn(canonical(x, clusters + (idx)b * d, d), share);
            if (cost < least) { least = cost; target = b; }
        }
        if (target < 0) continue;
        const double noise = __dadd_rn(__dmul_rn(NOISE, leave), __dmul_rn(slack, __dsqrt_rn(__dmul_rn(factor, leave))));
        if (!(__dsub_rn(leave, least) > noise)) continue;
        const idx at = (idx)atomicAdd(count, 1ull);
        if (at >= capacity) continue;
        where[at] = s * pitch + start + i;
        moves[2 * at] = source;
        moves[2 * at + 1] = target;
    }
}
