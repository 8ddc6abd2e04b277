// survey: squared distance of every point to the centre of its cluster: J, and per cluster the best free points.
//
// X is read once for up to RG restarts (-DRG=1 or 8): 32 coordinates of a tile of points at a time go through shared
// memory, and every thread adds them up for its point in the order of j.
#include "common.cuh"
#define WIDTH 32

// X        (n, d)        in
// weight   (n)           in   or null; points of weight zero are never free
// centers  (R, K, d)     in   double
// labels   (R, pitch)    in
// stamps   (R, pitch)    in   or null: a point is forbidden where its stamp is the restart's age
// age      (R)           in   or null with stamps
// bar      (R, K)        in   or null: only keys above this one count (the runners-up of an earlier survey)
// costs    (R, 3)        in/out, += limbs of w·d²
// keys     (R, K)        in/out or null: min of (d² rounded to float32) << 32 | (row − span)
// done     (R)           in   or null
// One thread per point, blocks stride over tiles of blockDim.x points. grid = (ceil(R / RG), any), block = (any).
// Shared: sizeof(real)·blockDim.x·33; 8·RG·K if `private_keys`; 8·RG·K·d if `resident`. Ties: lowest row.
extern "C" __global__ void survey(const real* __restrict__ X, const double* __restrict__ weight,
                                  const double* __restrict__ centers, const int* __restrict__ labels,
                                  const int* __restrict__ stamps, const int* __restrict__ age,
                                  const word* __restrict__ bar, idx* __restrict__ costs,
                                  word* __restrict__ keys, const int* __restrict__ done,
                                  idx n, idx start, idx span, idx pitch, int r, int k, int d,
                                  double cost_scale, double key_scale, int resident, int private_keys) {
    __shared__ idx sums[RG][3];
    DYNAMIC_SHARED(double, shared);
    const int first = blockIdx.x * RG, mine = min(RG, r - first);  // restarts of this block
    double* tile_centers = shared;  // (mine, K, d) if resident
    word* least = (word*)(shared + (resident ? (idx)mine * k * d : 0));  // (mine, K) if private_keys
    real* tile = (real*)(least + (private_keys ? mine * k : 0));  // (blockDim.x, WIDTH + 1)
    if (resident)
        for (idx t = threadIdx.x; t < (idx)mine * k * d; t += blockDim.x) tile_centers[t] = centers[(idx)first * k * d + t];
    if (private_keys)
        for (int t = threadIdx.x; t < mine * k; t += blockDim.x) least[t] = NO_KEY;
    for (int t = threadIdx.x; t < RG * 3; t += blockDim.x) sums[t / 3][t % 3] = 0;
    const double* table = resident ? tile_centers : centers + (idx)first * k * d;
    idx mine_sums[RG][3];
#pragma unroll
    for (int s = 0; s < RG; ++s) mine_sums[s][0] = mine_sums[s][1] = mine_sums[s][2] = 0;

    for (idx base = (idx)blockIdx.y * blockDim.x; base < n; base += (idx)gridDim.y * blockDim.x) {
        const idx i = base + threadIdx.x;
        double square[RG];
        const double* center[RG];
#pragma unroll
        for (int s = 0; s < RG; ++s) {
            square[s] = 0.0;
            const bool live = s < mine && i < n && !(done && done[first + s]);
            center[s] = live ? table + ((idx)s * k + labels[(first + s) * pitch + start + i]) * d : 0;
        }
        for (int column = 0; column < d; column += WIDTH) {
            const int width = min(WIDTH, d - column);
            __syncthreads();  // the tile before has been read, the tables are written
            for (int t = threadIdx.x; t < (int)blockDim.x * width; t += blockDim.x) {
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
            mine_sums[s][0] += next_limb(v);
            mine_sums[s][1] += next_limb(v);
            mine_sums[s][2] += next_limb(v);
            if (!keys || (weight && weight[i] <= 0.0)) continue;
            if (stamps && stamps[(first + s) * pitch + start + i] == age[first + s]) continue;
            const word key = (word)float_bits(__dmul_rn(square[s], key_scale)) << 32 | (word)(start + i - span);
            if (bar && key <= bar[(idx)first * k + cluster]) continue;
            atomicMin(private_keys ? least + cluster : keys + (idx)first * k + cluster, key);
        }
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < RG; ++s)
        for (int l = 0; l < 3; ++l)
            if (mine_sums[s][l]) add_to(&sums[s][l], mine_sums[s][l]);
    __syncthreads();
    for (int t = threadIdx.x; t < mine * 3; t += blockDim.x)
        if (sums[t / 3][t % 3]) add_to(costs + first * 3 + t, sums[t / 3][t % 3]);
    if (private_keys)
        for (int t = threadIdx.x; t < mine * k; t += blockDim.x)
            if (least[t] != NO_KEY) atomicMin(keys + (idx)first * k + t, least[t]);
}
