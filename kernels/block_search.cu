// block_search: a whole restart in one thread block, R restarts in one launch, for data that fits shared memory.
//
// The paper's data sets are bound by launches, not by memory: here the tabu search and, if wanted, the K-Means that
// refines its best solution run to their end without leaving the block. The results are those of assign, prepare,
// survey and step, and of algorithms.lloyd.descend.
#include "search.cuh"

// The points and the clusters of one restart, in shared memory.
struct Block {
    const real* X;  // (N, d)
    const double* weight;  // (N) in global memory, or null
    int* labels;  // (N)
    unsigned* barred;  // (ceil(N / 32)) tabu bits
    idx* totals;  // (K, C)
    double *centers, *means;  // (K, d): what labels are made of, and the centroids
    FastCenters fast;
    word* keys;  // (K)
    idx* scratch;  // (2·K)
    idx n;
    int k, d, columns;
};

// Labels by the nearest of b.centers, totals brought up to date; returns how many labels changed.
__device__ idx relabel(const Block& b, const Grid& g, const Doubt& doubt) {
    __shared__ word widest, changed;
    make_fast(b.centers, b.fast, g.offset, b.k, b.d, doubt, &widest);
    if (threadIdx.x == 0) changed = 0;
    __syncthreads();
    for (idx i = threadIdx.x; i < b.n; i += blockDim.x) {
        const real* x = b.X + i * b.d;
        real norm = 0;
        for (int j = 0; j < b.d; ++j) {
            const real moved = relative(x[j], g.offset[j], doubt.unit);
            norm += moved * moved;
        }
        norm = sqrt(norm);
        Lead lead = no_lead();
        for (int a = 0; a < b.k; ++a) {
            real score = 0;
            for (int j = 0; j < b.d; ++j) {
                const real diff = relative(x[j], g.offset[j], doubt.unit) - b.fast.centers[(idx)a * b.d + j];
                score += diff * diff;
            }
            consider(lead, score, a);
        }
        int found = lead.found;
        const real bound = b.fast.doubt[0] + norm * (b.fast.doubt[1] + norm * b.fast.doubt[2]);
        if (b.k > 1 && !(lead.second - lead.best > bound)) found = nearest_canonical(x, b.centers, b.k, b.d);
        const int old = b.labels[i];
        if (found == old) continue;
        b.labels[i] = found;
        atomicAdd(&changed, (word)1);
        contribute(b.totals + (idx)found * b.columns, x, b.d, b.weight, i, g.offset, g.scale, g.weight_scale, 1);
        if (old >= 0)
            contribute(b.totals + (idx)old * b.columns, x, b.d, b.weight, i, g.offset, g.scale, g.weight_scale, -1);
    }
    __syncthreads();
    return (idx)changed;
}

__device__ void take_means(const Block& b, const Grid& g) {
    for (int t = threadIdx.x; t < b.k * b.d; t += blockDim.x)
        b.means[t] = centroid(b.totals + (idx)(t / b.d) * b.columns, b.d, t % b.d, b.weight != 0, g, b.centers[t]);
    __syncthreads();
}

