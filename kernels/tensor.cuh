// Tensor cores: products of halves (FP16) with sums in float, a 16×8 tile over 16 coordinates by a warp.
//
// Inline PTX is here alone; hostcuda has an emulation. Lane l has g = l / 4 and t = l % 4. Words of a fragment are two
// halves that are neighbours in k, the lower k in the low half. Loads and the check at first use (tensor_check.cu) take
// rows and columns from the functions below.
#pragma once
#include "structs.cuh"

#define MOST_HALF 32768.0f  // a norm up to which no coordinate overflows as a half, not doubled either

__device__ __forceinline__ int row_of_a(int lane, int word) { return lane / 4 + 8 * (word & 1); }
__device__ __forceinline__ int depth_of_a(int lane, int word) { return 2 * (lane % 4) + 8 * (word >> 1); }
__device__ __forceinline__ int column_of_b(int lane) { return lane / 4; }
__device__ __forceinline__ int depth_of_b(int lane, int word) { return 2 * (lane % 4) + 8 * word; }
__device__ __forceinline__ int row_of_sum(int lane, int i) { return lane / 4 + 8 * (i >> 1); }
__device__ __forceinline__ int column_of_sum(int lane, int i) { return 2 * (lane % 4) + (i & 1); }

// A coordinate relative to the offset, times the unit of the halves, a power of two. Under -ftz=true what is denormal is
// zero: an error that HalfDoubt.flat has room for, as the unit is at most 2^100.
__device__ __forceinline__ float scaled(float x, float offset, float unit) { return (x - offset) * unit; }
__device__ __forceinline__ float scaled(double x, double offset, double unit) { return (float)((x - offset) * unit); }

// Two floats rounded to halves.
__device__ __forceinline__ unsigned halves_of(float low, float high) {
#ifdef HOSTCUDA
    return hostcuda_halves(low, high);
#elif __CUDA_ARCH__ >= 800
    unsigned both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return 0;  // never launched there
#endif
}

// The value of a half, exactly. cvt.f32.f16 keeps denormal halves, which are normal floats.
__device__ __forceinline__ float half_value(unsigned bits) {
#ifdef HOSTCUDA
    return hostcuda_half_value(bits);
#elif __CUDA_ARCH__ >= 800
    float value;
    asm("{.reg .b16 h; mov.b32 {h, _}, %1; cvt.f32.f16 %0, h;}" : "=f"(value) : "r"(bits));
    return value;
#else
    return 0.0f;
#endif
}
__device__ __forceinline__ float low_half(unsigned both) { return half_value(both & 0xFFFFu); }
__device__ __forceinline__ float high_half(unsigned both) { return half_value(both >> 16); }

// sum = a b + c, by all lanes of a warp.
__device__ __forceinline__ void multiply(float (&sum)[4], const uint4& a, unsigned b0, unsigned b1, const float4& c) {
#ifdef HOSTCUDA
    sum[0] = c.x;
    sum[1] = c.y;
    sum[2] = c.z;
    sum[3] = c.w;
    hostcuda_mma(sum, a, b0, b1);
#elif __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                 : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "f"(c.x), "f"(c.y), "f"(c.z), "f"(c.w));
#endif
}

// sum += a b, by all lanes of a warp.
__device__ __forceinline__ void multiply_add(float (&sum)[4], const uint4& a, unsigned b0, unsigned b1) {
#ifdef HOSTCUDA
    hostcuda_mma(sum, a, b0, b1);
#elif __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
#endif
}

// Copies of 16 bytes from global to shared memory that go on while a thread does other things; at most N until it waits.
// What comes of them is there for this thread behind wait(), and for the others behind a barrier.
template <int N> struct Copies {
#ifdef HOSTCUDA
    uint4* to[N];
    const uint4* from[N];
    int count = 0;
    void begin(uint4* shared, const uint4* global) { to[count] = shared, from[count++] = global; }
    void wait() {
        for (int t = 0; t < count; ++t) *to[t] = *from[t];
        count = 0;
    }
#else
    __device__ __forceinline__ void begin(uint4* shared, const uint4* global) {
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(shared)), "l"(global));
#endif
    }
    __device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    }
#endif
};
