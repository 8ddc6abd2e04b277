// relocation_potential, relocation_draw, relocation_move, relocation_step: what a relocation search does between its
// passes (algorithms.relocation), on the device.
//
// A turn replays: nearest_two, relocation_potential, relocation_draw, swap_gains, relocation_move, and some times
// nearest_two, reassign, relocation_step. A restart makes one iteration in it, or a part of one: how many steps that
// takes is known here only. A restart that still falls at the end goes on with the second step of the next turn; one
// whose potential must be taken on a finer grid tries again in the next turn. Flags switch off what it does not need.
//
// CANDIDATE, POTENTIAL_TILE, POTENTIAL_BITS and ENOUGH_BITS are macros (gputabu.backend.cuda.launch.MACROS).
#include "ordered.cuh"
#include "random.cuh"
#include "search.cuh"

#define WARP 32
#define MOST 256  // threads of a block at the most
#define BATCH 8   // loads that do not wait for each other

// w · d² on the grid of 2^-shift, 2^shift being the scale.
__device__ __forceinline__ idx potential_term(double square, const double* weight, idx i, double scale) {
    if (weight) square = __dmul_rn(square, weight[i]);
    return __double2ll_rn(__dmul_rn(square, scale));
}

// The sum of the values of this lane and those before it; by all lanes of a warp.
__device__ __forceinline__ idx running_sum(idx value) {
    const int lane = threadIdx.x % WARP;
    for (int by = 1; by < WARP; by *= 2) {
        const idx before = __shfl_up_sync(0xFFFFFFFFu, value, by);
        if (lane >= by) value += before;
    }
    return value;
}

// near    (R, N)  in   d² to the nearest centre
// weight  (N)     in   or null
// state           in   number, done
// swaps           in   shift; out tiles
// bytes: r * n * 8
// One block per tile: grid = (R · tiles), block = (any number of warps).
extern "C" __global__ void relocation_potential(const double* __restrict__ near, const double* __restrict__ weight,
                                                Relocations state, Swaps swaps, idx n, idx tiles) {
    __shared__ idx sum;
    const idx s = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    if (state.done[s] || state.number[s]) return;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    const double scale = ldexp(1.0, swaps.shift[s]);
    idx mine = 0;
    for (idx i = tile * POTENTIAL_TILE + threadIdx.x; i < min(n, (tile + 1) * POTENTIAL_TILE); i += blockDim.x)  // trips: 4
        mine += potential_term(near[s * n + i], weight, i, scale);
    mine = running_sum(mine);
    if (threadIdx.x % WARP == WARP - 1) add_to(&sum, mine);
    __syncthreads();
    if (threadIdx.x == 0) swaps.tiles[s * tiles + tile] = sum;
}

// The first row at which the running potential of one tile exceeds `beyond`; by all lanes of a warp.
__device__ idx row_of(const double* near, const double* weight, idx tile, idx beyond, double scale, idx n) {
    const idx first = tile * POTENTIAL_TILE + threadIdx.x % WARP * (POTENTIAL_TILE / WARP), last = min(n, first + POTENTIAL_TILE / WARP);
    idx mine = 0;
    for (idx i = first; i < last; i += BATCH) {  // trips: 32 / BATCH
        idx terms[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; ++j) terms[j] = i + j < last ? potential_term(near[i + j], weight, i + j, scale) : 0;
#pragma unroll
        for (int j = 0; j < BATCH; ++j) mine += terms[j];
    }
    const idx until = running_sum(mine);
    const unsigned past = __ballot_sync(0xFFFFFFFFu, until > beyond);
    const int owner = __ffs((int)past) - 1;
    idx row = first;
    if ((int)(threadIdx.x % WARP) == owner)
        for (idx left = beyond - (until - mine); row < last; ++row) {  // trips: 16
            left -= potential_term(near[row], weight, row, scale);
            if (left < 0) break;
        }
    return __shfl_sync(0xFFFFFFFFu, row, owner);
}

