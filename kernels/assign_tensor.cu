// assign_tensor, decide_tensor: what assign.cu does, on tensor cores, for d >= 16 (sm_80 and newer).
//
// A block holds TILE_M points in shared memory as halves, in the order of mma fragments (tensor.cuh). The centres, halves
// in that order too (half_centers.cu), stream past them in stages, or stay where all of them fit (RESIDENT). So X is read
// once for all centres of all restarts. Scores are |c|^2 - 2 c.x with a bound on their error (HalfDoubt): where the best
// is ahead of the second by more, the label is certified. The rest goes to a list: decide_tensor multiplies those once
// more, finds the centres that the bound leaves, two or three mostly, and decides by the canonical formula.
//
// Macros: MI, NI: tiles of 16 points and of 8 centres that a warp has; WARPS_M: warps side by side in points, the rest of
// the eight in centres; QS: steps of 16 coordinates in a stage; RESIDENT: all stages are in shared memory; WORDS: halves that a coordinate is made of, 1 or 2 (three
// products, and a bound that is smaller by far); LANES: lanes that load a row together, two coordinates each.
#include "lists.cuh"
#include "tensor.cuh"

#define WARPS 8
#define WARPS_N (WARPS / WARPS_M)
#define TILE_M (16 * MI * WARPS_M)
#define TILE_N (8 * NI * WARPS_N)
#define STAGE (TILE_N / 8 * QS * 16 * WORDS)  // in 16 bytes
#define GROUP (MI > 2 || NI < 4 ? 2 : 4)      // tiles whose scores are compared together
#define SIDE (TILE_M * LANES / (32 * WARPS))  // rows that lanes load together,
#define BATCH (SIDE < 8 ? SIDE : 8)           // and how many of these are on their way at a time
#define PER ((STAGE + 32 * WARPS - 1) / (32 * WARPS))
#define PAIRS (4 * TILE_M)                    // of a point and a rival, to be decided canonically
#define FAR __int_as_float(0x7F800000)

#define ASSIGN_TENSOR_SHARED(ARRAY)                                  \
    ARRAY(uint4, points, words * tile_m * depth / 8)                 \
    ARRAY(uint4, buffers, n_buffers * stage)                         \
    ARRAY(idx, local_totals, private_totals * r * k * columns)       \
    ARRAY(word, least, listed * tile_m)                              \
    ARRAY(double, grids, small * 2 * d)                              \
    ARRAY(real, offsets, depth)                                      \
    ARRAY(float, norms, padded)                                      \
    ARRAY(float, bests, direct * tile_m * warps_n)                            \
    ARRAY(float, seconds, direct * tile_m * warps_n)                          \
    ARRAY(float, lengths, tile_m)                                    \
    ARRAY(float, limits, listed * tile_m)                            \
    ARRAY(int, founds, direct * tile_m * warps_n)                             \
    ARRAY(int, before, tile_m)                                       \
    ARRAY(int, after, tile_m)                                        \
    ARRAY(int, moved, tile_m)                                        \
    ARRAY(int, whole, listed * tile_m)                               \
    ARRAY(int, pairs, listed * 2 * 4 * tile_m)

template <class T> struct Two;
template <> struct Two<float> { typedef float2 type; };
template <> struct Two<double> { typedef double2 type; };
typedef Two<real>::type real2;

// Where the word of coordinates 2p, 2p + 1 of a row lies in `points`, in words.
__device__ __forceinline__ int place_of(int row, int p, int steps) {
    return ((row / 16 * steps + p / 8) * 32 + row % 8 * 4 + p % 8 / 2) * 4 + row % 16 / 8 + p % 2 * 2;
}

