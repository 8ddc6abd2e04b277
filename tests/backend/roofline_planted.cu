// Kernels whose multiply-adds and requests are worked out by hand (test_roofline.py). A thread has its own row of `a`.
extern "C" __global__ void whole(const float* a, float* out, int n) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 24; ++i) sum += a[i * 32 + threadIdx.x] * a[threadIdx.x];
    out[threadIdx.x] = sum;
}

extern "C" __global__ void in_part(const float* a, float* out, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += a[i * 32 + threadIdx.x] * a[threadIdx.x];
    out[threadIdx.x] = sum;
}

extern "C" __global__ void twice(const float* a, const float* weight, float* out, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) {
        float v = a[i * 32 + threadIdx.x];
        if (weight)
            v *= weight[i];
        sum += v * a[threadIdx.x];
    }
    out[threadIdx.x] = sum;
}

extern "C" __global__ void nested(const float* a, float* out, int n, int m) {
    for (int i = 0; i < n; ++i) {
        float sum = 0;
        for (int j = 0; j < m; ++j) sum += a[(i * m + j) * 32 + threadIdx.x] * a[threadIdx.x];
        out[i * 32 + threadIdx.x] = sum;
    }
}

extern "C" __global__ void halved(const float* a, float* out, int n) {
    float sum = 0;
    int left = n;
    while (left > 0) {  // trips: ceil(log2(n + 1))
        sum += a[left * 32 + threadIdx.x] * a[threadIdx.x];
        left >>= 1;
    }
    out[threadIdx.x] = sum;
}

extern "C" __global__ void divergent(const float* a, float* out, int n) {
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
        const float v = a[i * 32 + threadIdx.x];
        if (v > 1e30f) {  // share: warp(doubt)
#pragma unroll 1
            for (int j = 0; j < 50; ++j) sum += a[(i + j) * 32] * v;
        }
        sum += v * a[threadIdx.x];
    }
    out[threadIdx.x] = sum;
}

extern "C" __global__ void banks(const float* a, float* out, int n) {
    __shared__ float4 tile[256];
    __shared__ float words[32 * 32];
    for (int t = threadIdx.x; t < 256; t += blockDim.x)
        tile[t] = ((const float4*)a)[t];
    for (int t = threadIdx.x; t < 1024; t += blockDim.x)
        words[t] = a[t];
    __syncthreads();
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
        const float4 c = tile[i];
        sum += c.x * c.y + c.z * c.w;
    }
#pragma unroll 1
    for (int i = 0; i < n; ++i)
        sum += words[threadIdx.x * 32 + i] * 3.0f;
    out[threadIdx.x] = sum;
}
