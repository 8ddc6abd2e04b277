// assign: nearest of K centres for every point in each of R restarts, and what that changes in the totals; d <= 32.
//
// N×K distances are never written. A warp has 32·P points at a time, P in the registers of each thread, and needs the
// other warps only where centres are brought to shared memory and at the end. Labels of a pass before mostly stand, and
// need only be confirmed: with s = ‖c̃‖² − 2 c̃·x̃ the score of a centre, in the type of the points, and t the score of the
// point's own plus a margin, Σ_k min(1, max(0, t − s_k)) has the own centre's term alone where no other comes near. That
// takes no comparison at all: a difference, D fused products, of which the last one clips, and a sum. Where labels are
// new the best two scores are looked for instead. Points that neither settles, and those that change, wait until there
// are 32 of them, and then get a lane each. Totals are integers: they may be added in any order.
//
// The bound: a score is ‖c̃‖², rounded once, and d fused products with x' = −2x̃, which is exact. With the rounding of
// x̃ and c̃ it errs by at most ε = (d + 4)·u·(2‖x‖‖c‖ + ‖c‖²) to first order (arithmetic/certified.py), and t − s by at
// most 2ε, as t is not larger than twice what a score can be. With b >= doubt (‖x‖ + ‖c‖)² + floor > 4ε, the margin is
// 8b, and terms of others must stay below 4b: then they are worse than the own centre by 8b − 4b − 6ε, which is more than
// what the canonical formula may err by. The bound holds for each computation of a score by itself, so that a score may
// be computed twice and need not have the same bits.
#include "structs.cuh"

#ifndef MOVED
#define MOVED 0  // 1 where Doubt.unit is not one
#endif
#define THREADS 128
#define WARPS 4
// Points of a thread: x' and four scores of each must fit its registers (gputabu.backend.cuda.shapes.assign_points).
#define P (D * sizeof(real) * sizeof(real) <= 32 ? 8 : D * sizeof(real) * sizeof(real) <= 256 ? 4 : D * sizeof(real) <= 128 ? 2 : 1)
// Blocks that the registers of a multiprocessor have room for; with more, some architecture spills.
#define SIZE (D * P * sizeof(real) * sizeof(real))
#define VOLTA (__CUDA_ARCH__ == 700)
#define BLOCKS (sizeof(real) == 4 ? (SIZE <= 512 ? 4 - VOLTA : SIZE <= 768 ? 3 : 2) : SIZE < 768 ? 3 : 2)
// A row is UNITS loads of VEC coordinates. If that is one, threads load their rows; otherwise these pass through shared
// memory, an odd number of units apart: so they begin in different banks (gputabu.backend.cuda.shapes.assign_stride).
#define VEC (int)(D * sizeof(real) % 16 == 0 ? 16 / sizeof(real) : D * sizeof(real) % 8 == 0 ? 8 / sizeof(real) : 1)
#define UNITS (D / VEC)
#define STRIDE (UNITS == 1 ? 0 : UNITS | 1)
#define GROUP (4 * (D + 1))  // four centres: their norms, then their first coordinates, their second ones, …
#define OWN (32 * P)         // points of a warp
#define QUEUE (OWN + 32)     // points that can wait in a warp
// The bytes of the widest load, from whose multiples rows and centres begin.
#define WIDE 16
#define ASSIGN_SHARED(ARRAY)                                                 \
    ARRAY(double2, wide_rows, THREADS * stride * bytes / WIDE)               \
    ARRAY(double2, wide_centers, span * 4 * (D + 1) * bytes / WIDE)          \
    ARRAY(idx, local_totals, private_totals * r * k * columns)               \
    ARRAY(double, offset, D)                                                 \
    ARRAY(double, scale, D)                                                  \
    ARRAY(real, shift, D)                                                    \
    ARRAY(real, doubts, 3 * r)                                               \
    ARRAY(int, queues, 2 * points + 64 * WARPS)                              \
    ARRAY(int, lengths, WARPS)                                               \
    ARRAY(unsigned, moves, r)

template <class T, int count> struct Widest { typedef T type; };
template <> struct Widest<float, 2> { typedef float2 type; };
template <> struct Widest<float, 4> { typedef float4 type; };
template <> struct Widest<double, 2> { typedef double2 type; };
typedef Widest<real, VEC>::type Unit;

