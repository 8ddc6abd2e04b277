// nearest_two: the two nearest of K centres for every point, with canonical squared distances.
//
// A warp has 32 points at a time, and needs no other. Scores |c|^2 - 2 c.x, by products on tensor cores (-DTENSOR=1,
// halves) or in the type of the points, name the two nearest wherever the third is behind the second by more than their
// error. Where it is not, the warp narrows the centres down in the type of the points and decides canonically. The two
// that are left are measured canonically, a lane per point, in the order of j: who is the first of them is decided there.
//
// A score has the number of its centre in its lowest bits, so that the lowest three are kept by five minima and maxima
// each, without selections. That changes a score by less than 2^(bits - 23) of itself, which the bound has room for. Only
// of scores below 2^-126 the number could be lost, as these may be flushed: they certify nothing.
//
// Macros: D: coordinates, or 0 where the compiler need not know; TENSOR; STAGED: the points are in shared memory; WARPS.
#include "rows.cuh"
#include "tensor.cuh"

// Tiles of 8 centres that are multiplied together.
#define NI 4
// Blocks that the registers of a multiprocessor have room for; with more, some architecture spills.
#define BLOCKS (((D == 0 && TENSOR) || D > 24 ? 8 : 16) / WARPS)
#define AHEAD 4            // centres whose scores do not wait for each other
#define FAR __int_as_float(0x7F800000)
#define LEAST 1.1754944e-38f  // lower ones may be flushed

#define NEAREST_TWO_SHARED(ARRAY)                          \
    ARRAY(double, origin, d)                               \
    ARRAY(real, all_rows, STAGED * WARPS * 32 * (d | 1))   \
    ARRAY(real, offsets, depth)                            \
    ARRAY(float, all_ranks, TENSOR * WARPS * 96)

// The three lowest scores so far, with the numbers of their centres.
struct Ranks {
    float first, second, third;
};
__device__ __forceinline__ void insert(Ranks& ranks, float score) {
    ranks.third = fminf(ranks.third, fmaxf(ranks.second, score));
    ranks.second = fminf(ranks.second, fmaxf(ranks.first, score));
    ranks.first = fminf(ranks.first, score);
}
__device__ __forceinline__ float numbered(float score, unsigned mask, unsigned number) {
    return __uint_as_float((__float_as_uint(score) & ~mask) | number);
}

// The three lowest of these and of those that the lane `far` away gives.
__device__ __forceinline__ void merge(Ranks& ranks, const Ranks& given, int far) {
    const float low = fminf(ranks.first, __shfl_xor_sync(ALL_LANES, given.third, far));
    const float mid = fminf(ranks.second, __shfl_xor_sync(ALL_LANES, given.second, far));
    const float top = fminf(ranks.third, __shfl_xor_sync(ALL_LANES, given.first, far));
    const float less = fminf(low, mid), more = fmaxf(low, mid);
    ranks.first = fminf(less, top);
    ranks.second = fminf(more, fmaxf(less, top));
    ranks.third = fmaxf(more, top);
}

// What a warp decides a point by.
struct Decision {
    const double* centers;  // (K, d) of the restart,
    const real* near;       // (K, d) the same in the type of the points,
    const real* offsets;    // relative to this, in which type does not matter
    const double* origin;   // where unit is one, times unit
    const real* doubt;      // and what their distances may err by
    double unit;
    int k, d;
};

__device__ __forceinline__ real distance(const Decision& by, const real* x, int a) {
    real sum = 0;
#pragma unroll 4
    for (int j = 0; j < by.d; ++j) {  // trips: ceil(d / 4)
        real moved = x[j] - by.offsets[j];
        if (by.unit != 1.0) moved = relative(x[j], by.origin[j], by.unit);
        const real diff = moved - by.near[(idx)a * by.d + j];
        sum += diff * diff;
    }
    return sum;
}

