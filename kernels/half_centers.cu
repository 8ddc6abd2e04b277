// half_centers: centres that no kernel on the device has just made, as halves.
#include "halves.cuh"

// centers  (R, K, d)  in
// halves              out
// done     (R)        in   or null: restarts to leave alone
// bytes: r * k * 12 * d
// One warp per centre, striding. grid = (any), block = (any).
extern "C" __global__ void half_centers(const double* __restrict__ centers, HalfCenters halves,
                                        const double* __restrict__ offset, const int* __restrict__ done, Shape shape) {
    const idx warps = (idx)gridDim.x * blockDim.x / 32;
#pragma unroll 1
    for (idx t = ((idx)blockIdx.x * blockDim.x + threadIdx.x) / 32; t < (idx)shape.r * shape.k; t += warps) {  // trips: ceil(r * k / (blocks * threads / 32))
        const idx s = t / shape.k;
        if (done && done[s]) continue;
        write_halves(centers + t * shape.d, halves, offset, s, (int)(t % shape.k), shape.d);
    }
}