__device__ __forceinline__ void unpack(const float v, float* to) { to[0] = v; }
__device__ __forceinline__ void unpack(const float2 v, float* to) { to[0] = v.x, to[1] = v.y; }
__device__ __forceinline__ void unpack(const float4 v, float* to) { to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w; }
__device__ __forceinline__ void unpack(const double v, double* to) { to[0] = v; }
__device__ __forceinline__ void unpack(const double2 v, double* to) { to[0] = v.x, to[1] = v.y; }

// What the warps of a block share, and read only.
struct Tables {
    const double *offset, *scale;  // (D)
    const real* shift;             // (D) twice the offset
    double unit, weight_scale;
};

// −2x̃, of a coordinate.
__device__ __forceinline__ real doubled(real x, int j, const Tables& tables) {
#if MOVED
    return -2 * relative(x, tables.offset[j], tables.unit);
#else
    return tables.shift[j] - 2 * x;
#endif
}

// Four numbers of shared memory by wide loads.
__device__ __forceinline__ void load_four(const float* from, float (&to)[4]) { unpack(*(const float4*)from, to); }
__device__ __forceinline__ void load_four(const double* from, double (&to)[4]) {
    unpack(((const double2*)from)[0], to), unpack(((const double2*)from)[1], to + 2);
}

