// block_search: a whole restart in one thread block, R restarts in one launch, for data that fits shared memory.
//
// The paper's data sets are bound by launches, not by memory: here the tabu search and, if wanted, the K-Means that
// refines its best solution run to their end without leaving the block. The results are those of assign, prepare,
// survey and step, and of gputabu.lloyd.descend.
#include "search.cuh"

// The points and the clusters of one restart, in shared memory.
struct Block {
    const real* X;  // (N, d)
    const double* weight;  // (N) in global memory, or null
    int* labels;  // (N)
    unsigned* barred;  // (ceil(N / 32)) tabu bits
    idx* totals;  // (K, C)
    double *centers, *means;  // (K, d): what labels are made of, and the centroids
    real *fast, *norms, *doubt;  // (K, d), (K), (3)
    word* keys;  // (K)
    idx* scratch;  // (2·K)
    idx n;
    int k, d, columns;
};

struct Numbers {  // of the grid and of the fast distances
    const double *offset, *scale, *high, *low;
    double weight_scale, weight_high, weight_low, cost_scale, cost0, cost1, cost2, key_scale;
    double unit, trust, exact, floor;
};

// Labels by the nearest of b.centers, totals brought up to date; returns how many labels changed.
__device__ idx relabel(const Block& b, const Numbers& g) {
    __shared__ word widest, changed;
    make_fast(b.centers, b.fast, b.norms, b.doubt, g.offset, b.k, b.d, g.unit, g.trust, g.exact, g.floor, &widest);
    if (threadIdx.x == 0) changed = 0;
    __syncthreads();
    for (idx i = threadIdx.x; i < b.n; i += blockDim.x) {
        const real* x = b.X + i * b.d;
        real norm = 0;
        for (int j = 0; j < b.d; ++j) {
            const real moved = (x[j] - (real)g.offset[j]) * (real)g.unit;
            norm += moved * moved;
        }
        norm = sqrt(norm);
        Lead lead = no_lead();
        for (int a = 0; a < b.k; ++a) {
            real score = 0;
            for (int j = 0; j < b.d; ++j) {
                const real diff = (x[j] - (real)g.offset[j]) * (real)g.unit - b.fast[(idx)a * b.d + j];
                score += diff * diff;
            }
            consider(lead, score, a);
        }
        int found = lead.found;
        const real bound = b.doubt[0] + norm * (b.doubt[1] + norm * b.doubt[2]);
        if (b.k > 1 && !(lead.second - lead.best > bound)) found = nearest_canonical(x, b.centers, b.k, b.d);
        const int old = b.labels[i];
        if (found == old) continue;
        b.labels[i] = found;
        atomicAdd(&changed, (word)1);
        contribute(b.totals + (idx)found * b.columns, x, b.d, b.weight, i, g.offset, g.scale, g.weight_scale, 1);
        if (old >= 0) contribute(b.totals + (idx)old * b.columns, x, b.d, b.weight, i, g.offset, g.scale, g.weight_scale, -1);
    }
    __syncthreads();
    return (idx)changed;
}

__device__ void take_means(const Block& b, const Numbers& g) {
    for (int t = threadIdx.x; t < b.k * b.d; t += blockDim.x)
        b.means[t] = centroid(b.totals + (idx)(t / b.d) * b.columns, b.d, t % b.d, b.weight != 0, g.offset, g.high, g.low,
                              g.weight_high, g.weight_low, b.centers[t]);
    __syncthreads();
}

// J at the centroids, and the best free points; tabu bits are made from the rows.
__device__ double look(const Block& b, const Numbers& g, const Restart& me, const Limits& limits) {
    __shared__ idx sums[3];
    for (int t = threadIdx.x; t < 3; t += blockDim.x) sums[t] = 0;
    for (int t = threadIdx.x; t < b.k; t += blockDim.x) b.keys[t] = NO_KEY;
    for (idx t = threadIdx.x; t < (b.n + 31) / 32; t += blockDim.x) b.barred[t] = 0;
    __syncthreads();
    for (idx t = threadIdx.x; t < (idx)b.k * limits.capacity; t += blockDim.x) {
        const int a = (int)(t / limits.capacity);
        if ((int)(t % limits.capacity) >= me.length[a]) continue;
        const idx i = me.rows[t];
        if (limits.global_scope || b.labels[i] == a) atomicOr(b.barred + i / 32, 1u << (i % 32));
    }
    __syncthreads();
    idx mine[3] = {0, 0, 0};
    for (idx i = threadIdx.x; i < b.n; i += blockDim.x) {
        const int a = b.labels[i];
        const double square = canonical(b.X + i * b.d, b.means + (idx)a * b.d, b.d);
        double v = b.weight ? __dmul_rn(square, b.weight[i]) : square;
        v = __dmul_rn(v, g.cost_scale);
        for (int l = 0; l < 3; ++l) mine[l] += next_limb(v);
        if ((b.weight && b.weight[i] <= 0.0) || (b.barred[i / 32] >> (i % 32) & 1u)) continue;
        atomicMin(b.keys + a, (word)float_bits(__dmul_rn(square, g.key_scale)) << 32 | (word)i);
    }
    for (int l = 0; l < 3; ++l)
        if (mine[l]) add_to(sums + l, mine[l]);
    __syncthreads();
    const double J = __dadd_rn(__dadd_rn(from_limb(sums[0], g.cost0), from_limb(sums[1], g.cost1)), from_limb(sums[2], g.cost2));
    __syncthreads();  // everyone has read the sums
    return J;
}

__device__ void enter(const Block& b, const idx* rows) {
    for (int t = threadIdx.x; t < b.k * b.d; t += blockDim.x) b.centers[t] = widen(b.X[rows[t / b.d] * b.d + t % b.d]);
    __syncthreads();
}

