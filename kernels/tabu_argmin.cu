// survey: squared distance of every point to the centre of its cluster: J, and per cluster the best free points.
//
// X is read once for up to RG restarts (-DRG=1 or 8). A warp has 32 points, and WIDTH coordinates of them at a time:
// all d, or a part (-DWIDE=1, or 2 where the last part is not full). LANES lanes share a row, each has PACK of its
// coordinates, two where d is even: so points and centres are read in whole lines, and without conflicts of banks. They
// leave (x − c)² in shared memory; then every lane adds up those of its point in the order of j.
#include "limbs.cuh"
#include "structs.cuh"

#define SURVEY_SHARED(ARRAY)                                         \
    ARRAY(double, all_terms, threads * (WIDTH / PACK | 1) * PACK)    \
    ARRAY(double, local_centers, RESIDENT * group * k * d)           \
    ARRAY(word, local_keys, private_keys * group * k)                \
    ARRAY(int, all_owners, threads * RG)
#define LANES (WIDTH / PACK)
#define ROWS (32 / LANES)              // rows at a time
#define STEPS ((31 + ROWS) / ROWS)     // until all 32 are done
#define STRIDE ((LANES | 1) * PACK)    // room for the terms of a point
#define THREADS (RG == 1 ? 256 : 128)
// Blocks of a multiprocessor; as many as have registers enough.
#define AT_ONCE (RG == 1 && (sizeof(real) > 4 || __CUDA_ARCH__ >= 1000) ? 2 : 3)
#define LIVE(s) (RG == 1 || (live >> (s) & 1u))
#define HELD 4              // points whose limbs an int can hold

// Limbs of a thread's points. For many restarts they are held in 32 bits, and added up every HELD points.
#if RG > 1
typedef int limb_sum;
#elif DOUBLES_ARE_SLOW
typedef idx limb_sum;
#else
typedef double limb_sum;
#endif

template <class T> struct Two;
template <> struct Two<float> { typedef float2 type; };
template <> struct Two<double> { typedef double2 type; };

// As many numbers as a lane has of a row; two of them are aligned.
template <class T> __device__ __forceinline__ void fetch(const T* from, T (&to)[1]) { to[0] = *from; }
template <class T> __device__ __forceinline__ void fetch(const T* from, T (&to)[2]) {
    const typename Two<T>::type both = *(const typename Two<T>::type*)from;
    to[0] = both.x;
    to[1] = both.y;
}
__device__ __forceinline__ void leave(const double (&from)[1], double* to) { *to = from[0]; }
__device__ __forceinline__ void leave(const double (&from)[2], double* to) {
    *(double2*)to = make_double2(from[0], from[1]);
}

// Adds the limbs of a warp to sums, and begins again.
__device__ __forceinline__ void flush(limb_sum (&limbs)[RG][3], idx (*sums)[3]) {
#pragma unroll
    for (int s = 0; s < RG; ++s)
#pragma unroll
        for (int l = 0; l < 3; ++l) {
            const idx sum = warp_sum(whole(limbs[s][l]));
            if (threadIdx.x % 32 == 0 && sum) add_to(&sums[s][l], sum);
            limbs[s][l] = 0;
        }
}

// Row of a lane's coordinates in a step, of the 32 of a tile; 32 where it has none.
__device__ __forceinline__ int row_of(int step) {
    const int lane = threadIdx.x % 32, row = step * ROWS + lane / LANES;
    return 32 % LANES == 0 || (lane < ROWS * LANES && row < 32) ? row : 32;
}

// Where the terms of a point begin. Lines of 8 pairs are 9 apart, or an odd number of coordinates are: so neither those
// who leave rows nor those who each take a row meet in a bank.
__device__ __forceinline__ int terms_of(int row) {
    return PACK == 2 && 8 % LANES == 0 ? row * WIDTH + row * LANES / 8 * 2 : row * STRIDE;
}

// The squared distance of a point whose lane has all of it.
__device__ __forceinline__ double square_of(const real (&x)[PACK], const double* center) {
    double c[PACK], sum = 0.0;
    fetch(center, c);
#pragma unroll
    for (int p = 0; p < PACK; ++p) {
        const double diff = difference(x[p], c[p]), term = __dmul_rn(diff, diff);
        sum = p == 0 ? term : __dadd_rn(sum, term);
    }
    return sum;
}

// Of a key that others may lower meanwhile.
__device__ __forceinline__ unsigned high_word(const word* key) { return ((const volatile unsigned*)key)[1]; }

