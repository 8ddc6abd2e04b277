// K-Means++: squared distances to the seeds so far, their potential in integers, and draws from it.
#include "common.cuh"

// w · d² on the grid of 2^-shift.
__device__ __forceinline__ idx weighed(double square, const double* weight, idx i, double scale) {
    if (weight) square = __dmul_rn(square, weight[i]);
    return __double2ll_rn(__dmul_rn(square, scale));
}

// Adds up a value per thread into *sum; all threads of the block call it.
__device__ void block_sum(idx value, idx* sum, idx* shared) {
    if (threadIdx.x == 0) *shared = 0;
    __syncthreads();
    if (value) add_to(shared, value);
    __syncthreads();
    if (threadIdx.x == 0 && *shared) add_to(sum, *shared);
    __syncthreads();
}

// min_sq_dist (R, pitch) in/out: lowered to d² to seeds (R, d). One thread per point, striding. grid = (R, any).
extern "C" __global__ void lower_sq_dist(const real* __restrict__ X, const double* __restrict__ seeds,
                                         double* __restrict__ min_sq_dist, idx n, idx start, idx pitch, int d) {
    const idx s = blockIdx.x;
    for (idx i = (idx)blockIdx.y * blockDim.x + threadIdx.x; i < n; i += (idx)gridDim.y * blockDim.x) {
        double* least = min_sq_dist + s * pitch + start + i;
        const double square = canonical(X + i * d, seeds + s * d, d);
        if (square < *least) *least = square;
    }
}

// sums (R, tiles) in/out: += potential of the points of each tile of `tile` rows of the data set, counted from row 0.
// grid = (R · tiles touched), block = (any): one block per tile, the first being that of row `start`.
extern "C" __global__ void potential(const double* __restrict__ min_sq_dist, const double* __restrict__ weight,
                                     const double* __restrict__ scale, idx* __restrict__ sums, idx n, idx start,
                                     idx pitch, idx tile, idx tiles) {
    __shared__ idx shared;
    const idx touched = (start + n - 1) / tile - start / tile + 1;
    const idx s = blockIdx.x / touched, number = start / tile + blockIdx.x % touched;
    idx value = 0;
    const idx first = max(number * tile, start), last = min((number + 1) * tile, start + n);
    for (idx row = first + threadIdx.x; row < last; row += blockDim.x)
        value += weighed(min_sq_dist[s * pitch + row], weight, row - start, scale[s]);
    block_sum(value, sums + s * tiles + number, &shared);
}

// gains (R, T) in/out: += what the potential loses with each of seeds (R, T, d) as one more.
// One thread per point, striding. grid = (R·T, any).
extern "C" __global__ void seed_gains(const real* __restrict__ X, const double* __restrict__ weight,
                                      const double* __restrict__ seeds, const double* __restrict__ min_sq_dist,
                                      const double* __restrict__ scale, idx* __restrict__ gains, idx n, idx start,
                                      idx pitch, int d, int trials) {
    __shared__ idx shared;
    const idx pair = blockIdx.x, s = pair / trials;
    idx value = 0;
    for (idx i = (idx)blockIdx.y * blockDim.x + threadIdx.x; i < n; i += (idx)gridDim.y * blockDim.x) {
        const double before = min_sq_dist[s * pitch + start + i];
        const double square = canonical(X + i * d, seeds + pair * d, d);
        if (square < before) value += weighed(before, weight, i, scale[s]) - weighed(square, weight, i, scale[s]);
    }
    block_sum(value, gains + pair, &shared);
}

// found (m) in/out: the first row at which the running potential, counted from row `first[t]`, exceeds `beyond[t]`.
// One thread per draw, striding: it walks along a tile at the most. Rows outside [start, start + n) are left alone.
extern "C" __global__ void locate(const double* __restrict__ min_sq_dist, const double* __restrict__ weight,
                                  const double* __restrict__ scale, const idx* __restrict__ restart,
                                  const idx* __restrict__ first, idx* __restrict__ beyond, idx* __restrict__ found,
                                  idx n, idx start, idx pitch, idx tile, idx m) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < m; t += (idx)gridDim.x * blockDim.x) {
        if (found[t] >= 0) continue;
        const idx s = restart[t], last = min(first[t] + tile, start + n);
        idx left = beyond[t];
        for (idx row = max(first[t], start); row < last && left >= 0; ++row) {
            left -= weighed(min_sq_dist[s * pitch + row], weight, row - start, scale[s]);
            if (left < 0) found[t] = row;
        }
        beyond[t] = left;  // the tile goes on in the next chunk
    }
}