// min(1, max(0, a + b)) in one instruction; in double max(0, a + b), which serves as well.
__device__ __forceinline__ float clipped(float a, float b) {
#ifdef HOSTCUDA
    return __saturatef(a + b);
#else
    float sum;
    asm("add.ftz.sat.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
    return sum;
#endif
}
__device__ __forceinline__ double clipped(double a, double b) { return max(a + b, 0.0); }

// −s for a group of centres and the points of a thread.
template <int count>
__device__ __forceinline__ void match_group(const real* group, const real (&x)[count][D], real (&near)[count][4]) {
    real four[4];
    load_four(group, four);
#pragma unroll
    for (int p = 0; p < count; ++p)
#pragma unroll
        for (int m = 0; m < 4; ++m) near[p][m] = -four[m];
#pragma unroll
    for (int j = 0; j < D; ++j) {
        load_four(group + 4 * (j + 1), four);
#pragma unroll
        for (int p = 0; p < count; ++p)
#pragma unroll
            for (int m = 0; m < 4; ++m) near[p][m] -= four[m] * x[p][j];
    }
}

// The fast centres of one restart: in shared memory, if `held`, and in global memory.
struct Centers {
    const real *held, *rows, *norms;
};

// −s of one centre.
__device__ __forceinline__ real match(const Centers& centers, int a, const real (&x)[D]) {
    real near;
    if (centers.held) {  // share: span >= r * ceil(k / 4)
        const unsigned number = (unsigned)a;  // signed quotients take longer
        const real* const c = centers.held + (number + number / 4 * (GROUP - 4));
        near = -c[0];
#pragma unroll
        for (int j = 0; j < D; ++j) near -= c[4 * (j + 1)] * x[j];
    }
    if (!centers.held) {  // share: span < r * ceil(k / 4)
        near = -centers.norms[a];
#pragma unroll
        for (int j = 0; j < D; ++j) near -= centers.rows[(idx)a * D + j] * x[j];
    }
    return near;
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

// The three nearest centres so far, and which the first two are.
struct Three {
    real best, second, third;
    int found, other;
};
__device__ __forceinline__ void look(Three& three, real near, int number) {
    const bool first = near > three.best, next = near > three.second;
    three.third = max(three.third, min(three.second, near));
    three.other = first ? three.found : next ? number : three.other;
    three.second = max(three.second, min(three.best, near));
    three.found = first ? number : three.found;
    three.best = max(three.best, near);
}

// The canonical distance of a row, with four loads under way.
__device__ __forceinline__ double square_of(const real* x, const double* c) {
    double sum = 0.0;
#pragma unroll 4
    for (int j = 0; j < D; ++j) sum = add_square(sum, widen(x[j]), c[j]);  // trips: ceil(D / 4)
    return sum;
}

// The nearest centre of a point of this lane, if it has `work`; x' of it, and its row. Lanes of a warp may be in
// different restarts.
__device__ int nearest(bool work, const real (&x)[1][D], const real* row, const Centers& fast, const double* centers,
                       const real* doubts, int k) {
    real square = 0, score[1][4];
#pragma unroll
    for (int j = 0; j < D; ++j) square += x[0][j] * x[0][j];
    Three three = {-infinite(), -infinite(), -infinite(), 0, 0};
#pragma unroll 1
    for (int g = 0; g < (k + 3) / 4; ++g) {  // trips: ceil(k / 4)
        if (fast.held) match_group<1>(fast.held + g * GROUP, x, score);  // share: span >= r * ceil(k / 4)
        if (!fast.held)  // share: span < r * ceil(k / 4)
#pragma unroll
            for (int m = 0; m < 4; ++m)
                score[0][m] = 4 * g + m < k ? match(fast, 4 * g + m, x[0]) : -infinite();
#pragma unroll
        for (int m = 0; m < 4; ++m) look(three, score[0][m], 4 * g + m);
    }
    const real norm = (real)0.5 * sqrt(square), bound = doubts[0] + norm * (doubts[1] + norm * doubts[2]);
    const real limit = three.best - bound;
    const bool unsure = work && k > 1 && !(three.second < limit);  // also where one is not a number
    if (!__any_sync(~0u, unsure)) return three.found;  // beyond: doubt > 0
    const bool many = !(three.third < limit);
    int found = three.found;
    if (unsure && !many) {
        const int low = min(found, three.other), high = max(found, three.other);
        const double here = square_of(row, centers + (idx)low * D), there = square_of(row, centers + (idx)high * D);
        found = there < here ? high : low;
    }
    if (unsure && many) {  // share: 0
        double least = 0.0;
        bool any = false;
#pragma unroll 1
        for (int a = 0; a < k; ++a) {
            if (match(fast, a, x[0]) < limit) continue;
            const double value = square_of(row, centers + (idx)a * D);
            if (!any || value < least) least = value, found = a;
            any = true;
        }
    }
    return found;
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

// Takes a point from the totals that begin at `old`, if that is not negative, and gives it to those at `now`: the same
// limbs as `contribute`.
__device__ __forceinline__ void move_point(const Sums& sums, idx old, idx now, const real* x, const double* weight,
                                           const Tables& tables) {
    const int columns = columns_of(D, weight != 0);
    const double w = weight ? *weight : 1.0;
#pragma unroll 1
    for (int j = 0; j < D + (weight != 0); ++j) {  // trips: D
        double v = j < D ? __dsub_rn(widen(x[j]), tables.offset[j]) : w;
        if (weight && j < D) v = __dmul_rn(v, w);
        v = __dmul_rn(v, j < D ? tables.scale[j] : tables.weight_scale);
        const int first = j < D ? j : 2 * D, second = j < D ? D + j : 2 * D + 1;
        const idx high = next_limb(v), low = next_limb(v);
        add_sum(sums, now + first, high), add_sum(sums, now + second, low);
        if (old < 0) continue;  // beyond: 1
        add_sum(sums, old + first, -high), add_sum(sums, old + second, -low);
    }
    if (weight && !(w > 0.0)) return;  // beyond: 1
    add_sum(sums, now + columns - 1, 1);
    if (old >= 0) add_sum(sums, old + columns - 1, -1);
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
    const int r = shape.r, k = shape.k, columns = columns_of(D, weight), groups = (k + 3) / 4, stride = STRIDE * VEC;
    const int points = THREADS * P, bytes = sizeof(real);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = warp * OWN;
    const idx n = chunk.n, n_totals = private_totals ? (idx)r * k * columns : 0;
    DYNAMIC_SHARED(char, carved);
    ASSIGN_SHARED(CARVE)
    Unit* const rows = (Unit*)wide_rows + 32 * warp * STRIDE;
    real* const near = (real*)wide_centers;
    const Tables tables = {offset, scale, shift, unit, grid.weight_scale};
    const Sums sums = {local_totals, totals, private_totals != 0};
#pragma unroll 1
    for (idx t = threadIdx.x; t < n_totals; t += THREADS) local_totals[t] = 0;
#pragma unroll 1
    for (int j = threadIdx.x; j < D; j += THREADS) {
        offset[j] = grid.offset[j];
        scale[j] = grid.scale ? grid.scale[j] : 0.0;
        shift[j] = 2 * (real)grid.offset[j];
    }
#pragma unroll 1
    for (int t = threadIdx.x; t < 3 * r; t += THREADS)
        doubts[t] = done && done[t / 3] ? (real)-1 : fast.doubt[t];  // negative where a restart is over
#pragma unroll 1
    for (int s = threadIdx.x; s < r; s += THREADS) moves[s] = 0;
    __syncthreads();
    int low = 0, high = 0;  // groups in shared memory
    const bool resident = span >= r * groups;
    if (resident) load_centers(near, fast, 0, high = r * groups, k, groups);
    int* const queue = queues + 2 * QUEUE * warp;
    int waiting = 0;        // points in it
    bool crowded = fresh;   // many labels do not stand: it is better to look for them at once
    idx base = (idx)blockIdx.x * points;  // of this tile; the same in all warps
    int s = 0, count = 0, begun = 0;      // restart of this turn, points of this warp; whether X has been read
    real x[P][D], square[P];              // x' and its squared norm
    int left = 0;                         // the thread has its points at 0, 32, …, below this
#pragma unroll 1
    for (;; ++s) {  // trips: n * r / (THREADS * P * gridDim.x)
        if (s == r) s = 0, begun = 0, base += (idx)gridDim.x * points;
        if (begun == 0 || waiting >= 32) {  // share: 1; nothing of the tile is held here
            const bool more = base < n;
#pragma unroll 1
            for (bool last = false;; waiting -= 32) {  // trips: (max(0, n * (doubt + changed) / (WARPS * gridDim.x) - 16) / 32 + ceil(min(n * (doubt + changed) / (WARPS * gridDim.x), 16) / 8) / 4) * THREADS * P * gridDim.x / (n * r)
                if (waiting < 32) {  // share: THREADS * P * gridDim.x / (n * r)
                    if (more || last) break;
                    last = true;  // what is left in all queues, in as few warps as can be
                    if (lane == 0) lengths[warp] = waiting;
                    __syncthreads();
                    waiting = -32 * warp;
#pragma unroll
                    for (int w = 0; w < WARPS; ++w) waiting += lengths[w];
                    if (waiting <= 0) break;
                }
                int whose = warp, at = waiting - 32 + lane;
                if (last) {  // share: 1
                    at = threadIdx.x;
#pragma unroll
                    for (whose = 0; whose < WARPS && at >= lengths[whose]; ++whose) at -= lengths[whose];
                    waiting = 0;
                }
                __syncwarp();  // the queue has been written
                const bool here = whose < WARPS;
                const int* const place = queues + 2 * (whose * QUEUE + at);
                const int row = here ? place[0] : 0, code = here ? place[1] : 1, t = code / (k + 1), t_k = t * k;
                int now = code - t * (k + 1) - 1;
                const real* const point = X + (idx)row * D;
                int* const label = labels + t * chunk.pitch + chunk.start + row;
                const int before = here && !fresh ? *label : -1;
                if (__any_sync(~0u, now < 0)) {  // share: 1
                    real y[1][D];
#pragma unroll
                    for (int j = 0; j < D; ++j) y[0][j] = here ? point[j] : (real)0;
#pragma unroll
                    for (int j = 0; j < D; ++j) y[0][j] = doubled(y[0][j], j, tables);
                    const Centers some = {resident ? near + t * groups * GROUP : 0, fast.centers + (idx)t_k * D,
                                          fast.norms + t_k};
                    const int found = nearest(now < 0, y, point, some, centers + (idx)t_k * D, doubts + 3 * t, k);
                    now = now < 0 ? found : now;
                }
                if (here && now != before) {  // share: changed > 0
                    *label = now;
                    atomicAdd(moves + t, 1u);
                    if (totals)
                        move_point(sums, before < 0 ? -1 : (idx)(t_k + before) * columns, (idx)(t_k + now) * columns, point,
                                   weight ? weight + row : 0, tables);
                }
                __syncwarp();
            }
            if (!more) break;
            begun = 1;
            count = min(max((int)min(n - base, (idx)points) - own, 0), OWN);
            left = count - lane;
            const Unit* const source = (const Unit*)(X + (base + own) * D) + lane;
            Unit loaded[P * UNITS];
#pragma unroll
            for (int i = 0; i < P * UNITS; ++i) loaded[i] = 32 * i < count * UNITS - lane ? source[32 * i] : Unit();
            if (UNITS > 1)
#pragma unroll
                for (int p = 0; p < P; ++p) {
                    __syncwarp();  // the rows before have been read
#pragma unroll
                    for (int u = 0; u < UNITS; ++u) {
                        const unsigned t = 32 * u + lane;
                        rows[t + t / UNITS * (STRIDE - UNITS)] = loaded[p * UNITS + u];
                    }
                    __syncwarp();
#pragma unroll
                    for (int u = 0; u < UNITS; ++u) loaded[p * UNITS + u] = rows[lane * STRIDE + u];
                }
#pragma unroll
            for (int i = 0; i < P * UNITS; ++i) unpack(loaded[i], &x[i / UNITS][i % UNITS * VEC]);
#pragma unroll
            for (int p = 0; p < P; ++p) {
                square[p] = 0;
#pragma unroll
                for (int j = 0; j < D; ++j) {
                    x[p][j] = doubled(x[p][j], j, tables);
                    square[p] += x[p][j] * x[p][j];
                }
            }
        }
        if (doubts[3 * s] < 0) continue;  // beyond: 1
        // (‖x‖ + ‖c‖)² ≤ 2‖x‖² + 2‖c‖²: this needs no root, and is seldom not enough.
        const real bound0 = 16 * doubts[3 * s], bound2 = 4 * doubts[3 * s + 2];
        const int* const label = labels + s * chunk.pitch + chunk.start + base + own + lane;
        const Centers own_centers = {resident ? near + s * groups * GROUP : 0, fast.centers + (idx)s * k * D,
                                     fast.norms + (idx)s * k};
        int old[P], found[P], fewest = 0;
        real from[P], margin[P], sum[P], second[P];  // sum: also the best
#pragma unroll
        for (int p = 0; p < P; ++p) {
            old[p] = 32 * p < (fresh ? 0 : left) ? label[32 * p] : -fresh;
            fewest = min(fewest, old[p]);
        }
        const bool leading = crowded || __any_sync(~0u, fewest < 0);
        if (leading) {  // share: 0
#pragma unroll
            for (int p = 0; p < P; ++p) sum[p] = second[p] = -infinite(), found[p] = 0;
        }
        if (!leading) {  // share: 1
#pragma unroll
            for (int p = 0; p < P; ++p) {
                margin[p] = bound0 + square[p] * bound2;
                from[p] = margin[p] - match(own_centers, old[p], x[p]);
                margin[p] = clipped(margin[p], (real)0), sum[p] = -margin[p];
            }
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
            real score[P][4];
            if (leading) {  // share: 0
#pragma unroll 1
                for (int g = 0; g < rounds; ++g) {  // trips: 0
                    match_group<P>(first + g * GROUP, x, score);
#pragma unroll
                    for (int p = 0; p < P; ++p)
#pragma unroll
                        for (int m = 0; m < 4; ++m) {
                            const bool ahead = score[p][m] > sum[p];
                            second[p] = max(second[p], min(sum[p], score[p][m]));
                            found[p] = ahead ? 4 * (a + g) + m : found[p];
                            sum[p] = max(sum[p], score[p][m]);
                        }
                }
            }
            if (!leading) {  // share: 1
#pragma unroll 1
                for (int g = 0; g < rounds; ++g) {  // trips: ceil(k / 4) / ceil(ceil(k / 4) / span)
                    match_group<P>(first + g * GROUP, x, score);
#pragma unroll
                    for (int p = 0; p < P; ++p)
#pragma unroll
                        for (int m = 0; m < 4; ++m) sum[p] += clipped(from[p], score[p][m]);
                }
            }
        }
        unsigned pending = 0, known = 0;  // points that wait, and those of them whose label is known
        if (leading) {  // share: 0
#pragma unroll
            for (int p = 0; p < P; ++p) {
                const bool sure = sum[p] - second[p] > (real)0.125 * (bound0 + square[p] * bound2);
                known |= (unsigned)sure << p;
                pending |= (unsigned)!(sure && found[p] == old[p]) << p;
            }
        }
        if (!leading) {  // share: 1
#pragma unroll
            for (int p = 0; p < P; ++p)  // also where one is not a number
                pending |= (unsigned)!(max(sum[p], -sum[p]) < (real)0.5 * margin[p]) << p;
        }
        pending &= (1u << max(left + 31, 0) / 32) - 1u;
        unsigned lanes = __ballot_sync(~0u, pending != 0);
        crowded = fresh || __popc(lanes) > 16;
#pragma unroll 1
        for (; lanes; lanes = __ballot_sync(~0u, pending != 0)) {  // trips: 1 - (1 - doubt - changed) ** OWN
            if (pending) {
                const int p = __ffs((int)pending) - 1;
                int* const place = queue + 2 * (waiting + __popc(lanes & ((1u << lane) - 1)));
                int code = s * (k + 1);
                if (leading)  // share: 0
#pragma unroll
                    for (int q = 0; q < P; ++q)
                        if (p == q && (known >> q & 1)) code += found[q] + 1;
                place[0] = (int)(base + own) + 32 * p + lane, place[1] = code;
                pending &= pending - 1;
            }
            waiting += __popc(lanes);
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