// Loads the points of a tile as halves, and their norms: rows base, base + 1, ... of X, or those of a list. Lanes that share
// a row take every SUBS-th row; the places of these are a fixed number of words apart.
#define SUBS (32 * WARPS / LANES)
__device__ __forceinline__ void load_points(const real* __restrict__ X, const int* rows, int count, idx base, int d,
                                            int steps, const real* offsets, real unit, unsigned* points,
                                            float* lengths) {
    const int sub = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const bool paired = d % 2 == 0 && (word)X % sizeof(real2) == 0;
    const idx apart = (idx)SUBS * d;
#pragma unroll 1
    for (int first = sub; first < TILE_M; first += SUBS * BATCH) {
        float sums[BATCH];
        const real* from[BATCH];
        const real* begin = X + (base + first) * d;
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            const int row = first + b * SUBS;
            from[b] = begin + b * apart;
            if (rows) from[b] = X + (idx)(row < count ? rows[row] : 0) * d;
            sums[b] = 0;
        }
        const int here = count - first;  // row b is one of the tile where b * SUBS < here
        unsigned* place = points + place_of(first, 0, steps);
#pragma unroll 1
        for (int p = lane; 2 * p < d; p += LANES) {  // trips: ceil(d / (2 * LANES))
            real2 values[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                values[b].x = values[b].y = 0;
                if (paired) {
                    if (b * SUBS < here) values[b] = __ldg((const real2*)(from[b] + 2 * p));
                } else if (b * SUBS < here) {  // share: d - d / 2 * 2
                    values[b].x = from[b][2 * p];
                    if (2 * p + 1 < d) values[b].y = from[b][2 * p + 1];
                }
            }
            const real left = offsets[2 * p], right = offsets[2 * p + 1];
            unsigned* at = place + place_of(0, p, steps);
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                if (b * SUBS >= here) break;
                float u = scaled(values[b].x, left, unit), v = scaled(values[b].y, right, unit);  // beyond d: 0 - 0
                sums[b] += u * u + v * v;
                // SUBS is 8 where a row takes a warp: two rows are one tile of 16 then.
                unsigned* mine = at + (SUBS >= 16 ? b * (SUBS / 16) * steps * 128 : b / 2 * steps * 128 + b % 2);
#pragma unroll
                for (int w = 0; w < WORDS; ++w) {
                    const unsigned both = halves_of(u, v);
                    mine[w * TILE_M * 8 * steps] = both;
                    u -= low_half(both);
                    v -= high_half(both);
                }
            }
        }
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
#pragma unroll
            for (int far = LANES / 2; far > 0; far /= 2) sums[b] += __shfl_xor_sync(ALL_LANES, sums[b], far);
            if (lane == 0) lengths[first + b * SUBS] = sqrtf(sums[b]);
        }
    }
}

// The two lowest scores of a row so far; those of the group that the lowest is in are kept.
struct Front {
    float best, second, kept[2 * GROUP];
    int group;
};
__device__ __forceinline__ void advance(Front& front, const float (&scores)[2 * GROUP], int group) {
    float least = scores[0];
#pragma unroll
    for (int t = 1; t < 2 * GROUP; ++t) least = fminf(least, scores[t]);
    const bool ahead = least < front.best;
    front.second = fminf(front.second, fmaxf(front.best, least));
    front.best = fminf(front.best, least);
    front.group = ahead ? group : front.group;
#pragma unroll
    for (int t = 0; t < 2 * GROUP; ++t) front.kept[t] = ahead ? scores[t] : front.kept[t];
}

// Adds a lead to another: equal scores are in doubt, who leads does not matter then.
__device__ __forceinline__ void join(float& best, float& second, int& found, float theirs, float next, int number) {
    second = fminf(fminf(second, next), fmaxf(best, theirs));
    found = theirs < best ? number : found;
    best = fminf(best, theirs);
}

// Decides pairs of a row of the tile and a rival by the canonical formula, the lowest number on ties, into `found`; and
// the rows that are marked in `whole`, of which too many pairs were found, among all centres. By all threads.
__device__ __forceinline__ void decide_pairs(const real* __restrict__ X, const double* __restrict__ centers,
                                             const int* rows, const int* pairs, int n_pairs, word* least, int* found,
                                             const int* whole, int count, int k, int d) {
    word squares[(PAIRS + 32 * WARPS - 1) / (32 * WARPS)];
#pragma unroll
    for (int u = 0; u < (PAIRS + 32 * WARPS - 1) / (32 * WARPS); ++u) {
        const int t = threadIdx.x + u * 32 * WARPS;
        if (t >= n_pairs) break;  // beyond: 1
        const int row = pairs[2 * t];
        squares[u] = (word)__double_as_longlong(canonical(X + (idx)rows[row] * d, centers + (idx)pairs[2 * t + 1] * d, d));
        atomicMin(least + row, squares[u]);
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < (PAIRS + 32 * WARPS - 1) / (32 * WARPS); ++u) {
        const int t = threadIdx.x + u * 32 * WARPS;
        if (t < n_pairs && squares[u] == least[pairs[2 * t]]) atomicMin(found + pairs[2 * t], pairs[2 * t + 1]);
    }
    __syncthreads();
#pragma unroll 1
    for (int row = threadIdx.x / 32; row < count; row += WARPS) {  // trips: TILE_M / WARPS
        if (!whole[row]) continue;  // beyond: 0
        const int nearest = nearest_by_warp(X + (idx)rows[row] * d, centers, k, d);
        if (threadIdx.x % 32 == 0) found[row] = nearest;
    }
    __syncthreads();
}

