// assign: nearest of K centres for every point in each of R restarts, and what that changes in the totals.
//
// N×K distances are never written. A point's row (d <= 32, -DD=d) goes through shared memory, where rare paths find
// it, into registers, relative to the offset; it is read once for all restarts. The fast distances Σ (x̃ − c̃)², in
// the type of the points, decide where the best is ahead of the second by more than their error; the rest are
// decided by the canonical formula, here in the kernel. Totals are integers: threads may add them in any order.
#include "common.cuh"

#ifdef D
// X        (n, D)      in   rows start .. start + n - 1 of the data set
// weight   (n)         in   or null
// centers  (R, K, D)   in   double
// fast     (R, K, D)   in   centres relative to the offset, times unit, as real
// doubt    (R, 3)      in   what two fast distances may err by: [0] + [1]·‖x‖ + [2]·‖x‖²
// offset   (D)         in   double; of the fast distances and of the totals
// scale    (D)         in   2^(LIMB - exponent) of every coordinate
// labels   (R, pitch)  in/out, or only out if `fresh`
// totals   (R, K, C)   in/out, or null: only labels are wanted
// changed  (R)         in/out, += points whose label is new
// done     (R)         in   or null: restarts to leave alone
// One thread per point, blocks stride over tiles of blockDim.x points. grid = (any), block = (any). Ties: lowest k.
// Shared: 8·(2·D + R) + 4·R bytes and sizeof(real)·(3·R + blockDim.x·STRIDE) always; 8·R·K·C if `private_totals`;
// sizeof(real)·R·K·D if `resident`: the fast centres.
#define STRIDE (D | 1)  // odd: rows begin in different banks
extern "C" __global__ void assign(const real* __restrict__ X, const double* __restrict__ weight,
                                  const double* __restrict__ centers, const real* __restrict__ fast,
                                  const real* __restrict__ doubt, const double* __restrict__ offset,
                                  const double* __restrict__ scale, int* __restrict__ labels,
                                  idx* __restrict__ totals, idx* __restrict__ changed,
                                  const int* __restrict__ done, idx n, idx start, idx pitch, int r, int k,
                                  double unit, double weight_scale, int fresh, int resident,
                                  int private_totals) {
    const int columns = 2 * D + 1 + (weight ? 2 : 0);
    const idx n_totals = private_totals ? (idx)r * k * columns : 0;
    DYNAMIC_SHARED(idx, mine);  // (R, K, C) if private_totals
    idx* moves = mine + n_totals;  // (R)
    double* origin = (double*)(moves + r);  // (D)
    double* grid = origin + D;  // (D)
    real* error = (real*)(grid + D);  // (R, 3)
    real* tile = error + 3 * r;  // (R, K, D) if resident
    real* rows = tile + (resident ? r * k * D : 0);  // (blockDim.x, STRIDE)
    int* over = (int*)(rows + blockDim.x * STRIDE);  // (R)
    for (idx t = threadIdx.x; t < n_totals + r; t += blockDim.x) mine[t] = 0;  // and moves
    for (int t = threadIdx.x; t < D; t += blockDim.x) { origin[t] = offset[t]; grid[t] = scale ? scale[t] : 0.0; }
    for (int t = threadIdx.x; t < 3 * r; t += blockDim.x) error[t] = doubt[t];
    for (int t = threadIdx.x; t < r; t += blockDim.x) over[t] = done ? done[t] : 0;
    if (resident)
        for (int t = threadIdx.x; t < r * k * D; t += blockDim.x) tile[t] = fast[t];
    const real* near = resident ? tile : fast;
    idx* sums = private_totals ? mine : totals;
    for (idx base = (idx)blockIdx.x * blockDim.x; base < n; base += (idx)gridDim.x * blockDim.x) {
        __syncthreads();  // the tile before has been read, the tables are written
        const int count = (int)min((idx)blockDim.x, n - base);
        for (int t = threadIdx.x; t < count * D; t += blockDim.x) rows[t / D * STRIDE + t % D] = X[base * D + t];
        __syncthreads();
        if ((int)threadIdx.x >= count) continue;  // to the barrier of the next tile
        const idx i = base + threadIdx.x;
        const real* x = rows + threadIdx.x * STRIDE;
        real moved[D], norm = 0;
#pragma unroll
        for (int j = 0; j < D; ++j) {
            moved[j] = (x[j] - (real)origin[j]) * (real)unit;
            norm += moved[j] * moved[j];
        }
        norm = sqrt(norm);
        for (int s = 0; s < r; ++s) {
            if (over[s]) continue;
            const real* c = near + (idx)s * k * D;
            Lead lead = no_lead();
            for (int a = 0; a < k; ++a, c += D) {
                real score = 0;
#pragma unroll
                for (int j = 0; j < D; ++j) {
                    const real diff = moved[j] - c[j];
                    score += diff * diff;
                }
                consider(lead, score, a);
            }
            int found = lead.found;
            const real bound = error[3 * s] + norm * (error[3 * s + 1] + norm * error[3 * s + 2]);
            if (k > 1 && !(lead.second - lead.best > bound))  // also where one is not a number
                found = nearest_canonical(x, centers + (idx)s * k * D, k, D);
            int* label = labels + s * pitch + start + i;
            const int old = fresh ? -1 : *label;
            if (found == old) continue;
            *label = found;
            add_to(moves + s, 1);
            if (!totals) continue;
            idx* clusters = sums + (idx)s * k * columns;
            contribute(clusters + (idx)found * columns, x, D, weight, i, origin, grid, weight_scale, 1);
            if (old >= 0) contribute(clusters + (idx)old * columns, x, D, weight, i, origin, grid, weight_scale, -1);
        }
    }
    __syncthreads();
    for (idx t = threadIdx.x; t < n_totals; t += blockDim.x)
        if (mine[t]) add_to(totals + t, mine[t]);
    for (int t = threadIdx.x; t < r; t += blockDim.x)
        if (moves[t]) add_to(changed + t, moves[t]);
}
#else
// The same for any d, by tiles: 64 points × 64 centres, 4 × 4 per thread, 16 coordinates at a time. A point's row is
// read once per tile of centres. Here the fast scores are ‖c̃‖² − 2 c̃·x̃, `fast` has the norms of its centres in
// `norms` (R, K), and the norms of the points are summed on the way.
// block = (256), grid = (any), blocks stride over tiles of points. Shared: the static tiles, and 8·R·K·C bytes if
// `private_totals`.
#define TILE 64
#define DEPTH 16
extern "C" __global__ void assign_tiled(const real* __restrict__ X, const double* __restrict__ weight,
                                        const double* __restrict__ centers, const real* __restrict__ fast,
                                        const real* __restrict__ norms, const real* __restrict__ doubt,
                                        const double* __restrict__ offset, const double* __restrict__ scale,
                                        int* __restrict__ labels, idx* __restrict__ totals,
                                        idx* __restrict__ changed, const int* __restrict__ done, idx n, idx start,
                                        idx pitch, int r, int k, int d, double unit, double weight_scale, int fresh,
                                        int private_totals) {
    DYNAMIC_SHARED(idx, mine);  // (R, K, C) if private_totals
    __shared__ real points[DEPTH][TILE + 1], rivals[DEPTH][TILE + 1];
    __shared__ Lead leads[TILE][16];
    __shared__ real lengths[TILE];  // squared norms of the points
    __shared__ int before[TILE], after[TILE];
    const int columns = 2 * d + 1 + (weight ? 2 : 0);
    const int across = threadIdx.x % 16, down = threadIdx.x / 16;  // 4 centres, 4 points of this thread
    const idx n_totals = private_totals ? (idx)r * k * columns : 0;
    idx* sums = private_totals ? mine : totals;
    for (idx t = threadIdx.x; t < n_totals; t += blockDim.x) mine[t] = 0;  // before the first barrier
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
                            ? (X[(base + row) * d + column] - (real)offset[column]) * (real)unit : (real)0;
                        rivals[j][row] = first + row < k && column < d
                            ? fast[((idx)s * k + first + row) * d + column] : (real)0;
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
            if (row < TILE && base + row < n) {
                const idx i = base + row;
                Lead all = leads[row][0];
                for (int t = 1; t < 16; ++t) {  // equal scores are in doubt: who leads does not matter then
                    consider(all, leads[row][t].second, leads[row][t].found);
                    consider(all, leads[row][t].best, leads[row][t].found);
                }
                const real norm = sqrt(lengths[row]);
                const real bound = doubt[3 * s] + norm * (doubt[3 * s + 1] + norm * doubt[3 * s + 2]);
                if (k > 1 && !(all.second - all.best > bound))
                    all.found = nearest_canonical(X + i * d, centers + (idx)s * k * d, k, d);
                int* label = labels + s * pitch + start + i;
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
            for (int p = threadIdx.x; p < TILE && base + p < n; p += blockDim.x) {
                if (before[p] == after[p]) continue;
                const idx i = base + p;
                contribute(clusters + (idx)after[p] * columns, X + i * d, d, weight, i, offset, scale, weight_scale, 1);
                if (before[p] >= 0)
                    contribute(clusters + (idx)before[p] * columns, X + i * d, d, weight, i, offset, scale, weight_scale, -1);
            }
        }
    }
    __syncthreads();
    for (idx t = threadIdx.x; t < n_totals; t += blockDim.x)
        if (mine[t]) add_to(totals + t, mine[t]);
}
#endif
