// assign_resident: what assign.cu does, on tensor cores, where d is moderate and all centres fit in shared memory.
//
// A warp has 32 points: X is read once, row by row into shared memory, and from there as fragments (tensor.cuh) that stay
// in registers while all centres pass, halves in the order of halves.cuh. Restarts, points in doubt and totals find the
// rows where they are. Scores are |c|^2 - 2 c.x with a bound on their error (HalfDoubt). A lane sees eight scores of a row
// together, a group; of all groups it keeps the lowest two minima, and in shared memory the scores of the best. So one lane
// knows at last of one point who leads, and by how much. Points in doubt are multiplied once more, which finds their
// rivals, two or three mostly, and those are decided by the canonical formula.
//
// Macros: D: features; WORDS: halves that a coordinate is made of, 1 or 2 (three products, and a bound that is smaller by
// far); WARPS: of a block.
#include "lists.cuh"
#include "tensor.cuh"

#define STEPS ((D + 15) / 16)  // of 16 coordinates
#define ROWS 32               // of a tile, which a warp has
#define GROUP 32              // centres that are multiplied together: eight scores of a row for each of four lanes
#define BLOCK (STEPS * WORDS * 64)  // words of 16 bytes of so many centres
#define PAIRS 64              // of a point and a rival, of a tile; where there are more, a warp decides among all centres
#define ACROSS (STEPS == 1 ? 16 : 32)  // lanes that have the coordinates of a pair
#define AT_ONCE (sizeof(real) == 8 && STEPS > 1 ? 1 : MIN_BLOCKS)  // blocks of a multiprocessor, by their registers
#define FAR __int_as_float(0x7F800000)

#define ASSIGN_RESIDENT_SHARED(ARRAY)                   \
    ARRAY(uint4, table, r * padded / 32 * block)        \
    ARRAY(float4, norms, r * padded / 2)                \
    ARRAY(float4, kept, warps * 256)                    \
    ARRAY(uint4, stored, warps * 2 * d * size)          \
    ARRAY(uint4, shifts, steps * size)                  \
    ARRAY(idx, local_totals, private_totals * r * k * columns) \
    ARRAY(word, least, warps * 32)                      \
    ARRAY(word, squares, warps * 64)                    \
    ARRAY(double, terms, warps * 32)                    \
    ARRAY(double, grids, 2 * d)                         \
    ARRAY(float, reaches, r)                            \
    ARRAY(int, counts, 2 * r)                           \
    ARRAY(int, finds, warps * 32)                       \
    ARRAY(int, pairs, warps * 2 * 64)                   \
    ARRAY(int, n_pairs, warps)

// A coordinate relative to the offset, times the unit of the halves, a power of two: no rounding but one. Under -ftz=true
// what is denormal is zero: an error that HalfDoubt.flat has room for, as the unit is at most 2^100.
__device__ __forceinline__ float moved_to(float x, float shift, float unit) { return __fmaf_rn(x, unit, shift); }
__device__ __forceinline__ float moved_to(double x, double shift, double unit) { return (float)__fma_rn(x, unit, shift); }

// Four neighbouring coordinates of a row.
struct __align__(16) Four { real v[4]; };
#if D % 4 == 0
__device__ __forceinline__ Four fetch(const real* at) {
    Four four;
#pragma unroll
    for (int u = 0; u < (int)sizeof(real) / 4; ++u) ((uint4*)&four)[u] = __ldg((const uint4*)at + u);
    return four;
}
#endif

// The points of a tile as fragments.
struct Points { uint4 a[WORDS][STEPS][2]; };