// Squared norms of the centres of a restart, and the largest of them.
__device__ __forceinline__ void load_norms(const float* __restrict__ from, float* norms, int padded, int k,
                                           unsigned* widest) {
    float most = 0;
#pragma unroll 1
    for (int a = threadIdx.x; a < padded; a += 32 * WARPS) {
        norms[a] = from[a];
        if (a < k) most = fmaxf(most, from[a]);
    }
#pragma unroll
    for (int far = 16; far > 0; far /= 2) most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, far));
    if (threadIdx.x % 32 == 0) atomicMax(widest, __float_as_uint(most));
}

// The part of a stage that this thread copies.
__device__ __forceinline__ void copy_stage(const uint4* __restrict__ from, uint4* to) {
#pragma unroll
    for (int t = 0; t < PER; ++t)
        if (STAGE % (32 * WARPS) == 0 || threadIdx.x + t * 32 * WARPS < STAGE)
            to[threadIdx.x + t * 32 * WARPS] = __ldg(from + threadIdx.x + t * 32 * WARPS);
}

// Products of the points and centres of a warp over the coordinates of a stage; the first one begins with the squared
// norms of the centres. Unless all stages are in shared memory, the next one is fetched meanwhile.
template <bool FIRST>
__device__ __forceinline__ void multiply_stage(float (&acc)[MI][NI][4], const uint4* points, uint4* buffers, int number,
                                               int n_stages, int steps, const uint4* __restrict__ stream,
                                               const float2* square) {
    const int lane = threadIdx.x % 32, warp_n = threadIdx.x / 32 % WARPS_N;
    const uint4* here = buffers + (RESIDENT ? number : number & 1) * STAGE + warp_n * NI / 2 * QS * 32 + lane;
    Copies<PER> copies;
    const bool more = !RESIDENT && number + 1 < n_stages;
    if (more) {
        uint4* next = buffers + ((number + 1) & 1) * STAGE + threadIdx.x;
        const uint4* from = stream + (idx)(number + 1) * STAGE + threadIdx.x;
#pragma unroll
        for (int t = 0; t < PER; ++t)
            if (STAGE % (32 * WARPS) == 0 || threadIdx.x + t * 32 * WARPS < STAGE)
                copies.begin(next + t * 32 * WARPS, from + t * 32 * WARPS);
    }
#pragma unroll
    for (int q = 0; q < QS; ++q) {
        uint4 a[WORDS][MI];
#pragma unroll
        for (int w = 0; w < WORDS; ++w)
#pragma unroll
            for (int m = 0; m < MI; ++m) a[w][m] = points[((w * (TILE_M / 16) + m) * steps + q) * 32];
#pragma unroll
        for (int c = 0; c < NI; c += 2) {
            const uint4 both = here[(c / 2 * QS + q) * 32];
            const uint4 rest = WORDS > 1 ? here[((TILE_N + 8 * c) / 16 * QS + q) * 32] : both;
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const unsigned b0 = e ? both.z : both.x, b1 = e ? both.w : both.y;
                const float2 two = FIRST && q == 0 ? square[4 * (c + e)] : make_float2(0, 0);
                const float4 norm = make_float4(two.x, two.y, two.x, two.y);
#pragma unroll
                for (int m = 0; m < MI; ++m) {
                    if (FIRST && q == 0) multiply(acc[m][c + e], a[0][m], b0, b1, norm);
                    else multiply_add(acc[m][c + e], a[0][m], b0, b1);
                }
                if (WORDS == 1) continue;
#pragma unroll
                for (int m = 0; m < MI; ++m) {
                    multiply_add(acc[m][c + e], a[0][m], e ? rest.z : rest.x, e ? rest.w : rest.y);
                    multiply_add(acc[m][c + e], a[WORDS - 1][m], b0, b1);
                }
            }
        }
    }
    if (RESIDENT) return;
    if (more) copies.wait();
    __syncthreads();
}

