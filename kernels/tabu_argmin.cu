// survey: squared distance of every point to the centre of its cluster: J, and per cluster the best free points.
//
// X is read once for up to RG restarts (-DRG=1 or 8): 32 coordinates of a tile of points at a time go through shared
// memory, and every thread adds them up for its point in the order of j.
#include "structs.cuh"
#define WIDTH 32

#define SURVEY_SHARED(ARRAY)                                        \
    ARRAY(double, local_centers, resident * group * k * d)          \
    ARRAY(word, local_keys, private_keys * group * k)               \
    ARRAY(real, tile, threads * (WIDTH + 1))

// X        (n, d)        in   rows of the chunk
// weight   (n)           in   or null; points of weight zero are never free
// centers  (R, K, d)     in   double
// labels   (R, pitch)    in
// stamps   (R, pitch)    in   or null: a point is forbidden where its stamp is the restart's age
// age      (R)           in   or null with stamps
// bar      (R, K)        in   or null: only keys above this one count (the runners-up of an earlier survey)
// costs    (R, 3)        in/out, += limbs of w·d²
// keys     (R, K)        in/out or null: min of (d² rounded to float32) << 32 | row
// done     (R)           in   or null
// resident: the centres are held in shared memory; private_keys: the keys are, and are merged at the end.
// One thread per point, blocks stride over tiles of blockDim.x points. grid = (ceil(R / RG), any), block = (any).
// Ties: lowest row.
extern "C" __global__ void survey(const real* __restrict__ X, const double* __restrict__ weight,
                                  const double* __restrict__ centers, const int* __restrict__ labels,
                                  const int* __restrict__ stamps, const int* __restrict__ age,
                                  const word* __restrict__ bar, idx* __restrict__ costs,
                                  word* __restrict__ keys, const int* __restrict__ done, Chunk chunk, Shape shape,
                                  double cost_scale, double key_scale, int resident, int private_keys) {
    __shared__ idx sums[RG][3];
    const int k = shape.k, d = shape.d, threads = blockDim.x;
    const int first = blockIdx.x * RG, group = min(RG, shape.r - first);  // restarts of this block
    const idx n = chunk.n, start = chunk.start, pitch = chunk.pitch;
    DYNAMIC_SHARED(char, carved);
    SURVEY_SHARED(CARVE)
    if (resident)
        for (int t = threadIdx.x; t < group * k * d; t += threads) local_centers[t] = centers[(idx)first * k * d + t];
    if (private_keys)
        for (int t = threadIdx.x; t < group * k; t += threads) local_keys[t] = NO_KEY;
    for (int t = threadIdx.x; t < RG * 3; t += threads) sums[t / 3][t % 3] = 0;
    const double* table = resident ? local_centers : centers + (idx)first * k * d;
    idx limbs[RG][3];  // of the points of this thread
#pragma unroll
    for (int s = 0; s < RG; ++s) limbs[s][0] = limbs[s][1] = limbs[s][2] = 0;

    for (idx base = (idx)blockIdx.y * threads; base < n; base += (idx)gridDim.y * threads) {
        const idx i = base + threadIdx.x;
        double square[RG];
        const double* center[RG];
#pragma unroll
        for (int s = 0; s < RG; ++s) {
            square[s] = 0.0;
            const bool live = s < group && i < n && !(done && done[first + s]);
            center[s] = live ? table + ((idx)s * k + labels[(first + s) * pitch + start + i]) * d : 0;
        }
        for (int column = 0; column < d; column += WIDTH) {
            const int width = min(WIDTH, d - column);
            __syncthreads();  // the tile before has been read, the tables are written
            for (int t = threadIdx.x; t < threads * width; t += threads) {
                const int row = t / width, j = t % width;
                if (base + row < n) tile[row * (WIDTH + 1) + j] = X[(base + row) * d + column + j];
            }
            __syncthreads();
            if (i < n)
                for (int j = 0; j < width; ++j) {
                    const double x = widen(tile[threadIdx.x * (WIDTH + 1) + j]);
#pragma unroll
                    for (int s = 0; s < RG; ++s)
                        if (center[s]) square[s] = add_square(square[s], x, center[s][column + j]);
                }
        }
#pragma unroll
        for (int s = 0; s < RG; ++s) {
            if (!center[s]) continue;
            const idx cluster = (center[s] - table) / d;  // restart·K + label
            double v = square[s];
            if (weight) v = __dmul_rn(v, weight[i]);
            v = __dmul_rn(v, cost_scale);
            limbs[s][0] += next_limb(v);
            limbs[s][1] += next_limb(v);
            limbs[s][2] += next_limb(v);
            if (!keys || (weight && weight[i] <= 0.0)) continue;
            if (stamps && stamps[(first + s) * pitch + start + i] == age[first + s]) continue;
            const word key = (word)float_bits(__dmul_rn(square[s], key_scale)) << 32 | (word)(start + i);
            if (bar && key <= bar[(idx)first * k + cluster]) continue;
            atomicMin(private_keys ? local_keys + cluster : keys + (idx)first * k + cluster, key);
        }
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < RG; ++s)
        for (int l = 0; l < 3; ++l)
            if (limbs[s][l]) add_to(&sums[s][l], limbs[s][l]);
    __syncthreads();
    for (int t = threadIdx.x; t < group * 3; t += threads)
        if (sums[t / 3][t % 3]) add_to(costs + first * 3 + t, sums[t / 3][t % 3]);
    if (private_keys)
        for (int t = threadIdx.x; t < group * k; t += threads)
            if (local_keys[t] != NO_KEY) atomicMin(keys + (idx)first * k + t, local_keys[t]);
}