// Fills them with rows of X, which are also left in shared memory as they are, zero beyond the last; lane 4 g + t gets the
// norm of row 8 t + g.
__device__ __forceinline__ float load_points(const real* __restrict__ X, int count, real* rows,
                                             const Four* shifts, real unit, Points& points) {
    const int lane = threadIdx.x % 32, t = lane % 4, mine = lane / 4 * D + 4 * t;
    const bool wide = D % 4 == 0 && count == ROWS && (word)X % 16 == 0;  // the same for all lanes
    if (!wide)  // share: d % 4 > 0
#pragma unroll 1
        for (int j = lane; j < ROWS * D; j += 32) rows[j] = j < count * D ? X[j] : (real)0;  // trips: d
    __syncwarp();
    float sums[4] = {0, 0, 0, 0};
#pragma unroll
    for (int q = 0; q < STEPS; ++q) {
        const bool whole = 16 * (q + 1) <= D;
        const Four shift = shifts[4 * q + t];
        Four fours[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at = mine + 8 * i * D + 16 * q;
#pragma unroll
            for (int e = 0; e < 4; ++e) fours[i].v[e] = 0;
#if D % 4 == 0
            if (wide) {  // share: 1
                if (whole || 16 * q + 4 * t < D) fours[i] = fetch(X + at);
                continue;
            }
#endif
#pragma unroll
            for (int e = 0; e < 4; ++e)  // share: d % 4 > 0
                if (whole || 16 * q + 4 * t + e < D) fours[i].v[e] = rows[at + e];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float v[4];
#if D % 4 == 0
            if (wide && (whole || 16 * q + 4 * t < D)) *(Four*)(rows + mine + 8 * i * D + 16 * q) = fours[i];
#endif
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                v[e] = moved_to(fours[i].v[e], shift.v[e], unit);
                sums[i] += v[e] * v[e];
            }
#pragma unroll
            for (int w = 0; w < WORDS; ++w) {
                const unsigned low = halves_of(v[0], v[1]), high = halves_of(v[2], v[3]);
                uint4& a = points.a[w][q][i / 2];
                if (i % 2) { a.y = low; a.w = high; } else { a.x = low; a.z = high; }
                v[0] -= low_half(low); v[1] -= high_half(low);
                v[2] -= low_half(high); v[3] -= high_half(high);
            }
        }
    }
    const bool upper = t >= 2, odd = t % 2;
    const float first = (upper ? sums[2] : sums[0]) + __shfl_xor_sync(ALL_LANES, upper ? sums[0] : sums[2], 2);
    const float second = (upper ? sums[3] : sums[1]) + __shfl_xor_sync(ALL_LANES, upper ? sums[1] : sums[3], 2);
    const float square = (odd ? second : first) + __shfl_xor_sync(ALL_LANES, odd ? first : second, 1) + 1e-30f;
    return square * rsqrtf(square);
}

// Scores of the tile and a group of centres: eight of each of the four rows that a lane has some of.
__device__ __forceinline__ void multiply_group(float (&scores)[4][8], const Points& points, const uint4* table,
                                               const float4* norms) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
        float sums[2][2][4];
        const float4 squares[2] = {norms[8 * c + lane % 4], norms[8 * c + 4 + lane % 4]};
#pragma unroll
        for (int q = 0; q < STEPS; ++q) {
            const uint4 both = table[(c * STEPS + q) * 32 + lane];
            const uint4 rest = WORDS > 1 ? table[((2 + c) * STEPS + q) * 32 + lane] : both;
#pragma unroll
            for (int e = 0; e < 2; ++e)
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    const unsigned b0 = e ? both.z : both.x, b1 = e ? both.w : both.y;
                    if (q == 0) multiply(sums[e][m], points.a[0][q][m], b0, b1, squares[e]);
                    else multiply_add(sums[e][m], points.a[0][q][m], b0, b1);
                    if (WORDS == 1) continue;
                    multiply_add(sums[e][m], points.a[0][q][m], e ? rest.z : rest.x, e ? rest.w : rest.y);
                    multiply_add(sums[e][m], points.a[WORDS - 1][q][m], b0, b1);
                }
        }
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int o = 0; o < 2; ++o) scores[i][4 * c + 2 * e + o] = sums[e][i / 2][i % 2 * 2 + o];
    }
}
__device__ __forceinline__ float least_of(const float (&scores)[8]) {
    return fminf(fminf(fminf(scores[0], scores[1]), fminf(scores[2], scores[3])),
                 fminf(fminf(scores[4], scores[5]), fminf(scores[6], scores[7])));
}

// Of a row: the lowest score, or minimum of a group, the second lowest, and whose the lowest is. Equal ones are in doubt:
// who leads does not matter then.
struct Front {
    float best, second;
    int code;
};
__device__ __forceinline__ void join(Front& front, const Front& other) {
    front.second = fminf(fminf(front.second, other.second), fmaxf(front.best, other.best));
    front.code = other.best < front.best ? other.code : front.code;
    front.best = fminf(front.best, other.best);
}
__device__ __forceinline__ void consider(Front& front, float score, int code) {
    front.second = fminf(front.second, fmaxf(front.best, score));
    front.code = score < front.best ? code : front.code;
    front.best = fminf(front.best, score);
}
// Two rows, of which each of two lanes that are `far` apart keeps one: the upper lane the other one.
__device__ __forceinline__ Front share_out(const Front& one, const Front& other, bool upper, int far) {
    Front mine = upper ? other : one, given = upper ? one : other;
    given.best = __shfl_xor_sync(ALL_LANES, given.best, far);
    given.second = __shfl_xor_sync(ALL_LANES, given.second, far);
    given.code = __shfl_xor_sync(ALL_LANES, given.code, far);
    join(mine, given);
    return mine;
}

