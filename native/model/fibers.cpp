// An execution's heap, and the switch between its fibers.
#include "machine.hpp"

#include <cstdlib>
#include <new>

// ---- memory of one execution: a heap that is forgotten as a whole, so that abandoned fibers cost nothing ----

namespace penstock::model {

uint8_t *heap_base = nullptr;
size_t heap_used = 0;
bool heap_on = false;

HeapOff::HeapOff() : before_(heap_on) { heap_on = false; }
HeapOff::~HeapOff() { heap_on = before_; }

} // namespace penstock::model

namespace {

using namespace penstock::model;

void *allocate(size_t size) {
    if (!heap_on) {
        void *at = std::malloc(size == 0 ? 1 : size);
        if (at == nullptr) throw std::bad_alloc();
        return at;
    }
    void *at = heap_base + heap_used;
    heap_used += (size + 15) & ~size_t{15};
    if (heap_used > heap_size) std::abort();
    return at;
}
void release(void *at) {
    const auto *byte = static_cast<uint8_t *>(at);
    if (heap_base != nullptr && byte >= heap_base && byte < heap_base + heap_size) return;
    std::free(at);
}

} // namespace

void *operator new(size_t size) { return allocate(size); }
void *operator new[](size_t size) { return allocate(size); }
void operator delete(void *at) noexcept { release(at); }
void operator delete[](void *at) noexcept { release(at); }
void operator delete(void *at, size_t) noexcept { release(at); }
void operator delete[](void *at, size_t) noexcept { release(at); }

// ---- fibers: a switch saves what the calling convention asks for ----

#if defined(__x86_64__)
asm(R"(
.text
.globl penstock_model_switch
.type penstock_model_switch,@function
penstock_model_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size penstock_model_switch,.-penstock_model_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl penstock_model_switch
penstock_model_switch:
    sub sp, sp, #176
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #176
    ret
)");
#else
#error "the checker's fibers know x86-64 and AArch64"
#endif
