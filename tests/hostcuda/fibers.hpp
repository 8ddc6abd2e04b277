// Fibers: stacks that one system thread switches between. A switch stores the registers that a function call
// must keep, exchanges the stack pointer, and returns on the other stack; ucontext does the same with two system
// calls more, and is what any processor but x86-64 gets.
#pragma once
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

namespace hostcuda {
constexpr size_t STACK_BYTES = 256 << 10;  // virtual; the lowest page is a guard

#if defined(__x86_64__) && !defined(HOSTCUDA_UCONTEXT)
extern "C" void hostcuda_switch(void** save, void* load);
asm(R"(
.text
.globl hostcuda_switch
.type hostcuda_switch, @function
hostcuda_switch:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
.size hostcuda_switch, .-hostcuda_switch
)");
struct Context {
    void* top = nullptr;
    void start(char* stack, void (*body)()) {
        void** p = (void**)(stack + STACK_BYTES) - 8;  // six registers, the body to "return" to, and its return
        p[6] = (void*)body, p[7] = nullptr;            // address: the stack is then aligned as after a call
        top = p;
    }
    void switch_to(Context& other) { hostcuda_switch(&top, other.top); }
};
#else
struct Context {
    ucontext_t context;
    void start(char* stack, void (*body)()) {
        getcontext(&context);
        context.uc_stack.ss_sp = stack, context.uc_stack.ss_size = STACK_BYTES, context.uc_link = nullptr;
        makecontext(&context, body, 0);
    }
    void switch_to(Context& other) { swapcontext(&context, &other.context); }
};
#endif

struct Fiber {
    Context context;
    char* stack;
};

// All fibers ever made. They are kept between blocks and launches: a fiber whose thread has ended takes the next.
struct FiberPool {
    std::vector<Fiber*> all, idle;

    Fiber* take(void (*body)()) {
        if (idle.empty()) {
            char* stack = (char*)mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
            mprotect(stack, (size_t)getpagesize(), PROT_NONE);
            all.push_back(new Fiber{{}, stack});
            all.back()->context.start(stack, body);
            return all.back();
        }
        Fiber* fiber = idle.back();  // last in, first out: a fiber that just went idle serves the next thread itself
        idle.pop_back();
        return fiber;
    }
    // After a failed launch: forget what was running, wherever it stood.
    void abandon(void (*body)()) {
        for (Fiber* fiber : all) {
            if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(fiber->stack, STACK_BYTES);
            fiber->context.start(fiber->stack, body);
        }
        idle = all;
    }
};
}  // namespace hostcuda
