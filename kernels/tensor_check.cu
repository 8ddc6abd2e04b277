// tensor_check: whether a product on tensor cores is what plain arithmetic gives. A fragment that is laid out otherwise
// than tensor.cuh says would give wrong scores that no bound of doubt notices.
#include "tensor.cuh"

// Entries of the factors: small integers, so that all sums are exact. 8 rows on is another than 8 depths on.
__device__ __forceinline__ float entry(int row, int depth, int salt) {
    return (float)((row * 37 + depth * 99 + salt * 17) % 64 - 31);
}

// wrong (1) in/out, += sums that differ, also of halves so small that they are denormal. grid = (1), block = (32).
extern "C" __global__ void tensor_check(int* wrong) {
    const int lane = threadIdx.x;
    int different = 0;
#pragma unroll
    for (int small = 0; small < 2; ++small) {
        const float unit = small ? 5.9604644775390625e-8f : 1.0f;  // 2^-24, the least half
        uint4 a;
        a.x = halves_of(unit * entry(row_of_a(lane, 0), depth_of_a(lane, 0), 1), unit * entry(row_of_a(lane, 0), depth_of_a(lane, 0) + 1, 1));
        a.y = halves_of(unit * entry(row_of_a(lane, 1), depth_of_a(lane, 1), 1), unit * entry(row_of_a(lane, 1), depth_of_a(lane, 1) + 1, 1));
        a.z = halves_of(unit * entry(row_of_a(lane, 2), depth_of_a(lane, 2), 1), unit * entry(row_of_a(lane, 2), depth_of_a(lane, 2) + 1, 1));
        a.w = halves_of(unit * entry(row_of_a(lane, 3), depth_of_a(lane, 3), 1), unit * entry(row_of_a(lane, 3), depth_of_a(lane, 3) + 1, 1));
        unsigned b[2];
#pragma unroll
        for (int w = 0; w < 2; ++w)
            b[w] = halves_of(entry(column_of_b(lane), depth_of_b(lane, w), 2), entry(column_of_b(lane), depth_of_b(lane, w) + 1, 2));
        float once[4], twice[4];
        multiply(once, a, b[0], b[1], make_float4(3 * unit, -7 * unit, 3 * unit, -7 * unit));
#pragma unroll
        for (int i = 0; i < 4; ++i) twice[i] = once[i];
        multiply_add(twice, a, b[0], b[1]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float sum = 0;
            for (int j = 0; j < 16; ++j) sum += entry(row_of_sum(lane, i), j, 1) * entry(column_of_sum(lane, i), j, 2);
            const float first = i % 2 ? -7.0f : 3.0f;
            different += !(once[i] == unit * (sum + first)) + !(twice[i] == unit * (2 * sum + first));
        }
    }
    if (different) atomicAdd(wrong, different);
}