// X       (N, d)  in
// near    (R, N)  in, weight (N) in or null
// state           in/out  the flags of this turn; done where every point is on a centre
// swaps           in   tiles; out rows, candidates, shift for the next time; loss and change are cleared
// bytes: r * (8 * tiles + trials * (8192 + 20 * d + 24 * k))
// The potential, or a finer grid for it (seeding.refine); then a warp per draw finds its row. One block per restart:
// grid = (R), block = (any number of warps, MOST at the most).
extern "C" __global__ void relocation_draw(const real* __restrict__ X, const double* __restrict__ weight,
                                           const double* __restrict__ near, Relocations state, Swaps swaps,
                                           RelocationRules rules, Shape shape, idx n, idx tiles) {
    __shared__ idx ends[MOST];  // running potential behind the tiles of each thread
    __shared__ idx sums[MOST / WARP];
    const int k = shape.k, d = shape.d, trials = rules.trials, me = threadIdx.x, warps = blockDim.x / WARP;
    const idx s = blockIdx.x, share = (tiles + blockDim.x - 1) / blockDim.x;
    const int done = state.done[s], number = state.number[s], shift = swaps.shift[s], age = state.age[s];
    if (me == 0) state.settled[s] = 1;
    if (done || number) {
        if (me == 0) { state.unmoved[s] = 1; state.idle[s] = done != 0; }
        return;
    }
    const idx *mine = swaps.tiles + s * tiles, last = min(tiles, (me + 1) * share);
    idx end = 0;
    for (idx t = me * share; t < last; ++t) end += mine[t];  // trips: ceil(n / 262144)
    end = running_sum(end);
    if (me % WARP == WARP - 1) sums[me / WARP] = end;
    __syncthreads();  // also: everyone has read `done` and the shift
    idx potential = 0;
    for (int w = 0; w < warps; ++w) {  // trips: 8
        if (w == me / WARP) end += potential;
        potential += sums[w];
    }
    ends[me] = end;
    const int bits = potential ? 64 - __clzll(potential) : 0;
    const bool poor = bits < ENOUGH_BITS && shift < rules.finest;
    if (me == 0) {
        state.unmoved[s] = poor || potential == 0;
        state.idle[s] = 1;
        swaps.shift[s] = poor ? min(shift + POTENTIAL_BITS - max(bits, 4), rules.finest) : rules.coarsest;
        if (!poor && potential == 0) state.done[s] = STOP_TARGET;
    }
    if (poor || potential == 0) return;
    __syncthreads();
    const double scale = ldexp(1.0, shift);
    for (int c = me / WARP; c < trials; c += warps) {  // trips: ceil(trials / 8)
        const idx position = (idx)age * trials + c;
        word drawn[QUAD];
        draw(drawn, (word)(position / QUAD), 0, CANDIDATE, rules.seed, swaps.restarts[s]);
        const idx wanted = (idx)__umul64hi(pick(drawn, (int)(position % QUAD)), (word)potential);
        int low = 0;
        for (int high = blockDim.x - 1; low < high;) {  // trips: 8; the first thread that ends beyond
            const int middle = (low + high) / 2;
            if (ends[middle] > wanted) high = middle;
            else low = middle + 1;
        }
        idx tile = low * share, beyond = wanted - (low ? ends[low - 1] : 0);
        for (; beyond >= mine[tile]; ++tile) beyond -= mine[tile];  // trips: ceil(n / 262144) / 2
        const idx row = row_of(near + s * n, weight, tile, beyond, scale, n);
        if (me % WARP == 0) swaps.rows[s * trials + c] = row;
        for (int j = me % WARP; j < d; j += WARP)  // trips: ceil(d / WARP)
            swaps.candidates[(s * trials + c) * d + j] = widen(X[row * d + j]);
    }
    for (int t = me; t < 3 * k; t += blockDim.x) swaps.loss[s * 3 * k + t] = 0;
    const idx size = (idx)trials * (k + 1) * 3;
    for (idx t = me; t < size; t += blockDim.x) swaps.change[s * size + t] = 0;
}

// A swap of candidate `pair / K` for centre `pair % K`, and by what it changes J.
struct Swap {
    double gain;
    int pair;
};
__device__ __forceinline__ bool before(const Swap& a, const Swap& b) {
    return a.gain < b.gain || (a.gain == b.gain && a.pair < b.pair);
}

// The best swap of all threads of a block; on ties the first. best (MOST / WARP) is shared.
__device__ Swap best_of(Swap mine, Swap* best) {
    for (int by = WARP / 2; by; by /= 2) {
        const Swap other = {__shfl_xor_sync(0xFFFFFFFFu, mine.gain, by), __shfl_xor_sync(0xFFFFFFFFu, mine.pair, by)};
        if (before(other, mine)) mine = other;
    }
    if (threadIdx.x % WARP == 0) best[threadIdx.x / WARP] = mine;
    __syncthreads();
    mine = best[0];
    for (int w = 1; w < (int)(blockDim.x / WARP); ++w)  // trips: 8
        if (before(best[w], mine)) mine = best[w];
    return mine;
}