// LISTED is the second look at the points in doubt: the tile is of rows of the list, and scores within their limits
// become pairs (row of the tile, centre).
template <bool LISTED>
__device__ __forceinline__ void assign_tiles(const real* __restrict__ X, const double* __restrict__ weight,
                                             const double* __restrict__ centers, const HalfCenters& halves,
                                             int* __restrict__ labels, idx* __restrict__ totals,
                                             idx* __restrict__ changed, const int* __restrict__ done, const Grid& grid,
                                             const Chunk& chunk, const Shape& shape, const HalfDoubt& trust,
                                             const DoubtList& list, int fresh, int private_totals) {
    __shared__ unsigned widest;
    __shared__ int n_moved, n_pairs;
    const int r = shape.r, k = shape.k, d = shape.d, columns = columns_of(d, weight);
    const int padded = halves.padded, stages = halves.stages, steps = stages * QS;
    const int depth = 16 * steps, listed = LISTED, direct = !LISTED;
    const int small = LANES < 32;  // d is below WIDE_D of gputabu.backend.cuda.tensor
    const int words = WORDS, tile_m = TILE_M, warps_n = WARPS_N, stage = STAGE;
    const int n_stages = padded / TILE_N * stages, n_buffers = RESIDENT ? r * n_stages : 2;
    DYNAMIC_SHARED(char, carved);
    ASSIGN_TENSOR_SHARED(CARVE)
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int warp_m = warp / WARPS_N, warp_n = warp % WARPS_N;
    const real unit = (real)halves.unit;
    if (LISTED && (idx)blockIdx.x * TILE_M >= (idx)list.count[blockIdx.y]) return;  // the same for all threads
    const idx n_totals = private_totals ? (idx)r * k * columns : 0;
    const int only = LISTED ? (int)blockIdx.y : 0, s_first = LISTED ? only : 0, s_last = LISTED ? only + 1 : r;
    const idx n = LISTED ? (idx)list.count[only] : chunk.n;
    for (idx t = thread; t < n_totals; t += 32 * WARPS) local_totals[t] = 0;  // trips: private_totals * r * k * columns / threads
    for (int t = thread; t < WORDS * TILE_M * depth / 8; t += 32 * WARPS) points[t] = make_uint4(0, 0, 0, 0);  // beyond d, too
    if (small)
        for (int j = thread; j < d; j += 32 * WARPS) {
            grids[j] = grid.offset[j];
            grids[d + j] = grid.scale ? grid.scale[j] : 0.0;
        }
    for (int j = thread; j < depth; j += 32 * WARPS) offsets[j] = j < d ? (real)grid.offset[j] : (real)0;
    if (RESIDENT)
#pragma unroll 1
        for (int t = thread; t < n_buffers * STAGE; t += 32 * WARPS) buffers[t] = ((const uint4*)halves.words)[t];
    __syncthreads();

    int known = -1;  // the restart whose norms are in shared memory
#pragma unroll 1
    for (idx base = (idx)blockIdx.x * TILE_M; base < n; base += (idx)gridDim.x * TILE_M) {  // trips: (doubt * n if listed else n) / TILE_M / grid_x
        const int count = (int)min((idx)TILE_M, n - base);
        const int* rows = LISTED ? list.rows + only * chunk.n + base : (const int*)0;
        load_points(X, rows, count, base, d, steps, offsets, unit, (unsigned*)points, lengths);
        if (LISTED)
            for (int t = thread; t < TILE_M; t += 32 * WARPS) {
                limits[t] = t < count ? list.limits[only * chunk.n + base + t] : -FAR;
                least[t] = NO_KEY;
                after[t] = k;
                whole[t] = 0;
            }
#pragma unroll 1
        for (int s = s_first; s < s_last; ++s) {  // trips: 1 if listed else r
            if (done && done[s]) continue;  // the same for all threads
            const bool anew = known != s;  // norms of another restart
            if (thread == 0) { widest = anew ? 0 : widest; n_moved = n_pairs = 0; }
            __syncthreads();
            if (anew) load_norms(halves.norms + (idx)s * padded, norms, padded, k, &widest);  // share: 1 if r > 1 else 0
            known = s;

            const uint4* stream = (const uint4*)halves.words + (idx)s * n_stages * STAGE;
            if (!RESIDENT) copy_stage(stream, buffers);
            __syncthreads();

            Front fronts[2 * MI];
#pragma unroll
            for (int i = 0; i < 2 * MI; ++i) {
                fronts[i].best = fronts[i].second = FAR;
                fronts[i].group = 0;
#pragma unroll
                for (int t = 0; t < 2 * GROUP; ++t) fronts[i].kept[t] = FAR;
            }
            int number = RESIDENT ? s * n_stages : 0;  // of the stage
#pragma unroll 1
            for (int column = warp_n * 8 * NI; column < padded; column += TILE_N) {  // trips: padded / TILE_N
                const float2* square = (const float2*)(norms + column) + lane % 4;
                float acc[MI][NI][4];
                const uint4* a = points + warp_m * MI * steps * 32 + lane;
                multiply_stage<true>(acc, a, buffers, number, n_stages, steps, stream, square);
                ++number;
#pragma unroll 1
                for (int step = QS; step < steps; step += QS, ++number)  // trips: stages - 1
                    multiply_stage<false>(acc, a + step * 32, buffers, number, n_stages, steps, stream, square);
#pragma unroll
                for (int g = 0; g < NI / GROUP; ++g) {
#pragma unroll
                    for (int i = 0; i < 2 * MI; ++i) {
                        float scores[2 * GROUP];
#pragma unroll
                        for (int t = 0; t < 2 * GROUP; ++t) scores[t] = acc[i / 2][g * GROUP + t / 2][i % 2 * 2 + t % 2];
                        const int first = column + 2 * (lane % 4) + 8 * g * GROUP;
                        if (!LISTED) {
                            advance(fronts[i], scores, first);
                            continue;
                        }
                        const int row = (warp_m * MI + i / 2) * 16 + lane / 4 + i % 2 * 8;
                        const float limit = limits[row];
#pragma unroll
                        for (int t = 0; t < 2 * GROUP; ++t) {
                            const int a = first + 8 * (t / 2) + t % 2;
                            if (row >= count || a >= k || scores[t] > limit) continue;  // beyond: warp(3 / k); also no numbers
                            const int at = atomicAdd(&n_pairs, 1);
                            if (at < PAIRS) { pairs[2 * at] = row; pairs[2 * at + 1] = a; }
                            else atomicExch(whole + row, 1);
                        }
                    }
                }
            }
            if (!LISTED) {
#pragma unroll
                for (int i = 0; i < 2 * MI; ++i) {
                    Front& front = fronts[i];
                    float best = FAR, second = front.second;
                    int found = 0;
#pragma unroll
                    for (int t = 0; t < 2 * GROUP; ++t)
                        join(best, second, found, front.kept[t], FAR, front.group + t / 2 * 8 + t % 2);
#pragma unroll
                    for (int far = 1; far < 4; far *= 2) {
                        const float theirs = __shfl_xor_sync(ALL_LANES, best, far);
                        const float next = __shfl_xor_sync(ALL_LANES, second, far);
                        const int whose = __shfl_xor_sync(ALL_LANES, found, far);
                        join(best, second, found, theirs, next, whose);
                    }
                    const int row = (warp_m * MI + i / 2) * 16 + lane / 4 + i % 2 * 8;
                    if (lane % 4 == 0) {
                        bests[row * WARPS_N + warp_n] = best;
                        seconds[row * WARPS_N + warp_n] = second;
                        founds[row * WARPS_N + warp_n] = found;
                    }
                }
            }
            __syncthreads();
            int* marked = labels + s * chunk.pitch + chunk.start;
            if (LISTED) {
                decide_pairs(X, centers + (idx)s * k * d, rows, pairs, min(n_pairs, PAIRS), least, after, whole, count, k, d);
                for (int t = thread; t < count; t += 32 * WARPS) {
                    const int i = rows[t];
                    before[t] = fresh ? -1 : marked[i];
                    if (before[t] == after[t]) continue;
                    marked[i] = after[t];
                    moved[atomicAdd(&n_moved, 1)] = t;
                }
            } else {
                const float reach = sqrtf(__uint_as_float(widest));
#pragma unroll 1
                for (int t = thread; t < (TILE_M + 31) / 32 * 32; t += 32 * WARPS) {  // trips: TILE_M / threads; by whole warps
                    bool doubtful = false;
                    float limit = FAR;
                    if (t < count) {
                        float best = bests[t * WARPS_N], second = seconds[t * WARPS_N];
                        int found = founds[t * WARPS_N];
#pragma unroll
                        for (int w = 1; w < WARPS_N; ++w)
                            join(best, second, found, bests[t * WARPS_N + w], seconds[t * WARPS_N + w], founds[t * WARPS_N + w]);
                        const float length = lengths[t], both = reach + length;
                        const float bound = trust.product * reach * length + trust.square * reach * reach
                                            + trust.exact * both * both + trust.flat * (both + reach + 1);
                        const bool sound = length <= MOST_HALF && 2 * reach <= MOST_HALF;
                        doubtful = k > 1 && !(sound && second - best > bound);
                        if (sound) limit = best + bound;
                        if (!doubtful) {
                            const int old = fresh ? -1 : marked[base + t];
                            before[t] = old;
                            after[t] = found;
                            if (old != found) {  // share: warp(changed)
                                marked[base + t] = found;
                                moved[atomicAdd(&n_moved, 1)] = t;
                            }
                        }
                    }
                    const unsigned vote = __ballot_sync(ALL_LANES, doubtful);
                    if (!vote) continue;  // beyond: warp(doubt)
                    unsigned at = 0;
                    if (lane == 0) at = atomicAdd(list.count + s, (unsigned)__popc(vote));
                    at = __shfl_sync(ALL_LANES, at, 0) + __popc(vote & ((1u << lane) - 1));
                    if (doubtful) {
                        list.rows[s * chunk.n + at] = (int)(base + t);
                        list.limits[s * chunk.n + at] = limit;
                    }
                }
            }
            __syncthreads();
            if (thread == 0 && n_moved) add_to(changed + s, n_moved);
            const int n_list = totals ? n_moved : 0;
#pragma unroll 1
            for (int t = warp; t < n_list; t += WARPS) {  // trips: changed * TILE_M / WARPS
                const int row = moved[t];
                const idx i = LISTED ? (idx)rows[row] : base + row;
                const idx first = (idx)s * k * columns;
                const double *offset = small ? grids : grid.offset, *scale = small ? grids + d : grid.scale;
                if (private_totals) move_by_warp(local_totals + first, before[row], after[row], X + i * d, d, weight, i, offset, scale, grid.weight_scale);
                else move_by_warp(totals + first, before[row], after[row], X + i * d, d, weight, i, offset, scale, grid.weight_scale);
            }
            __syncthreads();  // n_moved and the lists have been read
        }
        __syncthreads();  // and the points
    }
    for (idx t = thread; t < n_totals; t += 32 * WARPS)  // trips: private_totals * r * k * columns / threads
        if (local_totals[t]) add_to(totals + t, local_totals[t]);
}

