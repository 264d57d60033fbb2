/* Sleeps by the kernel: libfaketime 0.9.10 refuses the absolute moments of a clock that it is to leave alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *asked, struct timespec *left)
{
    return syscall(SYS_clock_nanosleep, clock, flags, asked, left) == 0 ? 0 : errno;
}
