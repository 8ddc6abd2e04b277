// What the scheduler (runtime.cpp) and the access checks (hooks.cpp) know of the running launch.
#pragma once
#include <cstdint>
#include <string>
#include <sys/mman.h>
#include <vector>
#include "cuda_host.hpp"

extern "C" {  // the sanitizer of the HOSTCUDA_SANITIZE build, if it is loaded
void __asan_poison_memory_region(const volatile void*, size_t) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void*, size_t) __attribute__((weak));
}

namespace hostcuda {
struct Fiber;
constexpr size_t SHARED_LIMIT = 256 << 10, REDZONE = 64 << 10;

struct Thread {
    uint3 index;
    unsigned linear, warp, lane;
    enum { RUNNABLE, WAITING, DONE } state;
    Fiber* fiber;
    // where and for what it waits
    Kind kind;
    unsigned mask;
    int source, line;
    unsigned long long value, result;
    // Which accesses of its warp's lanes this thread is ordered after: a vector clock that __syncwarp joins.
    uint32_t clock[32];
};

struct BlockRecord { uint64_t first_epoch, fenced_epoch, number; };

struct Launch {
    const Kernel* kernel;
    void** arguments;
    uint3 grid, block;
    size_t dynamic_bytes;
    char* static_shared;  // the module's thread-local segment holds its __shared__ variables and nothing else
    size_t static_bytes;
    uint64_t loaded, stored, atomics, atomic_bytes;
    uint64_t accesses;  // of global and shared memory: how long the launch is
    // An epoch is the time between two barriers of a block. Blocks run one after the other and numbers never
    // repeat, so an epoch also tells block and launch.
    uint64_t epoch, first_epoch;
    uint3 block_index;
    std::vector<BlockRecord> blocks;
    bool acquired;  // this block has done an atomic: it may read what other blocks wrote before a fence
    std::string error;
};

#pragma GCC visibility push(hidden)  // reached directly, not through a table
extern Launch launch;
extern Thread* current;
extern std::vector<Thread> threads;
extern char* dynamic_shared;  // SHARED_LIMIT bytes between two redzones
extern bool global_races;
extern uint64_t watchdog;  // accesses after which a launch is ended
void forget_shared();  // a block begins: nothing is written in its shared memory

[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string name_of(const Thread& t);
std::string name_of(uint3 v);
#pragma GCC visibility pop
}  // namespace hostcuda