// The front of row 8 t + g of the tile, for lane 4 g + t, among the centres of a restart.
__device__ __forceinline__ Front nearest_of(const Points& points, const uint4* table, const float4* norms, int groups,
                                            float2* kept) {
    const int lane = threadIdx.x % 32, t = lane % 4;
    Front fronts[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) fronts[i] = Front{FAR, FAR, 0};
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {  // trips: padded / GROUP
        float scores[4][8];
        multiply_group(scores, points, table + group * BLOCK, norms + group * (GROUP / 2));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float least = least_of(scores[i]);
            const bool ahead = least < fronts[i].best;
            fronts[i].second = fminf(fronts[i].second, fmaxf(fronts[i].best, least));
            fronts[i].best = fminf(fronts[i].best, least);
            fronts[i].code = ahead ? group : fronts[i].code;
            if (ahead) {
#pragma unroll
                for (int u = 0; u < 4; ++u) kept[128 * i + 32 * u + lane] = make_float2(scores[i][2 * u], scores[i][2 * u + 1]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) fronts[i].code = fronts[i].code * 4 + t;
    const Front low = share_out(fronts[0], fronts[2], t >= 2, 2), high = share_out(fronts[1], fronts[3], t >= 2, 2);
    Front front = share_out(low, high, t % 2, 1);
    __syncwarp();
    const int whose = lane / 4 * 4 + front.code % 4, first = front.code / 4 * GROUP + front.code % 4 * 2;
    front.best = FAR;  // of another point where no score is a number
#pragma unroll
    for (int u = 0; u < 4; ++u) {
        const float2 two = kept[128 * t + 32 * u + whose];
        consider(front, two.x, first + 8 * u);
        consider(front, two.y, first + 8 * u + 1);
    }
    return front;
}

// Finds the centres with scores within the limits of rows: pairs of a row and a centre, as row * 2^26 + centre.
__device__ __forceinline__ void find_rivals(const Points& points, const uint4* table, const float4* norms, int groups,
                                            float limit, int k, int* pairs, int* n_pairs) {
    const int lane = threadIdx.x % 32;
    float limits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) limits[i] = __shfl_sync(ALL_LANES, limit, lane / 4 * 4 + i);
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {  // trips: padded / GROUP
        float scores[4][8];
        multiply_group(scores, points, table + group * BLOCK, norms + group * (GROUP / 2));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (least_of(scores[i]) > limits[i]) continue;  // beyond: warp(doubt * 8 / k)
#pragma unroll
            for (int u = 0; u < 8; ++u) {
                const int a = group * GROUP + u / 2 * 8 + lane % 4 * 2 + u % 2;
                if (scores[i][u] > limits[i] || a >= k) continue;
                const int at = atomicAdd(n_pairs, 1);
                if (at < PAIRS) { pairs[2 * at] = 8 * i + lane / 4; pairs[2 * at + 1] = a; }
            }
        }
    }
}