// J at the centroids, and the best free points; tabu bits are made from the rows.
__device__ double look(const Block& b, const Grid& g, const Restarts& me, const Limits& limits) {
    __shared__ idx sums[3];
    for (int t = threadIdx.x; t < 3; t += blockDim.x) sums[t] = 0;
    for (int t = threadIdx.x; t < b.k; t += blockDim.x) b.keys[t] = NO_KEY;
    for (idx t = threadIdx.x; t < (b.n + 31) / 32; t += blockDim.x) b.barred[t] = 0;
    __syncthreads();
    for (idx t = threadIdx.x; t < (idx)b.k * limits.capacity; t += blockDim.x) {
        const int a = (int)(t / limits.capacity);
        if ((int)(t % limits.capacity) >= me.length[a]) continue;
        const idx i = me.rows[t];
        if (limits.shared || b.labels[i] == a) atomicOr(b.barred + i / 32, 1u << (i % 32));
    }
    __syncthreads();
    idx limbs[3] = {0, 0, 0};  // of the points of this thread
    for (idx i = threadIdx.x; i < b.n; i += blockDim.x) {
        const int a = b.labels[i];
        const double square = canonical(b.X + i * b.d, b.means + (idx)a * b.d, b.d);
        double v = b.weight ? __dmul_rn(square, b.weight[i]) : square;
        v = __dmul_rn(v, g.cost_scale);
        for (int l = 0; l < 3; ++l) limbs[l] += next_limb(v);
        if ((b.weight && b.weight[i] <= 0.0) || (b.barred[i / 32] >> (i % 32) & 1u)) continue;
        atomicMin(b.keys + a, (word)float_bits(__dmul_rn(square, g.key_scale)) << 32 | (word)i);
    }
    for (int l = 0; l < 3; ++l)
        if (limbs[l]) add_to(sums + l, limbs[l]);
    __syncthreads();
    const double J = cost_of(sums, g);
    __syncthreads();  // everyone has read the sums
    return J;
}

__device__ void enter(const Block& b, const idx* rows) {
    for (int t = threadIdx.x; t < b.k * b.d; t += blockDim.x) b.centers[t] = widen(b.X[rows[t / b.d] * b.d + t % b.d]);
    __syncthreads();
}

// Gives each empty cluster the farthest point not yet given away (algorithms.lloyd) for as long as the means are taken;
// labels and totals are as before afterwards.
__device__ void take_means_relocating(const Block& b, const Grid& g) {
    __shared__ word farthest;
    word bar = NO_KEY;
    int given = 0;
    for (int a = threadIdx.x; a < b.k; a += blockDim.x) b.scratch[a] = -1;  // the point that cluster a is given
    __syncthreads();
    for (int a = 0; a < b.k; ++a) {
        if (b.totals[(idx)a * b.columns + b.columns - 1] != 0 || bar == 0) continue;
        if (threadIdx.x == 0) farthest = 0;
        __syncthreads();
        for (idx i = threadIdx.x; i < b.n; i += blockDim.x) {
            if (b.weight && b.weight[i] <= 0.0) continue;
            const double square = canonical(b.X + i * b.d, b.centers + (idx)b.labels[i] * b.d, b.d);
            const unsigned bits = float_bits(__dmul_rn(square, g.key_scale));
            const word key = (word)bits << 32 | (word)(0xFFFFFFFFu - (unsigned)i);
            if (widen(__uint_as_float(bits)) > ON_CENTER && key < bar) atomicMax(&farthest, key);
        }
        __syncthreads();
        bar = farthest;
        __syncthreads();
        if (bar && threadIdx.x == 0) b.scratch[a] = (idx)(0xFFFFFFFFu - (unsigned)bar);
        if (bar) ++given;
        __syncthreads();
    }
    __syncthreads();  // everyone has read which clusters are empty
    for (int sign = 1; given && sign >= -1; sign -= 2) {  // apply, take the means, take back
        for (int a = threadIdx.x; a < b.k; a += blockDim.x) {
            const idx i = b.scratch[a];
            if (i < 0) continue;
            const real* x = b.X + i * b.d;
            contribute(b.totals + (idx)a * b.columns, x, b.d, b.weight, i, g.offset, g.scale, g.weight_scale, sign);
            contribute(b.totals + (idx)b.labels[i] * b.columns, x, b.d, b.weight, i, g.offset, g.scale, g.weight_scale,
                       -sign);
        }
        __syncthreads();
        if (sign == 1) take_means(b, g);
    }
    if (!given) take_means(b, g);
}

