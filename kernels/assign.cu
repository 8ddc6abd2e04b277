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
#define BLOCKS (SIZE <= 128 ? 5 : SIZE <= 256 ? 4 : SIZE <= 640 ? 3 : 2)
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
        value = canonical(rows + row * STRIDE, centers + (idx)found * D, D);
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
    const real* shift;             // (D) the offset where `unit` is one, as it nearly always is; otherwise zero
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

// Decides the points of a list, of which centres with a score above a limit are not the nearest. Lanes take a centre
// each; those that are left, mostly two, wait until a warp has 32 of them. Where a score or a limit is not a number,
// every centre is left. rows and chosen are those of the warp.
__device__ void decide(const int* list, const real* limits, int count, const real* rows, const real* near,
                       const real* norms, const double* centers, int k, const Tables& tables, int* pairs, int* chosen) {
    const int lane = threadIdx.x % 32;
    int pending = 0;
    __syncwarp();
#pragma unroll 1
    for (int t = 0; t < count; ++t) {  // trips: OWN * doubt / max(1e-9, 1 - (1 - doubt) ** OWN)
        const int row = list[t];
        const real limit = limits[t];
        const int j_own = lane < D ? lane : 0;
        const real coordinate = relative(rows[row * STRIDE + j_own], tables.offset[j_own], tables.unit);
#pragma unroll 1
        for (int first = 0; first < k; first += 32) {  // trips: ceil(k / 32)
            const int a = min(first + lane, k - 1);
            real dot = 0;
#pragma unroll
            for (int j = 0; j < D; ++j) dot += near[(idx)a * D + j] * __shfl_sync(~0u, coordinate, j);
            const bool rival = first + lane < k && !(norms[a] - 2 * dot > limit);
            const unsigned mask = __ballot_sync(~0u, rival);
            const int at = pending + __popc(mask & ((1u << lane) - 1));
            if (rival) pairs[2 * at] = row, pairs[2 * at + 1] = a;
            pending += __popc(mask);
#pragma unroll 1
            while (pending > 32) pending = settle(pairs, pending, rows, centers, chosen);  // trips: 2 * doubt
        }
    }
    settle(pairs, pending, rows, centers, chosen);
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

// What column j of a point, or its weight and count (j = D), brings to one cluster and takes from another, if there is
// one: the limbs of `contribute`.
__device__ __forceinline__ void move_column(const Sums& sums, idx to, idx from, bool leaves, const real* x, int j,
                                            const double* weight, double weight_scale, const Tables& tables) {
    double v = 1.0;
    idx high = 0, low = 0;
    if (j < D) {
        v = __dsub_rn(widen(x[j]), tables.offset[j]);
        if (weight) v = __dmul_rn(v, *weight);
        v = __dmul_rn(v, tables.scale[j]);
    } else if (weight) {
        v = __dmul_rn(*weight, weight_scale);
    }
    high = next_limb(v), low = next_limb(v);
    const bool counts = j == D && (!weight || *weight > 0.0);
    const int columns = columns_of(D, weight != 0);
    if (j < D || weight) {
        const int one = j < D ? j : 2 * D, other = j < D ? D + j : 2 * D + 1;
        add_sum(sums, to + one, high);
        add_sum(sums, to + other, low);
        if (leaves) add_sum(sums, from + one, -high);
        if (leaves) add_sum(sums, from + other, -low);
    }
    if (counts) {
        add_sum(sums, to + columns - 1, 1);
        if (leaves) add_sum(sums, from + columns - 1, -1);
    }
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
    const Tables tables = {offset, scale, shift, unit};
#pragma unroll 1
    for (idx t = threadIdx.x; t < n_totals; t += THREADS) local_totals[t] = 0;
#pragma unroll 1
    for (int j = threadIdx.x; j < D; j += THREADS) {
        offset[j] = grid.offset[j];
        scale[j] = grid.scale ? grid.scale[j] : 0.0;
        shift[j] = unit == 1.0 ? (real)grid.offset[j] : (real)0;
    }
#pragma unroll 1
    for (int t = threadIdx.x; t < 3 * r; t += THREADS) doubts[t] = fast.doubt[t];
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
        real x[P][D], norm[P];
#pragma unroll
        for (int p = 0; p < P; ++p) {
            norm[p] = 0;
#pragma unroll
            for (int j = 0; j < D; ++j) {
                x[p][j] = -2 * (rows[(32 * p + lane) * STRIDE + j] - shift[j]);
                norm[p] += x[p][j] * x[p][j];
            }
            norm[p] = (real)0.5 * sqrt(norm[p]);
        }
        if (unit != 1.0) restage(rows, source, count, false, tables);  // share: 0
#pragma unroll 1
        for (int s = 0; s < r; ++s) {
            if (done && done[s]) continue;  // beyond: 1
            int* const label = labels + s * chunk.pitch + chunk.start + base + own + lane;
            int old[P], found[P];
            real best[P], second[P];
#pragma unroll
            for (int p = 0; p < P; ++p) {
                old[p] = !fresh && 32 * p + lane < count ? label[32 * p] : -1;
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
                    Lead lead = {infinite(), second[p], 0};
#pragma unroll
                    for (int m = 0; m < 4; ++m) consider(lead, score[0][m], m);
                    best[p] = lead.best, second[p] = lead.second;
                    found[p] = 4 * (a + at[p]) + lead.found;
                }
            }
            unsigned unsure = 0;  // a bit for each point of the thread
#pragma unroll
            for (int p = 0; p < P; ++p) {
                const real bound = doubts[3 * s] + norm[p] * (doubts[3 * s + 1] + norm[p] * doubts[3 * s + 2]);
                const bool certain = second[p] - best[p] > bound;  // not where one is not a number
                unsure |= (unsigned)(k > 1 && 32 * p + lane < count && !certain) << p;
                best[p] += bound;
            }
            if (__any_sync(~0u, unsure)) {  // share: 1 - (1 - doubt) ** OWN
                int listed = 0;
#pragma unroll
                for (int p = 0; p < P; ++p) {
                    const unsigned mask = __ballot_sync(~0u, unsure >> p & 1);
                    const int place = listed + __popc(mask & ((1u << lane) - 1));
                    if (unsure >> p & 1) mine[place] = 32 * p + lane, limit[place] = best[p];
                    listed += __popc(mask);
                }
                const idx begin = (idx)s * k;
                decide(mine, limit, listed, rows, fast.centers + begin * D, fast.norms + begin, centers + begin * D, k,
                       tables, pairs, picked);
#pragma unroll
                for (int p = 0; p < P; ++p)
                    if (unsure >> p & 1) found[p] = picked[32 * p + lane];
                __syncwarp();
            }
            bool any = false;
#pragma unroll
            for (int p = 0; p < P; ++p) any = any || (32 * p + lane < count && found[p] != old[p]);
            if (!__any_sync(~0u, any)) continue;  // beyond: 1 - (1 - changed) ** OWN
            int listed = 0;
#pragma unroll
            for (int p = 0; p < P; ++p) {
                const bool moves_on = 32 * p + lane < count && found[p] != old[p];
                const unsigned mask = __ballot_sync(~0u, moves_on);
                const int place = listed + __popc(mask & ((1u << lane) - 1));
                if (moves_on) {
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
            for (int t = lane; t < listed * (D + 1); t += 32) {  // trips: max(1, P * changed * (D + 1))
                const int place = t / (D + 1), j = t % (D + 1), row = mine[place], from = before[place];
                const idx i = base + own + row, begin = (idx)s * k;
                move_column(sums, (begin + picked[place]) * columns, (begin + from) * columns, from >= 0,
                            rows + row * STRIDE, j, weight ? weight + i : 0, grid.weight_scale, tables);
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
