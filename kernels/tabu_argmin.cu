// survey: squared distance of every point to the centre of its cluster: J, and per cluster the best free points.
//
// X is read once for up to RG restarts (-DRG=1 or 8). A warp has 32 points, and WIDTH coordinates of them at a time. Its
// lanes go over these 32·WIDTH numbers as they lie in memory, so that points and centres are read in whole lines, and
// leave (x − c)² in shared memory; then every lane adds up those of its point in the order of j. Of d > 16 coordinates
// (-DWIDE=1) a tile is a part; otherwise WIDTH is d, which the compiler then knows.
#include "limbs.cuh"
#include "structs.cuh"

#define SURVEY_SHARED(ARRAY)                                        \
    ARRAY(double, all_terms, threads * (WIDTH | 1))                 \
    ARRAY(double, local_centers, resident * group * k * d)          \
    ARRAY(word, local_keys, private_keys * group * k)               \
    ARRAY(int, all_owners, threads * RG)
#define STRIDE (WIDTH | 1)  // of a point's terms; odd: they begin in different banks
#define THREADS (RG == 1 ? 256 : 128)
// Blocks of a multiprocessor; as many as have registers enough.
#define AT_ONCE (RG == 1 && (sizeof(real) > 4 || __CUDA_ARCH__ >= 1000) ? 2 : 3)
#define HELD 4              // points whose limbs an int can hold

// Limbs of a thread's points. For many restarts they are held in 32 bits, and added up every HELD points.
#if RG == 1
typedef idx limb_sum;
#else
typedef int limb_sum;
#endif

// Adds the limbs of a warp to sums, and begins again.
__device__ __forceinline__ void flush(limb_sum (&limbs)[RG][3], idx (*sums)[3]) {
#pragma unroll
    for (int s = 0; s < RG; ++s)
#pragma unroll
        for (int l = 0; l < 3; ++l) {
            const idx sum = warp_sum(limbs[s][l]);
            if (threadIdx.x % 32 == 0 && sum) add_to(&sums[s][l], sum);
            limbs[s][l] = 0;
        }
}

// Terms of 32 points: x has every 32nd number of the tile from that of this lane on; owners, restart·K + label of each.
__device__ __forceinline__ void find_terms(const real (&x)[WIDTH], const double* __restrict__ centers, const int* owners,
                                           double* terms, int column, int d) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < WIDTH; ++t) {
        const int row = (32 * t + lane) / WIDTH, j = (32 * t + lane) % WIDTH;
        const double c = column + j < d ? centers[owners[row] * d + column + j] : 0.0;
        const double diff = __dsub_rn(widened(x[t]), c);
        terms[row * STRIDE + j] = __dmul_rn(diff, diff);
    }
}

// The same for numbers that `widened` cannot take; they are rare, and read again.
__device__ __forceinline__ void find_odd_terms(const real* X, const double* centers, const int* owners, double* terms,
                                               int column, int d, int count) {
#pragma unroll 1
    for (int t = threadIdx.x % 32; t < 32 * WIDTH; t += 32) {
        const int row = t / WIDTH, j = t % WIDTH;
        if (row >= count || column + j >= d) continue;
        const double diff = __dsub_rn(widen(X[(idx)row * d + column + j]), centers[owners[row] * d + column + j]);
        terms[row * STRIDE + j] = __dmul_rn(diff, diff);
    }
}

