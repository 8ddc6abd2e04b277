// Sums in the order of their terms, as canonical.in_order adds them.
#pragma once
#include "common.cuh"

#define ORDERED 256  // terms that wait in shared memory

// Σ terms[0 .. count), one after the other; by all threads of a block, which fetch the terms for the first. Only that
// one has the sum. waiting (ORDERED) is shared.
__device__ double sum_in_order(const double* terms, int count, double* waiting) {
    double sum = 0.0;
    for (int base = 0; base < count; base += ORDERED) {  // trips: ceil(k / ORDERED)
        const int size = min(ORDERED, count - base);
        __syncthreads();  // the terms before have been added
        for (int t = threadIdx.x; t < size; t += blockDim.x)  // trips: 1
            waiting[t] = terms[base + t];
        __syncthreads();
        if (threadIdx.x == 0)
            for (int t = 0; t < size; ++t)  // trips: min(k, ORDERED)
                sum = __dadd_rn(sum, waiting[t]);
    }
    return sum;
}
