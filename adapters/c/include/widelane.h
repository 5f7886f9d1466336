/* Widelane: wide vector code, run on the cores that are set aside for it. */

#ifndef WIDELANE_H
#define WIDELANE_H

#ifdef __cplusplus
extern "C" {
#endif

/* What the functions return. */
enum {
    WIDELANE_OK = 0,
    /* An argument, or the variable WIDELANE_RUN_WIDE, makes no sense. */
    WIDELANE_INVALID = 1,
    /* The process is configured already. */
    WIDELANE_CONFIGURED = 2,
    /* A CPU cannot be a vector core, or its thread could not be started. */
    WIDELANE_UNAVAILABLE = 3,
    /* The function was written in Rust, and panicked. */
    WIDELANE_PANICKED = 4
};

/*
 * Runs function(argument) where this process runs wide code, waits for its end, and stores what it
 * returned in *result, unless result is NULL. Where that is: as widelane_configure was told, else
 * as the environment variable WIDELANE_RUN_WIDE says, else in place.
 *
 * A call within a call runs in place. errno is that of the caller when the function starts, and
 * that of the function afterwards. In the pool form the function is on another thread: with that
 * thread's thread-local variables and floating-point environment. It must return: by no exception,
 * longjmp or pthread_exit: none of these may leave it. It should start no threads that live on, and
 * must not wait for another thread that calls widelane_run_wide. After fork the child runs
 * everything in place. Not to be called in a signal handler.
 *
 * WIDELANE_OK, WIDELANE_INVALID if function is NULL, WIDELANE_PANICKED; *result is stored with
 * WIDELANE_OK only.
 */
int widelane_run_wide(int (*function)(void *), void *argument, int *result);

/*
 * Sets how this process runs wide code: "inline", "pool:2-3" (threads pinned to these CPUs) or
 * "migrate:2-3" (the calling thread moves there and back). NULL: as WIDELANE_RUN_WIDE says. Once,
 * before the first call of widelane_run_wide. Leaves errno alone.
 */
int widelane_configure(const char *form);

/*
 * Why the last call on this thread that failed did so: which argument, which CPU, what to do. Valid
 * until another call on this thread fails. Never NULL.
 */
const char *widelane_last_error(void);

/* What code asks of a CPU that lowers its clock for wide code. */
enum {
    /* Neither of these. */
    WIDELANE_NOT_WIDE = 0,
    /* Code in 512-bit registers that hardly multiplies; in 256-bit registers, code that multiplies
       integers or works on floating-point numbers all the time. */
    WIDELANE_LEVEL_1 = 1,
    /* Code in 512-bit registers that multiplies integers or works on floating-point numbers all the
       time. */
    WIDELANE_LEVEL_2 = 2
};

/*
 * The calling thread runs code of this level from here on, until it calls this again; with
 * WIDELANE_NOT_WIDE when the code has ended. It marks where wide code runs for `widelane-lab emulate`,
 * which makes this machine behave as another model does. Outside of it this is one relaxed load. What
 * widelane_run_wide runs is marked by itself, as WIDELANE_LEVEL_2. Leaves errno alone. Not to be
 * called in a signal handler.
 */
static inline void widelane_mark_wide(int level);

/* The two parts of widelane_mark_wide. Not to be used by themselves. */
extern unsigned char widelane_unbraked;
void widelane_mark_wide_now(int level);

static inline void widelane_mark_wide(int level)
{
    if (!__atomic_load_n(&widelane_unbraked, __ATOMIC_RELAXED))
        widelane_mark_wide_now(level);
}

#ifdef __cplusplus
}
#endif

#endif