// The two nearest of K centres by the canonical formula, the lowest numbers on ties: lanes take every 32nd centre, and
// only those that may be among the two. Where a distance is not a number, every centre may.
__device__ __forceinline__ void two_by_warp(const Decision& by, const real* x, int& first, int& second) {
    const int lane = threadIdx.x % 32;
    real low = infinite(), next = low, norm = 0;
#pragma unroll 1
    for (int a = lane; a < by.k; a += 32) {  // trips: ceil(k / 32)
        const real square = distance(by, x, a);
        next = min(next, max(low, square));
        low = min(low, square);
    }
#pragma unroll 1
    for (int j = lane; j < by.d; j += 32) {  // trips: ceil(d / 32)
        const real moved = relative(x[j], by.origin[j], by.unit);
        norm += moved * moved;
    }
#pragma unroll
    for (int far = 16; far > 0; far /= 2) {
        const real theirs = __shfl_xor_sync(ALL_LANES, low, far), behind = __shfl_xor_sync(ALL_LANES, next, far);
        next = min(min(next, behind), max(low, theirs));
        low = min(low, theirs);
        norm += __shfl_xor_sync(ALL_LANES, norm, far);
    }
    norm = sqrt(norm);
    const real limit = next + by.doubt[0] + norm * (by.doubt[1] + norm * by.doubt[2]);
    double near = __longlong_as_double(0x7FF0000000000000LL), far = near;
    first = second = by.k;
#pragma unroll 1
    for (int a = lane; a < by.k; a += 32) {  // trips: ceil(k / 32)
        if (distance(by, x, a) > limit) continue;  // beyond: warp(2 / k)
        const double* const c = by.centers + (idx)a * by.d;
        double square = 0.0;
#pragma unroll 4
        for (int j = 0; j < by.d; ++j) square = add_square(square, unflushed(x[j]), __ldg(c + j));  // trips: ceil(d / 4)
        if (square < near || first == by.k) { far = near; second = first; near = square; first = a; }
        else if (square < far || second == by.k) { far = square; second = a; }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const double p = __shfl_xor_sync(ALL_LANES, near, step), q = __shfl_xor_sync(ALL_LANES, far, step);
        const int f = __shfl_xor_sync(ALL_LANES, first, step), g = __shfl_xor_sync(ALL_LANES, second, step);
        const bool theirs = p < near || (p == near && f < first);  // which pair has the nearest; k is behind all numbers
        const double mine = theirs ? near : p, rest = theirs ? q : far;  // the other nearest, and the second of that pair
        const int whose = theirs ? first : f, rests = theirs ? g : second;
        if (theirs) { near = p; first = f; }
        const bool sooner = mine < rest || (mine == rest && whose < rests);
        far = sooner ? mine : rest;
        second = sooner ? whose : rests;
    }
}

// Two numbers of centres that lie one behind the other.
__device__ __forceinline__ double2 pair_of(const double* from) { return __ldg((const double2*)from); }

#if TENSOR
// The part of 32 points that a lane has of 16 coordinates, as halves.
__device__ __forceinline__ void load_part(const real* rows, idx stride, const real* offsets, real unit, int count, int d,
                                          int step, uint4 (&part)[2]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
        unsigned words[4];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const int row = 16 * m + row_of_a(lane, w), j = 16 * step + 4 * (lane % 4) + 2 * (w / 2);  // as halves.cuh
            float value[2];
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                value[side] = 0;
                if ((STAGED || row < count) && j + side < d)
                    value[side] = scaled(rows[row * stride + j + side], offsets[j + side], unit);
            }
            words[w] = halves_of(value[0], value[1]);
        }
        part[m] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

// The three lowest scores of the points of a warp, of each by the lane of its number.
__device__ __forceinline__ Ranks rank(const real* rows, idx stride, const real* offsets, real unit, int count, int d,
                                      int steps, const uint4* __restrict__ words, const float2* __restrict__ norms,
                                      int padded, unsigned mask, float* ranks) {
    const int lane = threadIdx.x % 32;
    Ranks mine[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) mine[i].first = mine[i].second = mine[i].third = FAR;
    uint4 part[2];
    if (steps == 1) load_part(rows, stride, offsets, unit, count, d, 0, part);  // share: d <= 16
#pragma unroll 1
    for (int a = 0; a < padded; a += 8 * NI) {
        float sums[2][NI][4];
        const uint4* const here = words + (idx)(a / (8 * NI)) * steps * NI * 16 + lane;
        if (steps > 1) load_part(rows, stride, offsets, unit, count, d, 0, part);  // share: d > 16
#pragma unroll
        for (int c = 0; c < NI; c += 2) {
            const uint4 b = __ldg(here + 16 * c);
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const float2 norm = __ldg(norms + (a + 8 * (c + e)) / 2 + lane % 4);
                // Beyond K norms are infinite: with a number in their lowest bits they would be none.
                const float left = fminf(norm.x, 1e30f), right = fminf(norm.y, 1e30f);
                const float4 square = make_float4(left, right, left, right);
#pragma unroll
                for (int m = 0; m < 2; ++m)
                    multiply(sums[m][c + e], part[m], e ? b.z : b.x, e ? b.w : b.y, square);
            }
        }
#pragma unroll 1
        for (int step = 1; step < steps; ++step) {
            load_part(rows, stride, offsets, unit, count, d, step, part);
#pragma unroll
            for (int c = 0; c < NI; c += 2) {
                const uint4 b = __ldg(here + (step * NI + c) * 16);
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    multiply_add(sums[m][c], part[m], b.x, b.y);
                    multiply_add(sums[m][c + 1], part[m], b.z, b.w);
                }
            }
        }
