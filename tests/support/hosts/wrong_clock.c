/* Sleeps by a system call: libfaketime 0.9.10 refuses absolute sleeps on a clock that it must not change. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *asked, struct timespec *left)
{
    return syscall(SYS_clock_nanosleep, clock, flags, asked, left) == 0 ? 0 : errno;
}