// Whether these totals were there before (algorithms.lloyd); passed (rounds) holds a fingerprint of each.
__device__ bool came_back(const Block& b, word* passed, int round) {
    __shared__ word fingerprint;
    __shared__ int known;
    if (threadIdx.x == 0) { fingerprint = 0; known = 0; }
    __syncthreads();
    word part = 0;
    for (int t = threadIdx.x; t < b.k * b.columns; t += blockDim.x) {
        word h = ((word)b.totals[t] ^ (word)(t + 1) * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
        h = (h ^ h >> 31) * 0x94D049BB133111EBull;
        part += h ^ h >> 29;
    }
    atomicAdd(&fingerprint, part);
    __syncthreads();
    for (int t = threadIdx.x; t < round; t += blockDim.x)
        if (passed[t] == fingerprint) known = 1;
    __syncthreads();
    if (threadIdx.x == 0) passed[round] = fingerprint;
    const bool result = known != 0;
    __syncthreads();
    return result;
}

#define BLOCK_SEARCH_SHARED(ARRAY)                  \
    ARRAY(double, offset, d)                        \
    ARRAY(double, scale, d)                         \
    ARRAY(double, high, d)                          \
    ARRAY(double, low, d)                           \
    ARRAY(double, centers, k * d)                   \
    ARRAY(double, centroids, k * d)                 \
    ARRAY(idx, totals, k * columns)                 \
    ARRAY(word, keys, k)                            \
    ARRAY(idx, scratch, 2 * k)                      \
    ARRAY(real, points, n * d)                      \
    ARRAY(real, near, k * d)                        \
    ARRAY(real, norms, k)                           \
    ARRAY(real, doubts, 3)                          \
    ARRAY(int, labels, n)                           \
    ARRAY(unsigned, barred, (n + 31) / 32)

// X (N, d), weight (N) or null in; the state and trace of R restarts as in `step`; refined (R, K, d) out: the centres
// that K-Means ends with after at most `rounds` rounds from M_b; passed (R, rounds) scratch.
// One block per restart: grid = (R), block = (any). Ties: lowest row.
extern "C" __global__ void block_search(const real* __restrict__ X, const double* __restrict__ weight,
                                        Restarts restarts, double* __restrict__ refined, word* __restrict__ passed,
                                        Grid grid, Doubt doubt, Limits limits, Shape shape, int n, int rounds) {
    const int k = shape.k, d = shape.d, columns = columns_of(d, weight);
    const idx s = blockIdx.x;
    DYNAMIC_SHARED(char, carved);
    BLOCK_SEARCH_SHARED(CARVE)
    const Block b = {points, weight, labels, barred, totals, centers, centroids, {near, norms, doubts}, keys, scratch,
                     n, k, d, columns};
    for (int j = threadIdx.x; j < d; j += blockDim.x) {
        offset[j] = grid.offset[j]; scale[j] = grid.scale[j]; high[j] = grid.high[j]; low[j] = grid.low[j];
    }
    for (int t = threadIdx.x; t < n * d; t += blockDim.x) points[t] = X[t];
    for (int i = threadIdx.x; i < n; i += blockDim.x) labels[i] = -1;
    for (int t = threadIdx.x; t < k * columns; t += blockDim.x) totals[t] = 0;
    __syncthreads();
    grid.offset = offset; grid.scale = scale; grid.high = high; grid.low = low;
    const Restarts me = restart_of(restarts, s, k, limits);
    bool going = true;
    while (going) {
        enter(b, me.means);
        relabel(b, grid, doubt);
        take_means(b, grid);
        const double J = look(b, grid, me, limits);
        going = advance(me, limits, J, labels, weight, totals, keys, k, columns, scratch);
    }
    __syncthreads();  // M_b is written
    enter(b, me.best_means);
    for (int round = 0; round < rounds; ++round) {
        // algorithms.lloyd begins with blank labels: then every label is new in the first round.
        const idx changed = relabel(b, grid, doubt);
        take_means_relocating(b, grid);
        const bool settled = came_back(b, passed + s * rounds, round) || (changed == 0 && round > 0);
        for (int t = threadIdx.x; t < k * d; t += blockDim.x) centers[t] = centroids[t];
        __syncthreads();
        if (settled) break;
    }
    for (int t = threadIdx.x; t < k * d; t += blockDim.x) refined[s * k * d + t] = centers[t];
}