// state   in/out  the centre of the best swap that is not tabu goes to its candidate
// swaps   in/out  what is tabu now
// bytes: r * trials * k * 24
// One block per restart: grid = (R), block = (any number of warps, MOST at the most).
extern "C" __global__ void relocation_move(Relocations state, Swaps swaps, Grid grid, RelocationRules rules,
                                           Shape shape) {
    __shared__ Swap best[MOST / WARP];
    __shared__ int differs;
    const int k = shape.k, d = shape.d, trials = rules.trials, me = threadIdx.x;
    const idx s = blockIdx.x;
    if (state.unmoved[s]) return;
    const int age = state.age[s];
    int *barred = swaps.barred + s * trials, *placed = swaps.placed + s * k;
    const idx *rows = swaps.rows + s * trials, *loss = swaps.loss + s * 3 * k;
    const idx* change = swaps.change + s * trials * (k + 1) * 3;
    for (int c = me; c < trials; c += blockDim.x) barred[c] = 0;
    if (me == 0) differs = 0;
    __syncthreads();
    for (int t = me; t < trials * k; t += blockDim.x)
        if (swaps.used[s * k + t % k] == rows[t / k]) atomicExch(barred + t / k, 1);  // share: 0.01
    __syncthreads();
    bool some = false;
    for (int c = me; c < trials; c += blockDim.x) some = some || !barred[c];
    some = __syncthreads_or(some);  // rather a point again than none
    Swap mine = {__longlong_as_double(0x7FF0000000000000LL), 0};
    for (int t = me; t < trials * k; t += blockDim.x) {
        const int c = t / k, a = t % k;
        if ((barred[c] && some) || placed[a] >= age - rules.tenure) continue;
        const idx *own = change + ((idx)c * (k + 1) + a) * 3, *saved = change + ((idx)c * (k + 1) + k) * 3;
        const idx limbs[3] = {loss[3 * a] + own[0] - saved[0], loss[3 * a + 1] + own[1] - saved[1],
                              loss[3 * a + 2] + own[2] - saved[2]};
        const Swap found = {cost_of(limbs, grid), t};
        if (found.gain < mine.gain) mine = found;
    }
    mine = best_of(mine, best);
    const int c = mine.pair / k, a = mine.pair % k;
    double* center = state.centers + (s * k + a) * d;
    for (int j = me; j < d; j += blockDim.x) {
        const double now = swaps.candidates[(s * trials + c) * d + j];
        if (center[j] != now) atomicExch(&differs, 1);
        center[j] = now;
    }
    __syncthreads();
    if (me > 0) return;
    placed[a] = age;
    swaps.used[s * k + age % k] = rows[c];
    state.settled[s] = !differs;
    state.changed[s] = 0;
    state.news[s] = 0;
    state.aim[s] = state.elite[s];
}

// The numbers of one restart, in registers: loaded together, so that no load waits for another.
struct Standing {
    double cost, best, elite, aim;
    idx left;
    int stale, since_elite, news, number, age, done;
};
__device__ __forceinline__ Standing standing_of(const Relocations& state, idx s) {
    return Standing{state.cost[s], state.best_cost[s], state.elite[s], state.aim[s], state.left[s],
                    state.stale[s], state.since_elite[s], state.news[s], state.number[s], state.age[s], 0};
}

// What is to be done with the centroids of a restart behind a step.
struct Verdict {
    int better;  // they are the best,
    int nearer;  // or the elite, from now on
    int back;    // go to the elite instead
    int over;    // the iteration has ended
};

// Judges the step that led to J: update_best, and whether more steps follow (descend). If none do, whether the search
// ends, or returns to its elite (return_to_elite).
__device__ __forceinline__ Verdict judge(Standing& now, const RelocationRules& rules, double J) {
    Verdict found = {0, 0, 0, 0};
    const double last = now.cost;
    now.cost = J;
    ++now.number;
    if (now.age >= 0 && now.number < rules.steps) return found;
    found.better = J < __dmul_rn(now.best, 1.0 - NOISE);
    found.nearer = J < __dmul_rn(now.elite, 1.0 - NOISE);
    if (found.better) now.best = J;
    if (found.nearer) now.elite = J;
    now.news |= found.better + 2 * found.nearer;
    const bool falls = now.since_elite >= rules.calm && J < __dmul_rn(last, 1.0 - NOISE) &&
                       __dmul_rn(__dsub_rn(last, J), rules.reach) > __dsub_rn(J, now.aim);
    found.over = now.age < 0 || now.number >= rules.steps + rules.more_steps || !falls;
    if (!found.over) return found;
    now.stale = now.age < 0 || now.news & 1 ? 0 : now.stale + 1;
    now.since_elite = now.age < 0 || now.news & 2 ? 0 : now.since_elite + 1;
    now.left -= now.age < 0 ? 0 : now.number + 1;
    now.number = 0;
    ++now.age;
    now.done = now.best <= rules.target ? STOP_TARGET : now.stale >= rules.patience ? STOP_PATIENCE
               : now.left <= 0 ? STOP_EFFORT : now.age == rules.max_iter ? STOP_MAX_ITER : 0;
    if (!now.done && now.since_elite >= rules.give_up) {
        found.nearer = 1;
        now.elite = J;
        now.since_elite = 0;
    }
    found.back = !now.done && now.since_elite % rules.go_back == 0;  // or just there
    return found;
}

