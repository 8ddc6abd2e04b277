// Addressed random words, those of NumPy's Philox (core.random). QUAD, the words in a block of it, is a macro.
#pragma once
#include "common.cuh"

// Philox4x64-10 (Salmon et al. 2011): block number `block` of the stream (seed, restart, purpose, step). NumPy counts
// from one. See core.random.words.
__device__ __forceinline__ void draw(word out[QUAD], word block, word step, word purpose, word seed, word restart) {
    word c0 = block + 1, c1 = 0, c2 = step, c3 = purpose;
#pragma unroll 2  // all ten would keep the keys of all rounds in registers
    for (int round = 0; round < 10; ++round) {
        const word low0 = 0xD2E7470EE14C6C93ull * c0, high0 = __umul64hi(0xD2E7470EE14C6C93ull, c0);
        const word low1 = 0xCA5A826395121157ull * c2, high1 = __umul64hi(0xCA5A826395121157ull, c2);
        c0 = high1 ^ c1 ^ seed;
        c2 = high0 ^ c3 ^ restart;
        c1 = low1;
        c3 = low0;
        seed += 0x9E3779B97F4A7C15ull;
        restart += 0xBB67AE8584CAA73Bull;
    }
    out[0] = c0; out[1] = c1; out[2] = c2; out[3] = c3;
}

// drawn[c], without an address: the words stay in registers.
__device__ __forceinline__ word pick(const word drawn[QUAD], int c) {
    return c < 2 ? (c == 0 ? drawn[0] : drawn[1]) : (c == 2 ? drawn[2] : drawn[3]);
}
