// assign: nearest of K centres for every point in each of R restarts, and what that changes in the totals; d <= 32.
//
// N×K distances are never written. A warp has 32·P points at a time, P in the registers of each thread, and needs the
// other warps only where centres are brought to shared memory. The fast scores ‖c̃‖² − 2 c̃·x̃, in the type of the
// points, decide where the best is ahead of the second by more than their error. Points in doubt and points that change
// their cluster are lists of the warp, whose lanes share what is to be done for them. Totals are integers: they may be
// added in any order.
//
// The bound: a score is ‖c̃‖², rounded once, and d fused products with x' = −2x̃, which is exact. With the rounding of
// x̃ and c̃ it errs by at most (d + 4)·u·(2‖x‖‖c‖ + ‖c‖²) to first order (arithmetic/certified.py), less than the
// (d + CUDA_DOUBT_TERMS)·u·(‖x‖ + ‖c‖)² that fast.doubt has for the sum of squares. It holds for each computation of a
// score by itself, so that a score may be computed twice and need not have the same bits.
//
// Inner loop, d = 8, float, sm_80, for a point and a centre (SASS): 8 FFMA, 1.5 FMNMX, 0.25 FSETP, 0.25 SEL,
// 0.56 LDS.128, 0.2 for the loop.
#include "structs.cuh"

#define THREADS 128
#define WIDE 16
// Points of a thread: x' and four scores of each must fit its registers (gputabu.backend.cuda.shapes.assign_points).
#define P (D * sizeof(real) * sizeof(real) <= 256 ? 4 : D * sizeof(real) <= 128 ? 2 : 1)
// Blocks that the registers of a multiprocessor have room for; with more, some architecture spills.
#define SIZE (D * P * sizeof(real) * sizeof(real))
#define BLOCKS (SIZE <= 128 ? 5 : SIZE <= 256 ? 4 : SIZE <= 512 ? 3 : 2)
#define STRIDE (D | 1)       // of rows in shared memory; odd: they begin in different banks
#define GROUP (4 * (D + 1))  // four centres: their norms, then their first coordinates, their second ones, …
#define OWN (32 * P)         // points of a warp
// WIDE are the bytes of the widest load, from whose multiples rows and centres begin.
#define ASSIGN_SHARED(ARRAY)                                                 \
    ARRAY(double2, wide_rows, points * STRIDE * bytes / WIDE)                \
    ARRAY(double2, wide_centers, span * 4 * (D + 1) * bytes / WIDE)          \
    ARRAY(idx, local_totals, private_totals * r * k * columns)               \
    ARRAY(double, offset, D)                                                 \
    ARRAY(double, scale, D)                                                  \
    ARRAY(real, shift, D)                                                    \
    ARRAY(real, doubts, 3 * r)                                               \
    ARRAY(real, limits, points)                                              \
    ARRAY(int, list, points)                                                 \
    ARRAY(int, chosen, points)                                               \
    ARRAY(int, rivals, THREADS / 32 * 2 * 64)                                \
    ARRAY(unsigned, moves, r)

// Four numbers of shared memory by wide loads.
__device__ __forceinline__ void load_four(const float* from, float (&to)[4]) {
    const float4 four = *(const float4*)from;
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}
__device__ __forceinline__ void load_four(const double* from, double (&to)[4]) {
    const double2 low = ((const double2*)from)[0], high = ((const double2*)from)[1];
    to[0] = low.x, to[1] = low.y, to[2] = high.x, to[3] = high.y;
}

// Scores of a group of centres for the points of a thread.
template <int count>
__device__ __forceinline__ void score_group(const real* group, const real (&x)[count][D], real (&score)[count][4]) {
    real four[4];
    load_four(group, four);
#pragma unroll
    for (int p = 0; p < count; ++p)
#pragma unroll
        for (int m = 0; m < 4; ++m) score[p][m] = four[m];
#pragma unroll
    for (int j = 0; j < D; ++j) {
        load_four(group + 4 * (j + 1), four);
#pragma unroll
        for (int p = 0; p < count; ++p)
#pragma unroll
            for (int m = 0; m < 4; ++m) score[p][m] += four[m] * x[p][j];
    }
}