#pragma unroll
        for (int c = 0; c < NI; ++c)
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                const unsigned number = a + 8 * c + 2 * (lane % 4) + side;
#pragma unroll
                for (int i = 0; i < 4; ++i)  // rows lane / 4 + 8 i
                    insert(mine[i], numbered(sums[i / 2][c][i % 2 * 2 + side], mask, number));
            }
    }
    // Of the four lanes with the same rows each keeps one in the end: row lane / 4 + 8 (lane % 4).
    const bool odd = lane & 1, high = lane & 2;
    Ranks low = odd ? mine[1] : mine[0], up = odd ? mine[3] : mine[2];
    merge(low, odd ? mine[0] : mine[1], 1);
    merge(up, odd ? mine[2] : mine[3], 1);
    Ranks own = high ? up : low;
    merge(own, high ? low : up, 2);
    float* const to = ranks + lane / 4 + 8 * (lane % 4);
    to[0] = own.first, to[32] = own.second, to[64] = own.third;
    __syncwarp();
    const Ranks found = {ranks[lane], ranks[32 + lane], ranks[64 + lane]};
    __syncwarp();
    return found;
}
#endif

// X        (n, d)      in   rows of the chunk
// centers  (R, K, d)   in   K >= 2
// fast                 in   of the same centres, relative to offset (d), times unit
// halves               in   of the same centres, where TENSOR
// which    (m)         in   the restarts to look at
// nearest              out
// done     (R)         in   or null: restarts to leave alone
// padded: centres with padding; mask: the bits that a number below that takes.
// A warp per 32 points, striding. grid = (any), block = (32 WARPS). Ties: lowest number.
// bytes: n * (4 * d + 24 * m)
extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
nearest_two(const real* __restrict__ X, const double* __restrict__ centers, FastCenters fast, HalfCenters halves,
            HalfDoubt trust, const double* __restrict__ offset, const idx* __restrict__ which, NearestTwo nearest,
            const int* __restrict__ done, Chunk chunk, idx m, int k, int width, double unit, int padded, unsigned mask) {
    const int d = D > 0 ? D : width, depth = (d + 15) / 16 * 16, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const idx n = chunk.n;
    DYNAMIC_SHARED(char, carved);
    NEAREST_TWO_SHARED(CARVE)
    for (int j = threadIdx.x; j < d; j += 32 * WARPS) {
        origin[j] = offset[j];
        offsets[j] = (real)offset[j];
    }
    __syncthreads();
    const idx stride = STAGED ? STRIDE(d) : d;
    const float slack = (float)(mask + 1) * 2.4e-7f;  // two numbers in the lowest bits
#pragma unroll 1
    for (idx base = ((idx)blockIdx.x * WARPS + warp) * 32; base < n; base += (idx)gridDim.x * WARPS * 32) {
        const int count = (int)min((idx)32, n - base);
        const real* rows = X + base * d;
        if (STAGED) {
            stage<D>(rows, all_rows + warp * 32 * STRIDE(d), count, d);
            rows = all_rows + warp * 32 * STRIDE(d);
        }
        const real* const x = rows + (STAGED ? lane : min(lane, count - 1)) * stride;
#if TENSOR
        float square = 0;
        const real half_unit = (real)halves.unit;
#pragma unroll 4
        for (int j = 0; j < d; ++j) {  // trips: ceil(d / 4)
            const float moved = scaled(x[j], offsets[j], half_unit);
            square += moved * moved;
        }
        const float length = sqrtf(square);
#elif D > 0
        real point[D], norm = 0;
#pragma unroll
        for (int j = 0; j < D; ++j) {
            point[j] = unit == 1.0 ? x[j] - offsets[j] : relative(x[j], origin[j], unit);  // share: 1
            norm += point[j] * point[j];
        }
        norm = sqrt(norm);
#endif
#pragma unroll 1
        for (idx t = 0; t < m; ++t) {
            const idx s = which[t], at = s * chunk.pitch + chunk.start + base + lane;
            if (done && done[s]) continue;  // beyond: 1
            const real *near = fast.centers + s * k * d, *doubt = fast.doubt + 3 * s;
            Ranks ranks = {FAR, FAR, FAR};
            float bound = FAR;
#if TENSOR
            const int steps = depth / 16;
            ranks = rank(rows, stride, offsets, half_unit, count, d, steps,
                         (const uint4*)halves.words + s * padded * steps * 2, (const float2*)(halves.norms + s * padded),
                         padded, mask, all_ranks + 96 * warp);
            {
                // fast.doubt[1] is 2 trust reach, in another unit: the largest norm of a half is that of its centre.
                const float reach = (float)(doubt[1] / (2 * doubt[2]) * (halves.unit / unit)) * 1.0001f, both = reach + length;
                if (length <= MOST_HALF && 2 * reach <= MOST_HALF)
                    bound = trust.product * reach * length + trust.square * reach * reach + trust.exact * both * both
                            + trust.flat * (both + reach + 1);
            }
#elif D > 0
            bound = (float)(doubt[0] + norm * (doubt[1] + norm * doubt[2])) * 1.000001f;
#pragma unroll 1
            for (int a = 0; a < k; a += AHEAD) {
                real score[AHEAD];
#pragma unroll
                for (int c = 0; c < AHEAD; ++c) {
                    const real* const other = near + min(a + c, k - 1) * D;
                    score[c] = (real)LEAST;
#pragma unroll
                    for (int j = 0; j < D; ++j) {
                        const real diff = point[j] - __ldg(other + j);
                        score[c] += diff * diff;
                    }
                }
#pragma unroll
                for (int c = 0; c < AHEAD; ++c)
                    if (a + c < k) insert(ranks, numbered((float)score[c], mask, a + c));
            }
#endif
            const bool apart = k == 2 || ranks.third - ranks.second > bound + slack * (fabsf(ranks.third) + fabsf(ranks.second));
            const bool certain = apart && min(fabsf(ranks.first), fabsf(ranks.second)) >= LEAST;
            int a = k == 2 ? 0 : (int)(__float_as_uint(ranks.first) & mask);
            int b = k == 2 ? 1 : (int)(__float_as_uint(ranks.second) & mask);
            unsigned unsure = __ballot_sync(ALL_LANES, lane < count && k > 2 && !certain);
            const Decision by = {centers + s * k * d, near, offsets, origin, doubt, unit, k, d};
#pragma unroll 1
            while (unsure) {  // trips: 32 * doubt
                const int who = __ffs((int)unsure) - 1;
                int first, second;
                two_by_warp(by, rows + who * stride, first, second);
                if (lane == who) { a = first; b = second; }
                unsure &= unsure - 1;
            }
            if (lane >= count) continue;
            const double *left = by.centers + (idx)a * d, *right = by.centers + (idx)b * d;
            double low = 0.0, high = 0.0;
            if (d % 2 == 0) {
#pragma unroll (D > 0 ? 16 : 4)
                for (int j = 0; j < d; j += 2) {  // trips: ceil(d / 8)
                    const double2 c = pair_of(left + j), e = pair_of(right + j);
                    const double v = unflushed(x[j]), w = unflushed(x[j + 1]);
                    low = add_square(add_square(low, v, c.x), w, c.y);
                    high = add_square(add_square(high, v, e.x), w, e.y);
                }
            } else {  // share: d % 2
#pragma unroll 2
                for (int j = 0; j < d; ++j) {  // trips: ceil(d / 2)
                    const double v = unflushed(x[j]);
                    low = add_square(low, v, __ldg(left + j));
                    high = add_square(high, v, __ldg(right + j));
                }
            }
            const bool swap = high < low || (high == low && b < a);
            nearest.first[at] = swap ? b : a;
            nearest.second[at] = swap ? a : b;
            nearest.near[at] = swap ? high : low;
            nearest.far[at] = swap ? low : high;
        }
    }
}
