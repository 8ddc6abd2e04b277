// What a warp does for one point of a list: decide it canonically, or change the totals by it.
#pragma once
#include "rows.cuh"
#include "structs.cuh"

// The canonical nearest of K centres, the lowest number on ties; a lane takes every 32nd centre. All lanes call it.
__device__ int nearest_by_warp(const real* x, const double* centers, int k, int d) {
    const int lane = threadIdx.x % 32;
    double best = __longlong_as_double(0x7FF0000000000000LL);
    int found = k;
#pragma unroll 1
    for (int a = lane; a < k; a += 32) {  // trips: ceil(k / 32)
        const double square = canonical(x, centers + (idx)a * d, d);
        if (square < best || found == k) { best = square; found = a; }
    }
#pragma unroll
    for (int far = 16; far > 0; far /= 2) {
        const double other = __shfl_xor_sync(ALL_LANES, best, far);
        const int theirs = __shfl_xor_sync(ALL_LANES, found, far);
        if (theirs < k && (found == k || other < best || (other == best && theirs < found))) {
            best = other;
            found = theirs;
        }
    }
    return found;
}

// Takes a point from the totals of cluster `from`, if that is one, and gives it to `to`; lanes take coordinates. The
// same operations as contribute of common.cuh.
__device__ void move_by_warp(idx* clusters, int from, int to, const real* x, int d, const double* weight, idx i,
                             const double* offset, const double* scale, double weight_scale) {
    const int lane = threadIdx.x % 32, columns = columns_of(d, weight);
    idx *now = clusters + (idx)to * columns, *old = clusters + (idx)max(from, 0) * columns;
    const double w = weight ? weight[i] : 1.0;
#pragma unroll 1
    for (int j = lane; j < d; j += 32) {  // trips: ceil(d / 32)
        double v = __dsub_rn(widen(x[j]), offset[j]);
        if (weight) v = __dmul_rn(v, w);
        v = __dmul_rn(v, scale[j]);
        const idx high = next_limb(v), low = next_limb(v);
        add_to(now + j, high);
        add_to(now + d + j, low);
        if (from < 0) continue;
        add_to(old + j, -high);
        add_to(old + d + j, -low);
    }
    if (lane > 0) return;
    if (weight) {  // share: 1
        double v = __dmul_rn(w, weight_scale);
        const idx high = next_limb(v), low = next_limb(v);
        add_to(now + 2 * d, high);
        add_to(now + 2 * d + 1, low);
        if (from >= 0) { add_to(old + 2 * d, -high); add_to(old + 2 * d + 1, -low); }
        if (w <= 0.0) return;
    }
    add_to(now + columns - 1, 1);
    if (from >= 0) add_to(old + columns - 1, -1);
}
