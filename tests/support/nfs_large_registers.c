/* Lets a user-mode Linux kernel set the registers of the processes that it traces, on any processor.
 *
 * The host accepts extended registers only in the full size of its processor (ptrace(2), PTRACE_SETREGSET with
 * NT_X86_XSTATE). User-mode Linux 6.1 passes the size that was known when it was built. On processors with more
 * registers, such as AMX, the call then returns EFAULT, and the kernel panics. This library reads the present registers
 * and overwrites their first bytes with the given ones.
 * It is preloaded. One thread calls it, but a signal handler may call it too, so each call has a separate buffer. */
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BUFFERS = 16, LARGEST_BYTES = 16384 };

static char buffers[BUFFERS][LARGEST_BYTES] __attribute__((aligned(64)));
static char taken[BUFFERS];

static long set_whole(long process, long kind, const struct iovec *given)
{
    for (int i = 0; i < BUFFERS; i++) {
        if (__atomic_test_and_set(&taken[i], __ATOMIC_ACQUIRE))
            continue;
        struct iovec whole = {buffers[i], LARGEST_BYTES};
        long answer = syscall(SYS_ptrace, PTRACE_GETREGSET, process, kind, &whole);
        if (answer == 0) {
            memcpy(buffers[i], given->iov_base, given->iov_len < whole.iov_len ? given->iov_len : whole.iov_len);
            answer = syscall(SYS_ptrace, PTRACE_SETREGSET, process, kind, &whole);
        }
        __atomic_clear(&taken[i], __ATOMIC_RELEASE);
        return answer;
    }
    return syscall(SYS_ptrace, PTRACE_SETREGSET, process, kind, given);
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list others;
    va_start(others, request);
    long process = va_arg(others, long), address = va_arg(others, long);
    void *data = va_arg(others, void *);
    va_end(others);
    if (request == PTRACE_SETREGSET)
        return set_whole(process, address, data);
    /* As in the C library: for a peek, the system call writes the word to memory, and this function returns it. */
    int peeks = request >= PTRACE_PEEKTEXT && request <= PTRACE_PEEKUSER;
    long word, answer = syscall(SYS_ptrace, request, process, address, peeks ? (void *)&word : data);
    return peeks && answer == 0 ? word : answer;
}
