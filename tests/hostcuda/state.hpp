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
    enum { RUNNABLE, WAITING, PAUSED, DONE } state;
    Fiber* fiber;
    // where and for what it waits
    Kind kind;
    unsigned mask;
    int source, line;
    unsigned long long value, result;
    // Which accesses of its warp's lanes this thread is ordered after: a vector clock that __syncwarp joins.
    uint32_t clock[32];
    uint64_t steps;  // accesses, where requests are counted
};

// What warps ask of memory, see requests.cpp; in the order of Python's _hostcuda.REQUESTS.
struct Counters {
    uint64_t load_requests, load_sectors, load_least, store_requests, store_sectors, store_least, atomic_requests,
        atomic_sectors, atomic_least, atomic_turns, atomic_worst, shared_requests, shared_wavefronts,
        shared_atomic_requests, shared_atomic_turns, shared_atomic_worst, requests, active_lanes;
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
extern bool counting;      // requests are counted
extern Counters counters;  // of the launch
void count_requests(const void* place, bool shared, uint64_t address, size_t bytes, int access);
void begin_requests();                                   // a launch begins
void lanes_together(unsigned warp);                      // at a barrier or a collective, or at their end
void lanes_passed(unsigned warp, unsigned lanes);        // all others wait; these stand where they are
void pace();                                             // the current lane waits for the others of its warp
void forget_shared();  // a block begins: nothing is written in its shared memory

[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string name_of(const Thread& t);
std::string name_of(uint3 v);
#pragma GCC visibility pop
}  // namespace hostcuda
