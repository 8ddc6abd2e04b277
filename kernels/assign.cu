// assign: nearest of K centres for every point in each of R restarts, and what that changes in the totals; d <= 32.
//
// N×K distances are never written. A point's row (-DD=d) goes through shared memory, where rare paths find it, into
// registers, relative to the offset; it is read once for all restarts. The fast distances Σ (x̃ − c̃)², in the type of
// the points, decide where the best is ahead of the second by more than their error; the rest are decided by the
// canonical formula, here in the kernel. Totals are integers: threads may add them in any order.
#include "structs.cuh"

#define ASSIGN_SHARED(ARRAY)                                      \
    ARRAY(idx, local_totals, private_totals * r * k * columns)    \
    ARRAY(idx, moves, r)                                          \
    ARRAY(double, offset, D)                                      \
    ARRAY(double, scale, D)                                       \
    ARRAY(real, doubt, 3 * r)                                     \
    ARRAY(real, tile, resident * r * k * D)                       \
    ARRAY(real, rows, threads * (D | 1))                          \
    ARRAY(int, over, r)
#define STRIDE (D | 1)  // of `rows`; odd: they begin in different banks

// X        (n, D)      in   rows of the chunk
// weight   (n)         in   or null
// centers  (R, K, D)   in   double
// fast                 in   of the same centres
// labels   (R, pitch)  in/out, or only out if `fresh`
// totals   (R, K, C)   in/out, or null: only labels are wanted
// changed  (R)         in/out, += points whose label is new
// done     (R)         in   or null: restarts to leave alone
// resident: the fast centres are held in shared memory; private_totals: the totals are, and are added up at the end.
// One thread per point, blocks stride over tiles of blockDim.x points. grid = (any), block = (any). Ties: lowest k.
extern "C" __global__ void assign(const real* __restrict__ X, const double* __restrict__ weight,
                                  const double* __restrict__ centers, FastCenters fast, int* __restrict__ labels,
                                  idx* __restrict__ totals, idx* __restrict__ changed, const int* __restrict__ done,
                                  Grid grid, Chunk chunk, Shape shape, double unit, int fresh, int resident,
                                  int private_totals) {
    const int r = shape.r, k = shape.k, columns = columns_of(D, weight), threads = blockDim.x;
    const idx n = chunk.n, n_totals = private_totals ? (idx)r * k * columns : 0;
    DYNAMIC_SHARED(char, carved);
    ASSIGN_SHARED(CARVE)
    for (idx t = threadIdx.x; t < n_totals + r; t += threads) local_totals[t] = 0;  // and moves
    for (int j = threadIdx.x; j < D; j += threads) {
        offset[j] = grid.offset[j];
        scale[j] = grid.scale ? grid.scale[j] : 0.0;
    }
    for (int t = threadIdx.x; t < 3 * r; t += threads) doubt[t] = fast.doubt[t];
    for (int s = threadIdx.x; s < r; s += threads) over[s] = done ? done[s] : 0;
    if (resident)
        for (int t = threadIdx.x; t < r * k * D; t += threads) tile[t] = fast.centers[t];
    const real* near = resident ? tile : fast.centers;
    idx* sums = private_totals ? local_totals : totals;
    for (idx base = (idx)blockIdx.x * threads; base < n; base += (idx)gridDim.x * threads) {
        __syncthreads();  // the tile before has been read, the tables are written
        const int count = (int)min((idx)threads, n - base);
        for (int t = threadIdx.x; t < count * D; t += threads) rows[t / D * STRIDE + t % D] = X[base * D + t];
        __syncthreads();
        if ((int)threadIdx.x >= count) continue;  // to the barrier of the next tile
        const idx i = base + threadIdx.x;
        const real* x = rows + threadIdx.x * STRIDE;
        real moved[D], norm = 0;
#pragma unroll
        for (int j = 0; j < D; ++j) {
            moved[j] = relative(x[j], offset[j], unit);
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
            const real bound = doubt[3 * s] + norm * (doubt[3 * s + 1] + norm * doubt[3 * s + 2]);
            if (k > 1 && !(lead.second - lead.best > bound))  // share: warp(doubt); also where one is not a number
                found = nearest_canonical(x, centers + (idx)s * k * D, k, D);
            int* label = labels + s * chunk.pitch + chunk.start + i;
            const int old = fresh ? -1 : *label;
            if (found == old) continue;  // beyond: warp(changed)
            *label = found;
            add_to(moves + s, 1);
            if (!totals) continue;
            idx* clusters = sums + (idx)s * k * columns;
            contribute(clusters + (idx)found * columns, x, D, weight, i, offset, scale, grid.weight_scale, 1);
            if (old >= 0)
                contribute(clusters + (idx)old * columns, x, D, weight, i, offset, scale, grid.weight_scale, -1);
        }
    }
    __syncthreads();
    for (idx t = threadIdx.x; t < n_totals; t += threads)
        if (local_totals[t]) add_to(totals + t, local_totals[t]);
    for (int s = threadIdx.x; s < r; s += threads)
        if (moves[s]) add_to(changed + s, moves[s]);
}