// Gives each empty cluster the farthest point not yet given away (gputabu.lloyd.relocate) for as long as the means
// are taken; labels and totals are as before afterwards.
__device__ void take_means_relocating(const Block& b, const Numbers& g) {
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
            if (widen(__uint_as_float(bits)) > 1048576.0 && key < bar) atomicMax(&farthest, key);  // 2^20
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
            contribute(b.totals + (idx)b.labels[i] * b.columns, x, b.d, b.weight, i, g.offset, g.scale, g.weight_scale, -sign);
        }
        __syncthreads();
        if (sign == 1) take_means(b, g);
    }
    if (!given) take_means(b, g);
}

// Whether these totals were there before (gputabu.lloyd._came_back); passed (rounds) holds a print of each.
__device__ bool came_back(const Block& b, word* passed, int round) {
    __shared__ word print;
    __shared__ int known;
    if (threadIdx.x == 0) { print = 0; known = 0; }
    __syncthreads();
    word mine = 0;
    for (int t = threadIdx.x; t < b.k * b.columns; t += blockDim.x) {
        word h = ((word)b.totals[t] ^ (word)(t + 1) * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
        h = (h ^ h >> 31) * 0x94D049BB133111EBull;
        mine += h ^ h >> 29;
    }
    atomicAdd(&print, mine);
    __syncthreads();
    for (int t = threadIdx.x; t < round; t += blockDim.x)
        if (passed[t] == print) known = 1;
    __syncthreads();
    if (threadIdx.x == 0) passed[round] = print;
    const bool result = known != 0;
    __syncthreads();
    return result;
}

// X (N, d), weight (N) or null in; the state and trace of R restarts as in `step`; refined (R, K, d) out: the centres
// that K-Means ends with after at most `rounds` rounds from M_b; passed (R, rounds) scratch.
// One block per restart: grid = (R), block = (any). Shared: everything in Block but the weights. Ties: lowest row.
extern "C" __global__ void block_search(
    const real* __restrict__ X, const double* __restrict__ weight, idx* __restrict__ means, idx* __restrict__ rows,
    int* __restrict__ length, idx* __restrict__ best_means, double* __restrict__ best_cost, int* __restrict__ stale,
    int* __restrict__ age, int* __restrict__ done, double* __restrict__ current, double* __restrict__ best,
    idx* __restrict__ path, double* __restrict__ refined, word* __restrict__ passed, const double* __restrict__ offset,
    const double* __restrict__ scale, const double* __restrict__ high, const double* __restrict__ low,
    double weight_scale, double weight_high, double weight_low, double cost_scale, double cost0, double cost1,
    double cost2, double key_scale, double noise, double target, double unit, double trust, double exact, double floor,
    idx n, int k, int d, int capacity, int max_iter, int patience, int global_scope, int rounds) {
    DYNAMIC_SHARED(double, shared);
    const idx s = blockIdx.x, t1 = max_iter + 1;
    Block b;
    b.n = n; b.k = k; b.d = d; b.columns = 2 * d + 1 + (weight ? 2 : 0); b.weight = weight;
    double* numbers = shared;  // (4, d): offset, scale, high, low
    b.centers = numbers + 4 * d;
    b.means = b.centers + k * d;
    b.totals = (idx*)(b.means + k * d);
    b.keys = (word*)(b.totals + k * b.columns);
    b.scratch = (idx*)(b.keys + k);
    real* points = (real*)(b.scratch + 2 * k);
    b.X = points;
    b.fast = points + n * d;
    b.norms = b.fast + k * d;
    b.doubt = b.norms + k;
    b.labels = (int*)(b.doubt + 3);
    b.barred = (unsigned*)(b.labels + n);
    for (int j = threadIdx.x; j < d; j += blockDim.x) {
        numbers[j] = offset[j]; numbers[d + j] = scale[j]; numbers[2 * d + j] = high[j]; numbers[3 * d + j] = low[j];
    }
    for (idx t = threadIdx.x; t < n * d; t += blockDim.x) points[t] = X[t];
    for (idx i = threadIdx.x; i < n; i += blockDim.x) b.labels[i] = -1;
    for (int t = threadIdx.x; t < k * b.columns; t += blockDim.x) b.totals[t] = 0;
    __syncthreads();
    const Numbers g = {numbers, numbers + d, numbers + 2 * d, numbers + 3 * d, weight_scale, weight_high, weight_low,
                       cost_scale, cost0, cost1, cost2, key_scale, unit, trust, exact, floor};
    const Restart me = {means + s * k, rows + s * k * capacity, length + s * k, best_means + s * k, best_cost + s,
                        stale + s, age + s, done + s, current + s * t1, best + s * t1, path + s * t1 * k};
    const Limits limits = {noise, target, capacity, max_iter, patience, global_scope};
    bool going = true;
    while (going) {
        enter(b, me.means);
        relabel(b, g);
        take_means(b, g);
        const double J = look(b, g, me, limits);
        going = advance(me, limits, J, b.labels, weight, b.totals, b.keys, k, b.columns, b.scratch);
    }
    __syncthreads();  // M_b is written
    enter(b, me.best_means);
    for (int round = 0; round < rounds; ++round) {
        // gputabu.lloyd.descend begins with blank labels: then every label is new in the first round.
        const idx changed = relabel(b, g);
        take_means_relocating(b, g);
        const bool settled = came_back(b, passed + s * rounds, round) || (changed == 0 && round > 0);
        for (int t = threadIdx.x; t < k * d; t += blockDim.x) b.centers[t] = b.means[t];
        __syncthreads();
        if (settled) break;
    }
    for (int t = threadIdx.x; t < k * d; t += blockDim.x) refined[s * k * d + t] = b.centers[t];
}
