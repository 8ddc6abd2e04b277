// hartigan_prepare, hartigan_mark, hartigan_walk: rounds of single moves on the device (algorithms.hartigan.improve).
//
// A round replays: hartigan_prepare, find_moves, hartigan_mark, hartigan_walk. Moves are found in any order and made in
// that of rows.
#include "search.cuh"

#define WALK 1024  // rows that a block looks at together

// Weights of a cluster to leave, zero where a point would be alone, and to enter: as rules.masses.
__device__ void weigh(const SingleMoves& state, idx s, int a, int k, int d, bool weighted, const Grid& grid) {
    const int columns = columns_of(d, weighted);
    const idx* cluster = state.totals + (s * k + a) * columns;
    const double weight = weight_of(cluster, d, weighted, grid);
    state.mass[s * 2 * k + a] = cluster[columns - 1] >= 2 ? weight : 0.0;
    state.mass[s * 2 * k + k + a] = weight;
}

// state  in totals, done; out mass: nothing leaves a cluster of a restart that has ended
// count  (1) out, zero
// One thread per cluster, striding. grid = (any), block = (any), no shared memory.
extern "C" __global__ void hartigan_prepare(SingleMoves state, word* count, Grid grid, Shape shape, int weighted) {
    const idx me = (idx)blockIdx.x * blockDim.x + threadIdx.x;
    const int k = shape.k;
    if (me == 0) *count = 0;
    for (idx t = me; t < (idx)shape.r * k; t += (idx)gridDim.x * blockDim.x) {
        const idx s = t / k;
        weigh(state, s, (int)(t % k), k, shape.d, weighted, grid);
        if (state.done[s]) state.mass[s * 2 * k + t % k] = 0.0;
    }
}

// count (1), where (R·N), moves (R·N, 2)  in, of find_moves
// targets  (R, N)  out, where they lead
// One thread per move, striding: the number of moves is known here only. grid = (any), block = (any).
extern "C" __global__ void hartigan_mark(const word* count, const idx* where, const int* moves, int* targets) {
    const idx all = (idx)gridDim.x * blockDim.x, many = (idx)*count;
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < many; t += all) targets[where[t]] = moves[2 * t + 1];
}

// X        (N, d)  in, weight (N) in or null
// state            in/out; all targets are -1 again
// Makes the moves in turn, each if it still lowers J (rules.walk), the threads sharing the coordinates. One block per
// restart: grid = (R), block = (any, of two warps or more).
extern "C" __global__ void hartigan_walk(const real* X, const double* weight, SingleMoves state, Grid grid, Shape shape,
                                         idx n, double slack, int max_rounds) {
    __shared__ int target[WALK];
    __shared__ double square[2];
    __shared__ int some;
    const int k = shape.k, d = shape.d, columns = columns_of(d, weight);
    const idx s = blockIdx.x;
    if (state.done[s]) return;
    int* labels = state.labels + s * n;
    idx made = 0;
    bool tried = false;
    for (idx base = 0; base < n; base += WALK) {
        const int size = (int)min((idx)WALK, n - base);
        __syncthreads();  // the rows before have been looked at
        if (threadIdx.x == 0) some = 0;
        __syncthreads();
        for (int t = threadIdx.x; t < size; t += blockDim.x) {
            int* mine = state.targets + s * n + base + t;
            target[t] = *mine;
            if (*mine < 0) continue;
            *mine = -1;
            atomicExch(&some, 1);
        }
        __syncthreads();
        if (!some) continue;
        tried = true;
        for (int t = 0; t < size; ++t) {
            if (target[t] < 0) continue;
            const idx i = base + t;
            const int from = labels[i], to = target[t];
            const real* x = X + i * d;
            double* centers = state.centers + s * k * d;
            if (threadIdx.x == 0) square[0] = canonical(x, centers + (idx)from * d, d);
            if (threadIdx.x == 32) square[1] = canonical(x, centers + (idx)to * d, d);
            __syncthreads();
            const double w = weight ? weight[i] : 1.0;
            const double left = state.mass[s * 2 * k + from], right = state.mass[s * 2 * k + k + to];
            const double rest = __dsub_rn(left, w), factor = __ddiv_rn(left, rest);
            const double leave = __dmul_rn(factor, square[0]);
            const double enter = __dmul_rn(__ddiv_rn(right, __dadd_rn(right, w)), square[1]);
            const double noise =
                __dadd_rn(__dmul_rn(NOISE, leave), __dmul_rn(slack, __dsqrt_rn(__dmul_rn(factor, leave))));
            const bool lower = rest > 0.0 && __dsub_rn(leave, enter) > noise;
            __syncthreads();  // everyone has decided
            if (!lower) continue;
            idx *old = state.totals + (s * k + from) * columns, *now = state.totals + (s * k + to) * columns;
            for (int j = threadIdx.x; j < d; j += blockDim.x) {
                double v = __dsub_rn(widen(x[j]), grid.offset[j]);
                if (weight) v = __dmul_rn(v, w);
                v = __dmul_rn(v, grid.scale[j]);
                const idx high = next_limb(v), low = next_limb(v);
                old[j] -= high;
                now[j] += high;
                old[d + j] -= low;
                now[d + j] += low;
            }
            if (threadIdx.x == 0) {
                labels[i] = to;
                if (weight) {
                    double v = __dmul_rn(w, grid.weight_scale);
                    const idx high = next_limb(v), low = next_limb(v);
                    old[2 * d] -= high;
                    now[2 * d] += high;
                    old[2 * d + 1] -= low;
                    now[2 * d + 1] += low;
                }
                old[columns - 1] -= 1;
                now[columns - 1] += 1;
                weigh(state, s, from, k, d, weight, grid);
                weigh(state, s, to, k, d, weight, grid);
            }
            __syncthreads();
            for (int j = threadIdx.x; j < 2 * d; j += blockDim.x) {
                const int a = j < d ? from : to, c = j % d;
                double* center = centers + (idx)a * d + c;
                *center = centroid(j < d ? old : now, d, c, weight, grid, *center);
            }
            ++made;
            __syncthreads();
        }
    }
    if (threadIdx.x == 0) {
        state.made[s] += made;
        state.age[s] += tried;
        state.done[s] = !tried ? STOP_CONVERGED : state.age[s] >= max_rounds ? STOP_MAX_ITER : 0;
    }
}
