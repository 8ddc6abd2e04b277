// half_centers: centres as halves, in the order in which assign_tensor streams them; its macros are TILE_N, QS, WORDS.
#include "tensor.cuh"

#define STAGE (TILE_N / 8 * QS * 64 * WORDS)  // words of 32 bits, as in assign_tensor.cu

// centers  (R, K, d)  in
// halves              out, of -2 (c - offset) · unit, and its norms; what is padding stays as it is
// done     (R)        in   or null: restarts to leave alone
// A stage has TILE_N centres and QS steps of 16 coordinates; a centre has `stages` of them.
// bytes: r * k * 12 * d
// One warp per centre, striding. grid = (any), block = (any).
extern "C" __global__ void half_centers(const double* __restrict__ centers, HalfCenters halves,
                                        const double* __restrict__ offset, const int* __restrict__ done, Shape shape,
                                        int padded, int stages) {
    const int k = shape.k, d = shape.d, lane = threadIdx.x % 32;
    const idx warps = (idx)gridDim.x * blockDim.x / 32;
#pragma unroll 1
    for (idx t = ((idx)blockIdx.x * blockDim.x + threadIdx.x) / 32; t < (idx)shape.r * k; t += warps) {  // trips: ceil(r * k / (blocks * threads / 32))
        const idx s = t / k;
        const int a = (int)(t % k);
        if (done && done[s]) continue;
        const idx first = (s * (padded / TILE_N) + a / TILE_N) * stages;  // stage of its first coordinates
        const int tile = a % TILE_N / 8;
        double norm = 0.0;
#pragma unroll 1
        for (int p = lane; 2 * p < d; p += 32) {  // trips: ceil(d / 64)
            const double* c = centers + t * d + 2 * p;
            const double x = (c[0] - offset[2 * p]) * halves.unit;
            const double y = 2 * p + 1 < d ? (c[1] - offset[2 * p + 1]) * halves.unit : 0.0;
            norm += x * x + y * y;
            const int step = p / 8, q = step % QS, at = (a % 8 * 4 + p % 4) * 2 + p % 8 / 4;
            unsigned* stage = halves.words + (first + step / QS) * STAGE;
            float u = (float)(-2 * x), v = (float)(-2 * y);
#pragma unroll
            for (int w = 0; w < WORDS; ++w) {
                const unsigned both = halves_of(u, v);
                stage[((w * (TILE_N / 8) + tile) * QS + q) * 64 + at] = both;
                u -= low_half(both);
                v -= high_half(both);
            }
        }
#pragma unroll
        for (int far = 16; far > 0; far /= 2) norm += __shfl_xor_sync(0xFFFFFFFFu, norm, far);
        if (lane == 0) halves.norms[s * padded + a] = (float)norm;
    }
}