// Writes what has been judged, by one thread; at the end of an iteration, or of the start, also its trace.
__device__ __forceinline__ void record(const Relocations& state, const RelocationRules& rules, idx s,
                                       const Standing& now, bool over) {
    state.cost[s] = now.cost;
    state.best_cost[s] = now.best;
    state.elite[s] = now.elite;
    state.news[s] = now.news;
    state.number[s] = now.number;
    state.idle[s] = over;
    if (!over) return;
    const idx column = s * rules.window + now.age % rules.window;
    state.stale[s] = now.stale;
    state.since_elite[s] = now.since_elite;
    state.age[s] = now.age;
    state.done[s] = now.done;
    state.left[s] = now.left;
    state.current[column] = now.cost;
    state.best[column] = now.best;
    state.moves[column] = state.changed[s];
}

// state   in/out  what `reassign` has changed is known; the centres go to the centroids, or back to the elite
// skip    (R)  in   flag: no step is made
// bytes: r * k * (56 * d + 40)
// One block per restart: grid = (R), block = (any).
extern "C" __global__ void relocation_step(Relocations state, const int* skip, Grid grid, RelocationRules rules,
                                           Shape shape, int weighted) {
    __shared__ double waiting[ORDERED];
    __shared__ Verdict found;
    __shared__ int differs;
    const int k = shape.k, d = shape.d, columns = columns_of(d, weighted), size = k * d;
    const idx s = blockIdx.x;
    if (skip[s]) {
        if (threadIdx.x == 0) state.settled[s] = 1;  // nearest_two has just looked
        return;
    }
    Standing now = standing_of(state, s);
    double *centers = state.centers + s * size, *means = state.means + s * size, *mass = state.mass + s * 2 * k;
    const idx* totals = state.totals + s * k * columns;
#pragma unroll 1
    for (int t = threadIdx.x; t < size; t += blockDim.x)
        means[t] = centroid(totals + (idx)(t / d) * columns, d, t % d, weighted, grid, centers[t]);
    if (threadIdx.x == 0) differs = 0;
    __syncthreads();  // also: everyone has read `skip`
    for (int a = threadIdx.x; a < k; a += blockDim.x) {
        const double weight = weight_of(totals + (idx)a * columns, d, weighted, grid);
        double shift = 0.0;
        for (int j = 0; j < d; j += BATCH) {
            double squares[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; ++i)
                squares[i] = j + i < d ? add_square(0.0, means[(idx)a * d + j + i], centers[(idx)a * d + j + i]) : 0.0;
#pragma unroll
            for (int i = 0; i < BATCH; ++i) shift = __dadd_rn(shift, squares[i]);
        }
        state.shares[s * k + a] = __dmul_rn(weight, shift);
        mass[a] = totals[(idx)(a + 1) * columns - 1] >= 2 ? weight : 0.0;
        mass[k + a] = weight;
    }
    __syncthreads();
    const double fall = sum_in_order(state.shares + s * k, k, waiting);
    if (threadIdx.x == 0) {
        idx* costs = state.costs + 3 * s;
        const double J = __dsub_rn(cost_of(costs, grid), fall);
        costs[0] = costs[1] = costs[2] = 0;
        found = judge(now, rules, J > 0.0 ? J : 0.0);
        record(state, rules, s, now, found.over);
    }
    __syncthreads();
    double *best = state.best_centers + s * size, *elite = state.elite_centers + s * size;
#pragma unroll 1
    for (int t = threadIdx.x; t < size; t += blockDim.x) {
        const double mean = means[t];
        if (found.better) best[t] = mean;
        if (found.nearer) elite[t] = mean;
        const double now = found.back ? elite[t] : mean;
        if (now != centers[t]) atomicExch(&differs, 1);
        centers[t] = now;
    }
    __syncthreads();
    if (threadIdx.x == 0) state.settled[s] = !differs || now.done;
}
