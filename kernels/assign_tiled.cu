// assign_tiled: what assign.cu does, for any d, by tiles: 64 points × 64 centres, 4 × 4 per thread, 16 coordinates at a
// time. A point's row is read once per tile of centres. Here the fast scores are ‖c̃‖² − 2 c̃·x̃, and the norms of the
// points are summed on the way.
#include "structs.cuh"

#define TILE 64
#define DEPTH 16
#define ASSIGN_TILED_SHARED(ARRAY) \
    ARRAY(idx, local_totals, private_totals * r * k * columns)

// Arguments as in assign.cu. block = (256), grid = (any), blocks stride over tiles of points.
extern "C" __global__ void assign_tiled(const real* __restrict__ X, const double* __restrict__ weight,
                                        const double* __restrict__ centers, FastCenters fast,
                                        int* __restrict__ labels, idx* __restrict__ totals,
                                        idx* __restrict__ changed, const int* __restrict__ done, Grid grid,
                                        Chunk chunk, Shape shape, double unit, int fresh, int private_totals) {
    __shared__ real points[DEPTH][TILE + 1], rivals[DEPTH][TILE + 1];
    __shared__ Lead leads[TILE][16];
    __shared__ real lengths[TILE];  // squared norms of the points
    __shared__ int before[TILE], after[TILE];
    const int r = shape.r, k = shape.k, d = shape.d, columns = columns_of(d, weight);
    const int across = threadIdx.x % 16, down = threadIdx.x / 16;  // 4 centres, 4 points of this thread
    const idx n = chunk.n, n_totals = private_totals ? (idx)r * k * columns : 0;
    const real *near = fast.centers, *norms = fast.norms, *doubt = fast.doubt;
    const double *offset = grid.offset, *scale = grid.scale;
    const double weight_scale = grid.weight_scale;
    DYNAMIC_SHARED(char, carved);
    ASSIGN_TILED_SHARED(CARVE)
    idx* sums = private_totals ? local_totals : totals;
    for (idx t = threadIdx.x; t < n_totals; t += blockDim.x) local_totals[t] = 0;  // before the first barrier
    for (idx base = (idx)blockIdx.x * TILE; base < n; base += (idx)gridDim.x * TILE) {
        for (int s = 0; s < r; ++s) {
            if (done && done[s]) continue;  // the same for all threads of the block
            Lead lead[4];
            real length[4];
            for (int p = 0; p < 4; ++p) { lead[p] = no_lead(); length[p] = 0; }
            for (int first = 0; first < k; first += TILE) {
                real dot[4][4];
                for (int p = 0; p < 4; ++p)
                    for (int c = 0; c < 4; ++c) dot[p][c] = 0;
                for (int depth = 0; depth < d; depth += DEPTH) {
                    __syncthreads();  // the tiles before have been read
                    for (int t = threadIdx.x; t < TILE * DEPTH; t += blockDim.x) {
                        const int row = t / DEPTH, j = t % DEPTH, column = depth + j;
                        points[j][row] = base + row < n && column < d
                            ? relative(X[(base + row) * d + column], offset[column], unit) : (real)0;
                        rivals[j][row] = first + row < k && column < d
                            ? near[((idx)s * k + first + row) * d + column] : (real)0;
                    }
                    __syncthreads();
                    for (int j = 0; j < DEPTH; ++j) {
#pragma unroll
                        for (int p = 0; p < 4; ++p) {
                            const real x = points[j][4 * down + p];
                            if (first == 0) length[p] += x * x;
#pragma unroll
                            for (int c = 0; c < 4; ++c) dot[p][c] += x * rivals[j][4 * across + c];
                        }
                    }
                }
                for (int c = 0; c < 4; ++c) {
                    const int a = first + 4 * across + c;
                    if (a >= k) break;
#pragma unroll
                    for (int p = 0; p < 4; ++p) consider(lead[p], norms[(idx)s * k + a] - 2 * dot[p][c], a);
                }
            }
            for (int p = 0; p < 4; ++p) {
                leads[4 * down + p][across] = lead[p];
                if (across == 0) lengths[4 * down + p] = length[p];
            }
            __syncthreads();
            const int row = threadIdx.x;
            if (row < TILE && base + row < n) {  // share: TILE / threads
                const idx i = base + row;
                Lead all = leads[row][0];
                for (int t = 1; t < 16; ++t) {  // equal scores are in doubt: who leads does not matter then
                    consider(all, leads[row][t].second, leads[row][t].found);
                    consider(all, leads[row][t].best, leads[row][t].found);
                }
                const real norm = sqrt(lengths[row]);
                const real bound = doubt[3 * s] + norm * (doubt[3 * s + 1] + norm * doubt[3 * s + 2]);
                if (k > 1 && !(all.second - all.best > bound))  // share: warp(doubt)
                    all.found = nearest_canonical(X + i * d, centers + (idx)s * k * d, k, d);
                int* label = labels + s * chunk.pitch + chunk.start + i;
                before[row] = fresh ? -1 : *label;
                after[row] = all.found;
                if (before[row] != after[row]) {
                    *label = all.found;
                    add_to(changed + s, 1);
                }
            }
            __syncthreads();
            if (!totals) continue;
            idx* clusters = sums + (idx)s * k * columns;
            for (int p = threadIdx.x; p < TILE && base + p < n; p += blockDim.x) {  // trips: TILE / threads
                const int old = before[p], found = after[p];
                if (old == found) continue;  // beyond: warp(changed)
                const idx i = base + p;
                contribute(clusters + (idx)found * columns, X + i * d, d, weight, i, offset, scale, weight_scale, 1);
                if (old >= 0)
                    contribute(clusters + (idx)old * columns, X + i * d, d, weight, i, offset, scale, weight_scale, -1);
            }
        }
    }
    __syncthreads();
    for (idx t = threadIdx.x; t < n_totals; t += blockDim.x)
        if (local_totals[t]) add_to(totals + t, local_totals[t]);
}