// X        (n, d)        in   rows of the chunk
// weight   (n)           in   or null; points of weight zero are never free
// centers  (R, K, d)     in   double
// labels   (R, pitch)    in
// stamps   (R, pitch)    in   or null: a point is forbidden where its stamp is the restart's age
// age      (R)           in   or null with stamps
// bar      (R, K)        in   or null: only keys above this one count (the runners-up of an earlier survey)
// costs    (R, 3)        in/out, += limbs of w·d²
// keys     (R, K)        in/out or null: min of (d² rounded to float32) << 32 | row
// done     (R)           in   or null
// resident: the centres are held in shared memory; private_keys: the keys are, and are merged at the end.
// 32 points per warp, striding. grid = (ceil(R / RG), any), block = (256, or 128 for many restarts, which take more
// registers). Ties: lowest row.
// bytes: n * (4 * d * ceil(r / RG) + 8 * r)
extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE)
survey(const real* __restrict__ X, const double* __restrict__ weight, const double* __restrict__ centers,
       const int* __restrict__ labels, const int* __restrict__ stamps, const int* __restrict__ age,
       const word* __restrict__ bar, idx* __restrict__ costs, word* __restrict__ keys, const int* __restrict__ done,
       Chunk chunk, Shape shape, double cost_scale, double key_scale, int resident, int private_keys) {
    __shared__ idx sums[RG][3];
    const int k = shape.k, d = WIDE ? shape.d : WIDTH, threads = blockDim.x;
    const int first = blockIdx.x * RG, group = min(RG, shape.r - first);  // restarts of this block
    const idx n = chunk.n, start = chunk.start, pitch = chunk.pitch;
    unsigned live = 0;  // those that are not done, as bits
#pragma unroll
    for (int s = 0; s < RG; ++s)
        if (s < group && !(done && done[first + s])) live |= 1u << s;
    if (!live) return;
    DYNAMIC_SHARED(char, carved);
    SURVEY_SHARED(CARVE)
    const double* table = centers + (idx)first * k * d;
    word* least = private_keys ? local_keys : keys + (idx)first * k;
    if (resident)
#pragma unroll 1
        for (int t = threadIdx.x; t < group * k * d; t += threads) local_centers[t] = table[t];
    if (private_keys)
#pragma unroll 1
        for (int t = threadIdx.x; t < group * k; t += threads) local_keys[t] = NO_KEY;
    if (threadIdx.x < RG * 3) sums[threadIdx.x / 3][threadIdx.x % 3] = 0;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    double* terms = all_terms + (threadIdx.x - lane) * STRIDE;  // of this warp
    int* owners = all_owners + (threadIdx.x - lane) * RG;
    const Power cost_power = power_of(cost_scale), key_power = power_of(key_scale);
    limb_sum limbs[RG][3];
#pragma unroll
    for (int s = 0; s < RG; ++s) limbs[s][0] = limbs[s][1] = limbs[s][2] = 0;
    int held = 0;

#pragma unroll 1
    for (idx base = ((idx)blockIdx.y * threads + threadIdx.x) / 32 * 32; base < n; base += (idx)gridDim.y * threads) {
        const int count = (int)min((idx)32, n - base);
        const idx i = base + min(lane, count - 1), at = first * pitch + start + i;  // the last lanes repeat a point
        const double w = weight ? weight[i] : 1.0;
        double square[RG];
        __syncwarp();  // the owners before have been read
#pragma unroll
        for (int s = 0; s < RG; ++s) {
            if (live >> s & 1u) owners[32 * s + lane] = s * k + labels[at + s * pitch];
            square[s] = 0.0;
        }
#pragma unroll 1
        for (int column = 0; column < d; column += WIDTH) {
            real x[WIDTH];
            bool odd = false;
#pragma unroll
            for (int t = 0; t < WIDTH; ++t) {
                const int row = (32 * t + lane) / WIDTH, j = (32 * t + lane) % WIDTH;
                x[t] = row < count && column + j < d ? X[base * d + (row * d + column + j)] : (real)0;
                odd |= is_denormal(x[t]);
            }
#pragma unroll
            for (int s = 0; s < RG; ++s) {
                if (!(live >> s & 1u)) continue;
                __syncwarp();  // the terms before have been read, the owners are written
                if (resident) find_terms(x, local_centers, owners + 32 * s, terms, column, d);
                else find_terms(x, table, owners + 32 * s, terms, column, d);
                if (odd)  // share: 0
                    find_odd_terms(X + base * d, table, owners + 32 * s, terms, column, d, count);
                __syncwarp();
#pragma unroll
                for (int j = 0; j < WIDTH; ++j) square[s] = __dadd_rn(square[s], terms[lane * STRIDE + j]);
                if (column + WIDTH < d || lane >= count) continue;  // beyond: WIDTH / d
                add_limbs(limbs[s], weight ? __dmul_rn(square[s], w) : square[s], cost_power);
                if (!keys || !(w > 0.0)) continue;
                if (stamps && stamps[at + s * pitch] == age[first + s]) continue;
                // Only a new least key needs an atomic; another thread may have lowered it since.
                const int cluster = owners[32 * s + lane];
                const unsigned known = ((const volatile unsigned*)(least + cluster))[1];
                if (rebiased(square[s], key_power) > (int)(known >> 3)) continue;  // beyond: 0.01
                const word key = (word)key_of(square[s], key_power) << 32 | (word)(start + i);
                if (bar && key <= bar[(idx)first * k + cluster]) continue;
                atomicMin(least + cluster, key);
            }
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