// Terms of a tile of 32 points, whose centres begin at `owners`. From the column `left` on there are no coordinates.
__device__ __forceinline__ void find_terms(const real (&x)[STEPS][PACK], const double* __restrict__ centers,
                                           const int* owners, double* terms, int left) {
    const int j = threadIdx.x % 32 % LANES * PACK;
#pragma unroll
    for (int t = 0; t < STEPS; ++t) {
        const int row = row_of(t);
        if (row == 32) continue;  // beyond: 1
        double c[PACK] = {};
        if (WIDE < 2 || j < left) fetch(centers + owners[row] + j, c);  // share: 1
#pragma unroll
        for (int p = 0; p < PACK; ++p) {
            const double diff = difference(x[t][p], c[p]);
            c[p] = __dmul_rn(diff, diff);
        }
        leave(c, terms + terms_of(row) + j);
    }
}

// The terms of a lane's point, added to the sum so far; the first is not added to zero.
__device__ __forceinline__ void add_terms(double& sum, const double* terms) {
#pragma unroll
    for (int j = 0; j < WIDTH; j += PACK) {
        double c[PACK];
        fetch(terms + j, c);
#pragma unroll
        for (int p = 0; p < PACK; ++p) sum = !WIDE && j + p == 0 ? c[p] : __dadd_rn(sum, c[p]);
    }
}