// The canonical nearest centre of this lane's row, if it is in doubt; by all lanes. A row without a limit, and all rows
// where there are too many rivals, are decided among all centres.
__device__ __forceinline__ int decide(const real* rows, const double* __restrict__ centers, int k, bool doubtful,
                                      bool bounded, int n_pairs, const int* pairs, double* terms, word* squares, word* least,
                                      int* finds) {
    const int lane = threadIdx.x % 32, row = lane % 4 * 8 + lane / 4;
    const bool many = n_pairs > PAIRS;
    least[lane] = NO_KEY;
    finds[lane] = k;
    __syncwarp();
    const int half = lane / ACROSS * ACROSS, pairs_now = many ? 0 : n_pairs;
#pragma unroll 1
    for (int first = 0; first < pairs_now; first += 32 / ACROSS) {  // trips: ceil(2.5 * ACROSS / 32)
        const int at = min(first + lane / ACROSS, pairs_now - 1), which = pairs[2 * at];
        const double* c = centers + (idx)pairs[2 * at + 1] * D;
        double sum = 0.0;
#pragma unroll 1
        for (int j = lane - half; j < D + ACROSS - 1 - (D - 1) % ACROSS; j += ACROSS) {  // trips: ceil(d / ACROSS)
            terms[lane] = j < D ? add_square(0.0, widen(rows[which * D + j]), c[j]) : 0.0;
            __syncwarp();
#pragma unroll
            for (int u = 0; u < ACROSS; ++u) sum = __dadd_rn(sum, terms[half + u]);  // beyond d: + 0
            __syncwarp();
        }
        if (lane == half && first + lane / ACROSS < pairs_now) {
            squares[at] = (word)__double_as_longlong(sum);
            atomicMin(least + which, squares[at]);
        }
    }
    __syncwarp();
#pragma unroll 1
    for (int at = lane; at < pairs_now; at += 32)  // trips: 1
        if (squares[at] == least[pairs[2 * at]]) atomicMin(finds + pairs[2 * at], pairs[2 * at + 1]);
    __syncwarp();
    unsigned whole = __ballot_sync(ALL_LANES, doubtful && (many || !bounded));
#pragma unroll 1
    while (whole) {  // trips: 0
        const int lane_of = __ffs(whole) - 1;
        whole &= whole - 1;
        const int which = lane_of % 4 * 8 + lane_of / 4;
        const int nearest = nearest_by_warp(rows + which * D, centers, k, D);
        if (lane == 0) finds[which] = nearest;
    }
    __syncwarp();
    return finds[row];
}

// X        (n, d)      in   rows of the chunk
// weight   (n)         in   or null
// centers  (R, K, d)   in   double
// halves               in   of the same centres; a stage is a group
// labels   (R, pitch)  in/out, or only out if `fresh`
// totals   (R, K, C)   in/out, or null: only labels are wanted
// changed  (R)         in/out, += points whose label is new
// done     (R)         in   or null: restarts to leave alone
// list                 out  how many points were in doubt
// private_totals: the totals are in shared memory and are added up at the end.
// bytes: n * (4 * d + 8 * r)
// block = (32 WARPS), grid = (any), warps stride over tiles of 32 points. Ties: lowest k.
extern "C" __global__ void __launch_bounds__(32 * WARPS, AT_ONCE) assign_resident(
        const real* __restrict__ X, const double* __restrict__ weight, const double* __restrict__ centers,
        HalfCenters halves, int* __restrict__ labels, idx* __restrict__ totals, idx* __restrict__ changed,
        const int* __restrict__ done, Grid grid, Chunk chunk, Shape shape, HalfDoubt trust, DoubtList list, int fresh,
        int private_totals) {
    const int r = shape.r, k = shape.k, d = shape.d, columns = columns_of(d, weight);
    const int warps = WARPS, block = BLOCK, size = sizeof(real), steps = STEPS, padded = halves.padded, groups = padded / GROUP;
    DYNAMIC_SHARED(char, carved);
    ASSIGN_RESIDENT_SHARED(CARVE)
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const real unit = (real)halves.unit;
    const idx n_totals = private_totals ? (idx)r * k * columns : 0;
    for (idx t = thread; t < n_totals; t += 32 * WARPS) local_totals[t] = 0;  // trips: private_totals * r * k * columns / threads
    for (int t = thread; t < 2 * r; t += 32 * WARPS) counts[t] = 0;
    for (int j = thread; j < d; j += 32 * WARPS) {
        grids[j] = grid.offset[j];
        grids[d + j] = grid.scale ? grid.scale[j] : 0.0;
    }
    for (int j = thread; j < 16 * STEPS; j += 32 * WARPS)
        ((real*)shifts)[j] = j < D ? (real)-grid.offset[j] * unit : (real)0;
    for (int t = thread; t < r * groups * BLOCK; t += 32 * WARPS) table[t] = __ldg((const uint4*)halves.words + t);
    for (int t = thread; t < r * padded / 2; t += 32 * WARPS) {
        const float2 two = __ldg((const float2*)halves.norms + t);
        norms[t] = make_float4(two.x, two.y, two.x, two.y);
    }
    for (int s = warp; s < r; s += WARPS) {  // trips: r / WARPS; the largest norm of a centre
        float most = 0;
#pragma unroll 1
        for (int a = lane; a < k; a += 32) most = fmaxf(most, halves.norms[(idx)s * padded + a]);
#pragma unroll
        for (int far = 16; far > 0; far /= 2) most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, far));
        if (lane == 0) reaches[s] = sqrtf(most);
    }
    for (int t = thread; t < 256 * WARPS; t += 32 * WARPS) kept[t] = make_float4(0, 0, 0, 0);
    real* const my_rows = (real*)stored + warp * ROWS * d;
    float2* const my_kept = (float2*)kept + warp * 512;
    int* const my_pairs = pairs + warp * 2 * PAIRS;
    __syncthreads();

    const int row = lane % 4 * 8 + lane / 4;  // of the point that this lane knows at last
    const int tiles = (int)((chunk.n + ROWS - 1) / ROWS);
