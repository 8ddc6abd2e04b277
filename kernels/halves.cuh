// Centres as halves, in the order in which assign_tensor multiplies them.
#pragma once
#include "tensor.cuh"

// Writes the halves of centre a of restart s, -2 (c - offset) · unit, and its squared norm; by all lanes of a warp.
//
// A stage has `tile` centres and `stage_steps` steps of 16 coordinates. Its words are fragments of 16 centres: a lane has
// four of them, of two tiles of 8 centres and of four coordinates that are neighbours. What is padding stays as it is.
__device__ __forceinline__ void write_halves(const double* center, const HalfCenters& halves, const double* offset,
                                             idx s, int a, int d) {
    const int lane = threadIdx.x % 32, steps = halves.stage_steps, pairs = halves.tile / 16;
    const int stage_words = halves.parts * pairs * steps * 128;
    const idx first = (s * (halves.padded / halves.tile) + a / halves.tile) * halves.stages;
    const int column = a % halves.tile;
    double norm = 0.0;
#pragma unroll 1
    for (int p = lane; 2 * p < d; p += 32) {  // trips: ceil(d / 64)
        const double x = (center[2 * p] - offset[2 * p]) * halves.unit;
        const double y = 2 * p + 1 < d ? (center[2 * p + 1] - offset[2 * p + 1]) * halves.unit : 0.0;
        norm += x * x + y * y;
        const int step = p / 8, at = (column % 8 * 4 + p % 8 / 2) * 4 + column / 8 % 2 * 2 + p % 2;
        unsigned* stage = halves.words + (first + step / steps) * stage_words;
        float u = (float)(-2 * x), v = (float)(-2 * y);
#pragma unroll 1
        for (int w = 0; w < halves.parts; ++w) {  // trips: 1; two where halves are doubled
            const unsigned both = halves_of(u, v);
            stage[((w * pairs + column / 16) * steps + step % steps) * 128 + at] = both;
            u -= low_half(both);
            v -= high_half(both);
        }
    }
#pragma unroll
    for (int far = 16; far > 0; far /= 2) norm += __shfl_xor_sync(0xFFFFFFFFu, norm, far);
    if (lane == 0) halves.norms[s * halves.padded + a] = (float)norm;
}