// X        (n, d)        in   rows of the chunk
// weight   (n)           in   or null without -DWEIGHTED=1; points of weight zero are never free
// centers  (R, K, d)     in   double
// labels   (R, pitch)    in
// stamps   (R, pitch)    in   or null: a point is forbidden where its stamp is the restart's age
// age      (R)           in   or null with stamps
// bar      (R, K)        in   or null: only keys above this one count (the runners-up of an earlier survey)
// costs    (R, 3)        in/out, += limbs of w·d²
// keys     (R, K)        in/out or null: min of (d² rounded to float32) << 32 | row
// done     (R)           in   or null
// The centres are held in shared memory if -DRESIDENT=1. private_keys: the keys are, and are merged at the end.
// 32 points per warp, striding. grid = (ceil(R / RG), any), block = (256, or 128 for many restarts, which take more
// registers). Ties: lowest row.
// bytes: n * (4 * d * ceil(r / RG) + 8 * r)
extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE)
survey(const real* __restrict__ X, const double* __restrict__ weight, const double* __restrict__ centers,
       const int* __restrict__ labels, const int* __restrict__ stamps, const int* __restrict__ age,
       const word* __restrict__ bar, idx* __restrict__ costs, word* __restrict__ keys, const int* __restrict__ done,
       Chunk chunk, Shape shape, double cost_scale, double key_scale, int private_keys) {
    __shared__ idx sums[RG][3];
    const int k = shape.k, d = WIDE ? shape.d : WIDTH, threads = THREADS;
    const int first = RG > 1 ? blockIdx.x * RG : 0, group = min(RG, RG > 1 ? shape.r - first : 1);  // restarts here
    unsigned live = 0;  // those that are not done, as bits
#pragma unroll
    for (int s = 0; s < RG; ++s)
        if (s < group && !(done && done[first + s])) live |= 1u << s;
    if (!live) return;
    DYNAMIC_SHARED(char, carved);
    SURVEY_SHARED(CARVE)
    const double* table = centers + (idx)first * k * d;
    if (RESIDENT)
#pragma unroll 1
        for (int t = threadIdx.x; t < group * k * d; t += threads) local_centers[t] = table[t];
    if (private_keys)
#pragma unroll 1
        for (int t = threadIdx.x; t < group * k; t += threads) local_keys[t] = NO_KEY;
    if (threadIdx.x < RG * 3) sums[threadIdx.x / 3][threadIdx.x % 3] = 0;
    __syncthreads();
    const double* near = RESIDENT ? local_centers : table;
    const int lane = threadIdx.x % 32;
    double* terms = all_terms + (threadIdx.x - lane) * STRIDE;  // of this warp
    int* owners = all_owners + (threadIdx.x - lane) * RG;
    const Power cost_power = power_of(cost_scale), key_power = power_of(key_scale);
    limb_sum limbs[RG][3];
#pragma unroll
    for (int s = 0; s < RG; ++s) limbs[s][0] = limbs[s][1] = limbs[s][2] = 0;
    int held = 0;

    // All tiles are full: the last begins among points of another. Fewer than 32 points are a tile of their own.
    const unsigned n = (unsigned)chunk.n, tiles = (unsigned)((chunk.n + 31) / 32), top = n < 32 ? 0 : n - 32;
    const int own = min(lane, (int)min(n - 1, 31u));
    const unsigned me = (blockIdx.y * threads + threadIdx.x) / 32, warps = gridDim.y * (threads / 32);
    const idx pitch = chunk.pitch;
    const unsigned row_bytes = d * (unsigned)sizeof(real);
    const char* rows = (const char*)(X + (row_of(0) * d + lane % LANES * PACK));
    labels += first * pitch + chunk.start + own;
#pragma unroll 1
    for (unsigned t = me; t < tiles; t += warps) {  // trips: n / (gridDim.y * THREADS)
        const unsigned base = min(32 * t, top);
        const bool mine = lane == own && (unsigned)lane >= 32 * t - base;
        const double w = WEIGHTED ? weight[base + own] : 1.0;
        double square[RG];
        int cluster[RG];
        __syncwarp();  // the owners before have been read
#pragma unroll
        for (int s = 0; s < RG; ++s) {
            cluster[s] = LIVE(s) ? s * k + labels[base + s * pitch] : 0;
            if (LANES > 1) owners[32 * s + lane] = cluster[s] * d;
            square[s] = 0.0;
        }
        if (n < 32) {
#pragma unroll
            for (int s = 0; s < RG; ++s) square[s] = canonical(X + own * d, table + (idx)cluster[s] * d, d);
        } else {
            const real* from = (const real*)(rows + (word)base * row_bytes);
#pragma unroll 1
            for (int column = 0; column < d; column += WIDTH, from += WIDTH) {
                real x[STEPS][PACK];
#pragma unroll
                for (int t = 0; t < STEPS; ++t) {
                    x[t][0] = x[t][PACK - 1] = (real)0;
                    if (row_of(t) < 32 && (WIDE < 2 || column + lane % LANES * PACK < d))  // share: 1
                        fetch(from + t * ROWS * d, x[t]);
                }
#pragma unroll
                for (int s = 0; s < RG; ++s) {
                    if (!LIVE(s)) continue;
                    if (LANES == 1) {
                        square[s] = square_of(x[0], near + cluster[s] * d);
                    } else {
                        __syncwarp();  // the terms before have been read, the owners are written
                        find_terms(x, near + column, owners + 32 * s, terms, d - column);
                        __syncwarp();
                        add_terms(square[s], terms + terms_of(lane));
                    }
                }
            }
        }
#pragma unroll
        for (int s = 0; s < RG; ++s) {
            if (!mine || !LIVE(s)) continue;  // beyond: 1
            add_limbs(limbs[s], WEIGHTED ? __dmul_rn(square[s], w) : square[s], cost_power);
            if (!keys || (WEIGHTED && !(w > 0.0))) continue;
            // Only a new least key needs an atomic; another thread may have lowered it since.
            word* least = keys + (idx)first * k + cluster[s];
            const unsigned known = private_keys ? high_word(local_keys + cluster[s]) : high_word(least);
            const bool behind = rebiased(square[s], key_power) > (int)(known >> 3);
            if (behind) continue;  // beyond: warp(min(1, (.6 + .7 * log2(1 + n / (k * grid_y))) * k * grid_y / n))
            if (stamps && stamps[first * pitch + chunk.start + base + lane + s * pitch] == age[first + s]) continue;
            const word key = (word)key_of(square[s], key_power) << 32 | (word)(chunk.start + base + lane);
            if (bar && key <= bar[(idx)first * k + cluster[s]]) continue;
            if (private_keys) atomicMin(local_keys + cluster[s], key);
            else atomicMin(least, key);
        }
        if (RG > 1 && ++held % HELD == 0) flush(limbs, sums);  // share: (RG > 1) / HELD
    }
    flush(limbs, sums);
    __syncthreads();
    if ((int)threadIdx.x < group * 3 && sums[threadIdx.x / 3][threadIdx.x % 3])
        add_to(costs + first * 3 + threadIdx.x, sums[threadIdx.x / 3][threadIdx.x % 3]);
    if (private_keys)
#pragma unroll 1
        for (int t = threadIdx.x; t < group * k; t += threads)
            if (local_keys[t] != NO_KEY) atomicMin(keys + (idx)first * k + t, local_keys[t]);
}
