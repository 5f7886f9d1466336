/* To be preloaded: the program that has it rounds upwards and takes a signal at each floating-point exception,
 * inexact results included. It ends where that is otherwise when it waits for events. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <xmmintrin.h>

static int (*next)(int, struct epoll_event *, int, int);
static unsigned expected;

__attribute__((constructor)) static void begin(void)
{
    next = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    feclearexcept(FE_ALL_EXCEPT);
    fesetround(FE_UPWARD);
    feenableexcept(FE_ALL_EXCEPT);
    _mm_setcsr(_mm_getcsr() | FE_UNDERFLOW);
    expected = _mm_getcsr();
    fprintf(stderr, "rounds upwards\n");
}

int epoll_wait(int instance, struct epoll_event *events, int most, int longest)
{
    if (_mm_getcsr() != expected) {
        fprintf(stderr, "MXCSR is %x and was %x\n", _mm_getcsr(), expected);
        abort();
    }
    return next(instance, events, most, longest);
}
