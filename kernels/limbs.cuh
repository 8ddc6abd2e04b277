// Doubles by their bits: differences, limbs and keys with few operations in float64 or in integers, whichever a device
// has more units for, and no conversions. The results are those of `widen`, `next_limb` and `float_bits`, bit by bit.
#pragma once
#include "common.cuh"

__device__ __forceinline__ double from_words(unsigned high, unsigned low) {
    return __longlong_as_double((idx)((word)high << 32 | low));
}

// x − c, rounded once. The bits of a float, moved to where a double has them, are x·2^-896, denormal or not: its
// exponent has another bias, 127 for 1023. The product that brings it back is exact.
__device__ __forceinline__ double difference(double x, double c) { return __dsub_rn(x, c); }
__device__ __forceinline__ double difference(float x, double c) {
    const unsigned bits = __float_as_uint(x);
    return __fma_rn(from_words((unsigned)((int)bits >> 3) & 0x8FFFFFFFu, bits << 29), 0x1p896, -c);
}

// A power of two as a factor, and what it adds to exponents.
struct Power {
    double factor;
    int exponent;
};
__device__ __forceinline__ Power power_of(double factor) {
    return Power{factor, (__double2hiint(factor) >> 20) - 1023};
}

// GeForce and its kin have two units for float64 in a multiprocessor, where others have 32 or 64.
#define DOUBLES_ARE_SLOW (__CUDA_ARCH__ > 700 && __CUDA_ARCH__ != 800 && __CUDA_ARCH__ != 900 && __CUDA_ARCH__ != 1000)
#define ROUNDER 6755399441055744.0  // 1.5 · 2^52: added to a double, it leaves an integer, in the low word of the sum

// A sum of limbs as it is kept: all are exact. In a double up to 2^53, which is 2^25 points.
__device__ __forceinline__ void tally(double& sum, double shifted) {
    sum = __dadd_rn(sum, __dsub_rn(shifted, ROUNDER));
}
__device__ __forceinline__ void tally(int& sum, double shifted) { sum += __double2loint(shifted); }
__device__ __forceinline__ void tally(idx& sum, double shifted) { sum += __double2loint(shifted); }
__device__ __forceinline__ idx whole(double sum) { return __double2ll_rn(sum); }
__device__ __forceinline__ idx whole(idx sum) { return sum; }
__device__ __forceinline__ idx whole(int sum) { return sum; }

// Adds the three limbs of v·2^scale, from 0 to 2^LIMB, in float64. Scaling is by powers of two, so that fused
// operations round once where others round once.
template <class Sum>
__device__ __forceinline__ void add_limbs_double(Sum (&sums)[3], double v, const Power& scale) {
    double factor = scale.factor;
#pragma unroll
    for (int limb = 0; limb < 3; ++limb) {
        const double shifted = __fma_rn(v, factor, ROUNDER);
        tally(sums[limb], shifted);
        v = __fma_rn(v, factor, __dsub_rn(ROUNDER, shifted));
        factor = (double)(1 << LIMB);
    }
}

// The same in integers.
//
// T = v·2^(scale + 2·LIMB) is nearly always an integer, of at most 84 bits. Q = T / 2^LIMB, rounded to even, has the
// first two limbs, and the third is what it leaves of T. The first is Q / 2^LIMB, rounded; where that is halfway Q does
// not tell how v rounds. That, tiny values and the largest go by `next_limb`.
template <class Sum>
__device__ __forceinline__ void add_limbs_integer(Sum (&sums)[3], double v, const Power& scale) {
    const unsigned high = (unsigned)__double2hiint(v), low = (unsigned)__double2loint(v);
    const unsigned mantissa = (high & 0x000FFFFFu) | 0x00100000u;
    const unsigned shift = (high >> 20) + (unsigned)(scale.exponent + 2 * LIMB - 1075);  // T = mantissa << shift
    const unsigned by = shift & 31u;
    const word T = ((word)mantissa << 32 | low) << by;  // its lowest 64 bits,
    const word top = (word)mantissa << by >> 32;        // and the others
    word Q = T >> LIMB | top << (64 - LIMB);
    const unsigned left = (unsigned)T << (32 - LIMB) | ((unsigned)Q & 1u);
    Q += left > 0x80000000u;
    const word up = Q + (1u << (LIMB - 1));
    if (shift < 32u && high >= 0x00100000u && ((unsigned)up & ((1u << LIMB) - 1u)) != 0u) {  // share: 1
        const unsigned first = (unsigned)(up >> LIMB);
        sums[0] += (Sum)first;
        sums[1] += (int)((unsigned)Q - (first << LIMB));
        sums[2] += (int)((unsigned)T - ((unsigned)Q << LIMB));
    } else if (v != 0.0) {  // share: 0
        double rest = __dmul_rn(v, scale.factor);
#pragma unroll
        for (int limb = 0; limb < 3; ++limb) sums[limb] += (Sum)next_limb(rest);
    }
}

template <class Sum>
__device__ __forceinline__ void add_limbs(Sum (&sums)[3], double v, const Power& scale) {
#if DOUBLES_ARE_SLOW
    add_limbs_integer(sums, v, scale);
#else
    add_limbs_double(sums, v, scale);
#endif
}

// The high word of v·2^scale where its exponent has the bias of float32; above the value's where that is below 2^-1022.
__device__ __forceinline__ int rebiased(double v, const Power& scale) {
    return (int)((unsigned)__double2hiint(v) + ((unsigned)(scale.exponent - 896) << 20));
}

// The bits of (float)(v·2^scale), v >= 0.
__device__ __forceinline__ unsigned key_of(double v, const Power& scale) {
    const int high = rebiased(v, scale);
    if (high < 0x00100000 || high >= 0x0FF00000 || __double2hiint(v) < 0x00100000)  // share: 0
        return v == 0.0 ? 0u : float_bits(__dmul_rn(v, scale.factor));
    const unsigned low = (unsigned)__double2loint(v), bits = (unsigned)high << 3 | low >> 29;
    return bits + ((low << 3 | (bits & 1u)) > 0x80000000u);
}

// The sum of a value over the lanes of a whole warp, in lane 0.
__device__ __forceinline__ idx warp_sum(idx value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xFFFFFFFFu, value, step);
    return value;
}
