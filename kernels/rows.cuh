// 32 points of a warp in shared memory, a row each.
#pragma once
#include "common.cuh"

#define ALL_LANES 0xFFFFFFFFu
#define STRIDE(d) ((d) | 1)  // of rows; odd: they begin in different banks

// As `widen`, denormal floats included, by one instruction: what is written here is not subject to -ftz=true.
__device__ __forceinline__ double unflushed(double v) { return v; }
__device__ __forceinline__ double unflushed(float v) {
#ifdef HOSTCUDA
    return widen(v);
#else
    double wide;
    asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(v));
    return wide;
#endif
}

// Brings `count` rows to shared memory, and zeros for the rest of 32; by all lanes. KNOWN: coordinates where the compiler
// knows them, otherwise 0.
template <int KNOWN>
__device__ __forceinline__ void stage(const real* __restrict__ from, real* rows, int count, int d) {
    const int lane = threadIdx.x % 32;
    __syncwarp();  // those before have been read
    if (KNOWN > 0) {
#pragma unroll
        for (int i = 0; i < KNOWN; ++i) {
            const unsigned t = 32 * i + lane;
            rows[t + t / (KNOWN > 0 ? KNOWN : 1) * (STRIDE(KNOWN) - KNOWN)] = (int)t < count * KNOWN ? from[t] : (real)0;
        }
    } else {
#pragma unroll 1
        for (int row = 0; row < 32; row += 4)  // trips: 8
#pragma unroll 1
            for (int j = lane; j < d; j += 32) {  // trips: ceil(d / 32)
#pragma unroll
                for (int b = 0; b < 4; ++b)
                    rows[(row + b) * STRIDE(d) + j] = row + b < count ? from[(idx)(row + b) * d + j] : (real)0;
            }
    }
    __syncwarp();
}
