"""The errors of CUDA's two interfaces."""

NAMES = {
    1: "cudaErrorInvalidValue: invalid argument",
    2: "cudaErrorMemoryAllocation: out of memory",
    3: "cudaErrorInitializationError: initialization error",
    35: "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version",
    100: "cudaErrorNoDevice: no CUDA-capable device is detected",
    101: "cudaErrorInvalidDevice: invalid device ordinal",
    401: "cudaErrorIllegalState: the operation cannot be performed in the present state",
    719: "cudaErrorLaunchFailure: unspecified launch failure",
    900: "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing",
    901: "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error during capture",
}


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        self.status = status
        super().__init__(NAMES.get(status, f"cudaError {status}"))


class CUDADriverError(RuntimeError):
    def __init__(self, status):
        self.status = status
        super().__init__({1: "CUDA_ERROR_INVALID_VALUE: invalid argument",
                          500: "CUDA_ERROR_NOT_FOUND: named symbol not found"}[status])  # fmt: skip