// Brings the groups from `low` to `high`, of all restarts, to shared memory; by all threads of the block. What a last
// group lacks are centres at infinity.
__device__ void load_centers(real* near, const FastCenters& fast, int low, int high, int k, int groups) {
    __syncthreads();  // those before have been read
#pragma unroll 1
    for (int t = threadIdx.x; t < 4 * D * (high - low); t += THREADS) {  // trips: 4 * D * span / THREADS
        const int row = t / D, j = t % D, s = (low + row / 4) / groups, a = 4 * (low + row / 4 - s * groups) + row % 4;
        near[row / 4 * GROUP + 4 * (j + 1) + row % 4] = a < k ? fast.centers[((idx)s * k + a) * D + j] : (real)0;
    }
#pragma unroll 1
    for (int t = threadIdx.x; t < 4 * (high - low); t += THREADS) {  // trips: 4 * span / THREADS
        const int s = (low + t / 4) / groups, a = 4 * (low + t / 4 - s * groups) + t % 4;
        near[t / 4 * GROUP + t % 4] = a < k ? fast.norms[(idx)s * k + a] : infinite();
    }
    __syncthreads();
}

// Decides up to 32 pairs of a point and a centre canonically, a lane each. Pairs of a point follow each other, by
// rising number of the centre. Returns how many pairs are left; the winner so far of the last point is one of them.
__device__ int settle(int* pairs, int pending, const real* rows, const double* centers, int* chosen) {
    const int lane = threadIdx.x % 32;
    __syncwarp();
    int row = -1, found = 0;
    double value = 0.0;
    if (lane < pending) {
        row = pairs[2 * lane], found = pairs[2 * lane + 1];
#pragma unroll 4
        for (int j = 0; j < D; ++j)  // trips: ceil(D / 4); as `canonical` does it, with four loads under way
            value = add_square(value, widen(rows[row * STRIDE + j]), centers[(idx)found * D + j]);
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {  // the least of the pairs of a point goes to the first of them
        const double other = __shfl_down_sync(~0u, value, step);
        const int other_row = __shfl_down_sync(~0u, row, step), other_found = __shfl_down_sync(~0u, found, step);
        if (other_row == row && other < value) value = other, found = other_found;
    }
    const int before = __shfl_up_sync(~0u, row, 1);
    if (row >= 0 && (lane == 0 || before != row)) chosen[row] = found;
    __syncwarp();
    if (pending <= 32) return 0;
    const int last = __shfl_sync(~0u, row, 31), next = 32 + lane;
    const int next_row = next < pending ? pairs[2 * next] : 0, next_found = next < pending ? pairs[2 * next + 1] : 0;
    __syncwarp();
    if (next < pending) pairs[2 * lane + 2] = next_row, pairs[2 * lane + 3] = next_found;
    if (lane == 0) pairs[0] = last, pairs[1] = chosen[last];
    return pending - 31;
}

// What the warps of a block share, and read only.
struct Tables {
    const double *offset, *scale;  // (D)
    double unit;
};

// The rows of a warp once more: relative to the offset, or as they are.
__device__ void restage(real* rows, const real* source, int count, bool moved, const Tables& tables) {
    __syncwarp();
#pragma unroll 1
    for (int t = threadIdx.x % 32; t < count * D; t += 32)  // trips: P * D
        rows[t / D * STRIDE + t % D] = moved ? relative(source[t], tables.offset[t % D], tables.unit) : source[t];
    __syncwarp();
}

// A list of points to decide, and what it takes; of one warp and one restart.
struct Doubtful {
    const int* list;      // rows of the points
    const real* limits;   // a centre with a higher score is not the nearest
    int count;
    const real* rows;
    const real* held;     // groups of the restart in shared memory, or null
    const real *near, *norms;  // all fast centres of the restart
    const double* centers;
};

// Lanes take a centre each; those that may be the nearest, mostly two of a point, wait until there are 32 of them. Where
// a score or a limit is not a number, every centre may be.
__device__ void decide(const Doubtful& who, int k, const Tables& tables, int* pairs, int* chosen) {
    const int lane = threadIdx.x % 32, j_own = lane < D ? lane : 0;
    int pending = 0, t = 0, first = 0;
    __syncwarp();
#pragma unroll 1
    while (t < who.count) {  // trips: ceil(k / 32) * OWN * doubt / max(1e-9, 1 - (1 - doubt) ** OWN)
        const int row = who.list[t], a = min(first + lane, k - 1);
        const real x = relative(who.rows[row * STRIDE + j_own], tables.offset[j_own], tables.unit);
        real dot = 0, norm = 0;
        if (who.held) {  // share: span >= ceil(k / 4)
            const real* const c = who.held + a / 4 * GROUP + a % 4;
            norm = c[0];
#pragma unroll
            for (int j = 0; j < D; ++j) dot += c[4 * (j + 1)] * __shfl_sync(~0u, x, j);
        }
        if (!who.held) {  // share: span < ceil(k / 4)
            norm = who.norms[a];
#pragma unroll
            for (int j = 0; j < D; ++j) dot += who.near[(idx)a * D + j] * __shfl_sync(~0u, x, j);
        }
        const bool rival = first + lane < k && !(norm - 2 * dot > who.limits[t]);
        const unsigned mask = __ballot_sync(~0u, rival);
        const int at = pending + __popc(mask & ((1u << lane) - 1));
        if (rival) pairs[2 * at] = row, pairs[2 * at + 1] = a;
        pending += __popc(mask);
        first += 32;
        if (first >= k) first = 0, ++t;
#pragma unroll 1
        while (pending > (t < who.count ? 32 : 0))  // trips: 1 / max(1, ceil(k / 32) * OWN * doubt)
            pending = settle(pairs, pending, who.rows, who.centers, chosen);
    }
    __syncwarp();
}

// Where totals are added: in shared memory if they are there, otherwise in global memory.
struct Sums {
    idx *local, *global;
    bool is_private;
};
__device__ __forceinline__ void add_sum(const Sums& sums, idx at, idx term) {
    if (!term) return;
    if (sums.is_private)
        add_to(sums.local + at, term);
    else
        add_to(sums.global + at, term);
}

// What a point brings to a cluster (sign = 1) or takes from it (-1), the same limbs as `contribute`: of column j, of its
// count (j = D) or of its weight (D + 1).
__device__ __forceinline__ void add_column(const Sums& sums, idx cluster, int j, idx sign, const real* x,
                                           const double* weight, double weight_scale, const Tables& tables) {
    const double w = weight ? *weight : 1.0;
    double v = j < D ? __dsub_rn(widen(x[j]), tables.offset[j]) : 1.0;
    if (weight && j != D) v = __dmul_rn(v, w);  // 1 w is w
    v = __dmul_rn(v, j < D ? tables.scale[j] : j == D ? 1.0 : weight_scale);
    const idx high = next_limb(v), low = next_limb(v);
    const bool wanted = j < D || (j == D ? w > 0.0 : weight != 0);
    const int columns = columns_of(D, weight != 0);
    if (wanted) add_sum(sums, cluster + (j < D ? j : j == D ? columns - 1 : 2 * D), sign * high);
    if (wanted && j != D) add_sum(sums, cluster + (j < D ? D + j : 2 * D + 1), sign * low);
}

// X        (n, D)      in   rows of the chunk
// weight   (n)         in   or null
// centers  (R, K, D)   in   double
// fast                 in   of the same centres
// labels   (R, pitch)  in/out, or only out if `fresh`
// totals   (R, K, C)   in/out, or null: only labels are wanted
// changed  (R)         in/out, += points whose label is new
// done     (R)         in   or null: restarts to leave alone
// span: groups of four centres that shared memory has room for; private_totals: the totals are there, and are added up
// at the end. Blocks stride over tiles of points. grid = (any), block = (THREADS). Ties: lowest k.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
assign(const real* __restrict__ X, const double* __restrict__ weight,
                                  const double* __restrict__ centers, FastCenters fast, int* __restrict__ labels,
                                  idx* __restrict__ totals, idx* __restrict__ changed, const int* __restrict__ done,
                                  Grid grid, Chunk chunk, Shape shape, double unit, int fresh, int span,
                                  int private_totals) {
    const int r = shape.r, k = shape.k, columns = columns_of(D, weight), groups = (k + 3) / 4;
    const int points = THREADS * P, bytes = sizeof(real), lane = threadIdx.x % 32, own = threadIdx.x / 32 * OWN;
    const idx n = chunk.n, n_totals = private_totals ? (idx)r * k * columns : 0;
    DYNAMIC_SHARED(char, carved);
    ASSIGN_SHARED(CARVE)
    real *const rows = (real*)wide_rows + own * STRIDE, *const near = (real*)wide_centers;
    real* const limit = limits + own;
    int *const mine = list + own, *const picked = chosen + own, *const pairs = rivals + threadIdx.x / 32 * 128;
    int* const before = (int*)limit;  // when nobody needs the limits any more
    const Tables tables = {offset, scale, unit};
#pragma unroll 1
    for (idx t = threadIdx.x; t < n_totals; t += THREADS) local_totals[t] = 0;
#pragma unroll 1
    for (int j = threadIdx.x; j < D; j += THREADS) {
        offset[j] = grid.offset[j];
        scale[j] = grid.scale ? grid.scale[j] : 0.0;
        shift[j] = unit == 1.0 ? 2 * (real)grid.offset[j] : (real)0;  // otherwise rows are moved before
    }
#pragma unroll 1
    for (int t = threadIdx.x; t < 3 * r; t += THREADS)
        doubts[t] = done && done[t / 3] ? (real)-1 : fast.doubt[t];  // negative where a restart is over
#pragma unroll 1
    for (int s = threadIdx.x; s < r; s += THREADS) moves[s] = 0;
    __syncthreads();
    int low = 0, high = 0;  // groups in shared memory
#pragma unroll 1
    for (idx base = (idx)blockIdx.x * points; base < n; base += (idx)gridDim.x * points) {
        const int count = (int)max((idx)0, min((idx)OWN, n - base - own));  // points of this warp
        const real* const source = X + (base + own) * D;
        __syncwarp();  // the rows before have been read
#pragma unroll
        for (int i = 0; i < P * D; ++i) {
            const unsigned t = 32 * i + lane;
            rows[t + t / D * (STRIDE - D)] = (int)t < count * D ? source[t] : (real)0;
        }
        if (unit != 1.0)  // share: 0; rows relative to the offset, for the registers alone
            restage(rows, source, count, true, tables);
        __syncwarp();
        real x[P][D], square[P];  // x' and its squared norm
        unsigned alive = 0;       // a bit for each point of the thread that there is
#pragma unroll
        for (int p = 0; p < P; ++p) {
            square[p] = 0;
            alive |= (unsigned)(32 * p + lane < count) << p;
#pragma unroll
            for (int j = 0; j < D; ++j) {
                x[p][j] = shift[j] - 2 * rows[(32 * p + lane) * STRIDE + j];
                square[p] += x[p][j] * x[p][j];
            }
        }
        if (unit != 1.0) restage(rows, source, count, false, tables);  // share: 0
#pragma unroll 1
        for (int s = 0; s < r; ++s) {
            if (doubts[3 * s] < 0) continue;  // beyond: 1
            int* const label = labels + s * chunk.pitch + chunk.start + base + own + lane;
            int old[P], found[P];
            real best[P], second[P];
#pragma unroll
            for (int p = 0; p < P; ++p) {
                old[p] = !fresh && (alive >> p & 1) ? label[32 * p] : -1;
                best[p] = second[p] = infinite();
                found[p] = 0;
            }
            int here;
#pragma unroll 1
            for (int a = 0; a < groups; a += here) {  // trips: ceil(ceil(k / 4) / span)
                const int wanted = s * groups + a;
                if (wanted < low || wanted >= high) {  // share: span < r * ceil(k / 4)
                    low = wanted, high = min(wanted + span, r * groups);
                    load_centers(near, fast, low, high, k, groups);
                }
                here = min(groups - a, high - wanted);
                const real* const first = near + (wanted - low) * GROUP;
                const int rounds = count > 0 ? here : 0;
                int at[P];
#pragma unroll
                for (int p = 0; p < P; ++p) at[p] = -1;
#pragma unroll 1
                for (int g = 0; g < rounds; ++g) {  // trips: ceil(k / 4) / ceil(ceil(k / 4) / span)
                    real score[P][4];
                    score_group<P>(first + g * GROUP, x, score);
#pragma unroll
                    for (int p = 0; p < P; ++p) {  // the best two of the least of each group
                        const real least = min(min(score[p][0], score[p][1]), min(score[p][2], score[p][3]));
                        at[p] = least < best[p] ? g : at[p];
                        second[p] = min(second[p], max(best[p], least));
                        best[p] = min(best[p], least);
                    }
                }
#pragma unroll
                for (int p = 0; p < P; ++p) {  // the second may be in the group of the best
                    if (at[p] < 0) continue;  // beyond: 1
                    real score[1][4], one[1][D];
#pragma unroll
                    for (int j = 0; j < D; ++j) one[0][j] = x[p][j];
                    score_group<1>(first + at[p] * GROUP, one, score);
                    const real(&c)[4] = score[0];
                    const real left = min(c[0], c[1]), right = min(c[2], c[3]);
                    const int which = right < left ? (c[3] < c[2] ? 3 : 2) : (c[1] < c[0] ? 1 : 0);
                    best[p] = min(left, right);
                    second[p] = min(second[p], max(left, right));
                    second[p] = min(second[p], min(max(c[0], c[1]), max(c[2], c[3])));
                    found[p] = 4 * (a + at[p]) + which;
                }
            }
            // (‖x‖ + ‖c‖)² ≤ 2‖x‖² + 2‖c‖²: this needs no root, and is seldom not enough.
            const real bound0 = doubts[3 * s], bound1 = doubts[3 * s + 1], bound2 = doubts[3 * s + 2];
            unsigned unsure = 0;
#pragma unroll
            for (int p = 0; p < P; ++p) {
                const bool certain = second[p] - best[p] > 2 * bound0 + square[p] * ((real)0.5 * bound2);
                unsure |= (unsigned)!certain << p;  // also where one is not a number
            }
            unsure &= k > 1 ? alive : 0;
            if (__any_sync(~0u, unsure)) {  // share: 1 - (1 - doubt) ** OWN
                int listed = 0;
#pragma unroll
                for (int p = 0; p < P; ++p) {
                    const real norm = (real)0.5 * sqrt(square[p]), bound = bound0 + norm * (bound1 + norm * bound2);
                    if (second[p] - best[p] > bound) unsure &= ~(1u << p);
                    const unsigned mask = __ballot_sync(~0u, unsure >> p & 1);
                    const int place = listed + __popc(mask & ((1u << lane) - 1));
                    if (unsure >> p & 1) mine[place] = 32 * p + lane, limit[place] = best[p] + bound;
                    listed += __popc(mask);
                }
                const idx begin = (idx)s * k;
                const bool all = s * groups >= low && (s + 1) * groups <= high;
                const Doubtful who = {mine, limit, listed, rows, all ? near + (s * groups - low) * GROUP : 0,
                                      fast.centers + begin * D, fast.norms + begin, centers + begin * D};
                decide(who, k, tables, pairs, picked);
#pragma unroll
                for (int p = 0; p < P; ++p)
                    if (unsure >> p & 1) found[p] = picked[32 * p + lane];
                __syncwarp();
            }
            unsigned leaving = 0;
#pragma unroll
            for (int p = 0; p < P; ++p) leaving |= (unsigned)(found[p] != old[p]) << p;
            leaving &= alive;
            if (!__any_sync(~0u, leaving)) continue;  // beyond: 1 - (1 - changed) ** OWN
            int listed = 0;
#pragma unroll
            for (int p = 0; p < P; ++p) {
                const unsigned mask = __ballot_sync(~0u, leaving >> p & 1);
                const int place = listed + __popc(mask & ((1u << lane) - 1));
                if (leaving >> p & 1) {
                    label[32 * p] = found[p];
                    mine[place] = 32 * p + lane;
                    before[place] = old[p], picked[place] = found[p];
                }
                listed += __popc(mask);
            }
            if (lane == 0) atomicAdd(moves + s, (unsigned)listed);
            __syncwarp();
            if (!totals) continue;
            const Sums sums = {local_totals, totals, private_totals != 0};
#pragma unroll 1
            for (int t = lane; t < listed * 2 * (D + 2); t += 32) {  // trips: max(1, P * changed * 2 * (D + 2))
                const int place = t / (2 * (D + 2)), j = t / 2 % (D + 2), row = mine[place];
                const int cluster = t % 2 ? before[place] : picked[place];
                if (cluster < 0) continue;  // beyond: 1
                add_column(sums, ((idx)s * k + cluster) * columns, j, t % 2 ? -1 : 1, rows + row * STRIDE,
                           weight ? weight + base + own + row : 0, grid.weight_scale, tables);
            }
            __syncwarp();
        }
    }
    __syncthreads();
#pragma unroll 1
    for (idx t = threadIdx.x; t < n_totals; t += THREADS)
        if (local_totals[t]) add_to(totals + t, local_totals[t]);
#pragma unroll 1
    for (int s = threadIdx.x; s < r; s += THREADS)
        if (moves[s]) add_to(changed + s, (idx)moves[s]);
}