#pragma unroll 1
    for (int tile = blockIdx.x * WARPS + warp; tile < tiles; tile += gridDim.x * WARPS) {  // trips: n / ROWS / (grid_x * WARPS)
        const idx base = (idx)tile * ROWS;
        const int count = tile + 1 < tiles ? ROWS : (int)(chunk.n - base);
        Points points;
        const float length = load_points(X + base * D, count, my_rows, (const Four*)shifts, unit, points);
        const uint4* mine = table;
        const float4* lengths = norms;
        int* marked = labels + chunk.start + base + row;
#pragma unroll 1
        for (int s = 0; s < r; ++s, mine += groups * BLOCK, lengths += padded / 2, marked += chunk.pitch) {
            if (done && done[s]) continue;  // the same for all threads
            const int old = row < count && !fresh ? *marked : -1;
            const Front front = nearest_of(points, mine, lengths, groups, my_kept);
            int found = min(front.code, k - 1);  // of a single centre, scores need not be numbers
            const float reach = reaches[s], both = reach + length;
            const float bound = trust.product * reach * length + trust.square * reach * reach + trust.exact * both * both
                                + trust.flat * (both + reach + 1);
            const bool sound = length <= MOST_HALF && 2 * reach <= MOST_HALF;
            const bool doubtful = row < count && k > 1 && !(sound && front.second - front.best > bound);
            const unsigned vote = __ballot_sync(ALL_LANES, doubtful);
            if (vote) {  // share: warp(doubt)
                if (lane == 0) { n_pairs[warp] = 0; atomicAdd(counts + r + s, __popc(vote)); }
                __syncwarp();
                find_rivals(points, mine, lengths, groups, doubtful && sound ? front.best + bound : -FAR, k, my_pairs,
                            n_pairs + warp);
                __syncwarp();
                const int decided = decide(my_rows, centers + (idx)s * k * D, k, doubtful, sound, n_pairs[warp], my_pairs,
                                           terms + warp * 32, squares + warp * PAIRS, least + warp * 32, finds + warp * 32);
                if (doubtful) found = decided;
            }
            const bool moves = row < count && old != found;
            if (moves) *marked = found;  // share: warp(changed)
            unsigned moved = __ballot_sync(ALL_LANES, moves);
            if (moved) {  // share: warp(changed)
                if (lane == 0) atomicAdd(counts + s, __popc(moved));
                const idx first = (idx)s * k * columns;
#pragma unroll 1
                for (moved = totals ? moved : 0; moved; moved &= moved - 1) {  // trips: 32 * changed / warp(changed) if changed else 0
                    const int from = __ffs(moved) - 1, which = from % 4 * 8 + from / 4;
                    const int now = __shfl_sync(ALL_LANES, found, from), before = __shfl_sync(ALL_LANES, old, from);
                    const real* x = my_rows + which * D;
                    if (private_totals) move_by_warp(local_totals + first, before, now, x, D, weight, base + which, grids, grids + D, grid.weight_scale);
                    else move_by_warp(totals + first, before, now, x, D, weight, base + which, grids, grids + D, grid.weight_scale);
                }
            }
            __syncwarp();  // all has been read
        }
    }
    __syncthreads();
    for (idx t = thread; t < n_totals; t += 32 * WARPS)  // trips: private_totals * r * k * columns / threads
        if (local_totals[t]) add_to(totals + t, local_totals[t]);
    for (int s = thread; s < r; s += 32 * WARPS) {
        if (counts[s]) add_to(changed + s, counts[s]);
        if (counts[r + s]) atomicAdd(list.count + s, (unsigned)counts[r + s]);
    }
    __syncthreads();
    if (thread) return;
    __threadfence();
    if (atomicInc(list.tickets, gridDim.x - 1) != gridDim.x - 1) return;
    __threadfence();
    for (int s = 0; s < r; ++s) list.seen[s] = atomicExch(list.count + s, 0u);
}
