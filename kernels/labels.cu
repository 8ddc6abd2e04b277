// labels_of, mark, pick_labels, relabel: labels and tabu stamps of single points or of whole restarts.
#include "common.cuh"

// labels (R, pitch) in; rows (R, m) in, -1 for none; found (R, m) out: the label of each, -1 for none.
extern "C" __global__ void labels_of(const int* __restrict__ labels, const idx* __restrict__ rows,
                                     int* __restrict__ found, idx pitch, idx r, idx m) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < r * m; t += (idx)gridDim.x * blockDim.x)
        found[t] = rows[t] < 0 ? -1 : labels[t / m * pitch + rows[t]];
}

// stamps (R, pitch) in/out: the rows (R, K, L) become forbidden, where in their cluster or, if shared, anywhere.
extern "C" __global__ void mark(const int* __restrict__ labels, const idx* __restrict__ rows, int* __restrict__ stamps,
                                const int* __restrict__ age, idx pitch, idx r, int k, idx m, int shared) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < r * k * m; t += (idx)gridDim.x * blockDim.x) {
        const idx n = rows[t], cluster = t / m, s = cluster / k;
        if (n < 0) continue;
        if (shared || labels[s * pitch + n] == (int)(cluster % k)) atomicExch(stamps + s * pitch + n, age[s]);
    }
}

// from (R', pitch) rows picked into to (m, pitch): to[t] = from[picks[t]]. One thread per element.
extern "C" __global__ void pick_labels(const int* __restrict__ from, int* __restrict__ to, const idx* __restrict__ picks,
                                       idx m, idx pitch) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < m * pitch; t += (idx)gridDim.x * blockDim.x)
        to[t] = from[picks[t / pitch] * pitch + t % pitch];
}

// labels (R · pitch) in/out: = to[t] at where[t], all of them different. One thread per move, striding.
extern "C" __global__ void relabel(int* __restrict__ labels, const idx* __restrict__ where, const int* __restrict__ to,
                                   idx m) {
    for (idx t = (idx)blockIdx.x * blockDim.x + threadIdx.x; t < m; t += (idx)gridDim.x * blockDim.x)
        labels[where[t]] = to[t];
}
