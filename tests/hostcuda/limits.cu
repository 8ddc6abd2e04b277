// For tests/backend/test_hostcuda_limits.py: a kernel that takes much shared memory, and one that takes long.
extern "C" __global__ void fill_shared(int* out, int words) {
    __shared__ int own[10 << 10];
    int* more = (int*)hostcuda_dynamic_shared();
    own[threadIdx.x] = 1;
    for (int i = threadIdx.x; i < words; i += blockDim.x) more[i] = 1;
    __syncthreads();
    if (threadIdx.x == 0) *out = own[31] * (words ? more[words - 1] : 1);
}
extern "C" __global__ void count_up(volatile int* a, int times) {
    for (int i = 0; i < times; ++i) *a = *a + 1;
}