// X        (n, d)      in   rows of the chunk
// weight   (n)         in   or null
// centers  (R, K, d)   in   double
// halves               in   of the same centres
// labels   (R, pitch)  in/out, or only out if `fresh`
// totals   (R, K, C)   in/out, or null: only labels are wanted
// changed  (R)         in/out, += points whose label is new
// done     (R)         in   or null: restarts to leave alone
// list                 out  points in doubt, for decide_tensor
// private_totals: the totals are in shared memory and are added up at the end.
// bytes: n * (4 * d + 8 * r)
// block = (256), grid = (any), blocks stride over tiles of points. Ties: lowest k.
extern "C" __global__ void __launch_bounds__(256, MIN_BLOCKS) assign_tensor(
        const real* __restrict__ X, const double* __restrict__ weight, const double* __restrict__ centers,
        HalfCenters halves, int* __restrict__ labels, idx* __restrict__ totals, idx* __restrict__ changed,
        const int* __restrict__ done, Grid grid, Chunk chunk, Shape shape, HalfDoubt trust, DoubtList list, int fresh,
        int private_totals) {
    assign_tiles<false>(X, weight, centers, halves, labels, totals, changed, done, grid, chunk, shape, trust, list, fresh,
                        private_totals);
}

// The same for the points of the list, which is empty behind it. Other sizes of tiles make no difference: a rival is a
// centre whose score is within the limit, in whatever way it was computed.
// bytes: doubt * n * r * (4 * d + 16)
// grid = (any, R), blocks stride over tiles of the list.
extern "C" __global__ void __launch_bounds__(256, 1) decide_tensor(
        const real* __restrict__ X, const double* __restrict__ weight, const double* __restrict__ centers,
        HalfCenters halves, int* __restrict__ labels, idx* __restrict__ totals, idx* __restrict__ changed,
        const int* __restrict__ done, Grid grid, Chunk chunk, Shape shape, HalfDoubt trust, DoubtList list, int fresh,
        int private_totals) {
    assign_tiles<true>(X, weight, centers, halves, labels, totals, changed, done, grid, chunk, shape, trust, list, fresh,
                       private_totals);
    __syncthreads();
    if (threadIdx.x) return;
    __threadfence();  // every block has read the counts before it takes a ticket
    const unsigned blocks = gridDim.x * gridDim.y;
    if (atomicInc(list.tickets, blocks - 1) != blocks - 1) return;
    for (int s = 0; s < shape.r; ++s) {
        list.seen[s] = list.count[s];
        list.count[s] = 0;
    }
}
