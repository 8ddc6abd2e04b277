// mma.sync.m16n8k16 on halves, as the PTX manual lays out its fragments: products are exact, sums are aligned and
// truncated as Volta, the worst known, does it.
#pragma once
#include <cmath>
#include "state.hpp"

namespace hostcuda {
enum Mma : int { TRUNCATED, WORST, WRONG_LAYOUT };  // WORST: as wrong as 3 k 2^-24 sum |a b| allows, of random sign

inline double half_value(unsigned bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                        : exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
    return bits >> 15 & 1 ? -size : size;
}

inline unsigned half_bits(float v) {  // rounded to nearest, ties to even; denormal halves are kept
    const unsigned sign = std::signbit(v) ? 0x8000 : 0;
    const double size = std::fabs((double)v);
    if (std::isnan(v)) return 0x7FFF;
    if (size >= 65520) return sign | 0x7C00;
    const int exponent = size < 0x1p-14 ? -14 : std::ilogb(size);
    // The hidden bit and the carry of rounding both add to the exponent, as they should.
    const unsigned whole = (unsigned)std::rint(std::ldexp(size, 10 - exponent));
    return sign | (whole < 1024 ? whole : (unsigned)(exponent + 14) * 1024 + whole);
}

inline double truncated(double v, double quantum) { return (double)(long long)(v / quantum) * quantum; }
inline double quantum_of(double v) { return std::ldexp(1.0, std::ilogb(v) - 23); }

// c + the products, c first.
template <class Draw> float sum_of(const double (&terms)[17], int mode, Draw draw) {
    double size = 0, most = 0, total = 0;
    for (double t : terms) total += t, size += std::fabs(t), most = std::fmax(most, std::fabs(t));
    if (!std::isfinite(size) || most == 0) return (float)total;
    if (mode == WORST) {  // rounding to a float takes two of 3 * 16 units
        total += (draw() & 1 ? 46 : -46) * 0x1p-24 * size;
    } else {
        const double quantum = quantum_of(most);
        total = 0;
        for (double t : terms) total += truncated(t, quantum);
    }
    return total == 0 ? 0.0f : (float)truncated(total, quantum_of(total));
}

template <class Draw> void multiply(Thread* lanes, int mode, Draw draw) {
    double a[16][16], b[16][8];
    for (int l = 0; l < 32; l++) {
        const Fragments& mine = *(const Fragments*)lanes[l].value;
        const int g = l / 4, t = l % 4;
        for (int h = 0; h < 2; h++) {
            for (int w = 0; w < 4; w++) {
                const int down = mode == WRONG_LAYOUT ? w >> 1 : w & 1, right = mode == WRONG_LAYOUT ? w & 1 : w >> 1;
                a[g + 8 * down][2 * t + 8 * right + h] = half_value(mine.a[w] >> 16 * h & 0xFFFF);
            }
            for (int w = 0; w < 2; w++) b[2 * t + 8 * w + h][g] = half_value(mine.b[w] >> 16 * h & 0xFFFF);
        }
    }
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) {
            float& sum = ((Fragments*)lanes[l].value)->sum[i];
            const int row = l / 4 + 8 * (i >> 1), column = 2 * (l % 4) + (i & 1);
            double terms[17] = {sum};
            for (int k = 0; k < 16; k++) terms[k + 1] = a[row][k] * b[k][column];
            sum = sum_of(terms, mode, draw);
        }
}
}  // namespace hostcuda
