/*
 * Calls everything in the header. Its arguments: pool, inline or migrate; the vector core; and how
 * it is configured: explicit (by a call), variable (the first widelane_run_wide reads it), or
 * mistake (the variable is wrong).
 */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <widelane.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, widelane_last_error());     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct seen {
    pthread_t thread;
    int cpu;
    int error;
};

static int look(void *argument) {
    struct seen *seen = argument;
    seen->thread = pthread_self();
    seen->cpu = sched_getcpu();
    seen->error = errno;
    errno = ENOTTY;
    return 42;
}

static int nested(void *argument) {
    struct seen *seen = argument;
    int result = 0;
    CHECK(widelane_run_wide(look, seen, &result) == WIDELANE_OK);
    return pthread_equal(seen->thread, pthread_self()) ? result : -1;
}

int main(int count, char **arguments) {
    struct seen seen;
    int result = 7, status = 0, pool, wide, vector, elsewhere;
    pid_t child;

    CHECK(count == 4);
    pool = strcmp(arguments[1], "pool") == 0;
    wide = strcmp(arguments[1], "inline") != 0;
    vector = atoi(arguments[2]);

    CHECK(widelane_run_wide(NULL, &seen, &result) == WIDELANE_INVALID && result == 7);
    CHECK(strstr(widelane_last_error(), "NULL"));
    CHECK(widelane_configure("everywhere") == WIDELANE_INVALID);
    CHECK(strstr(widelane_last_error(), "everywhere"));
    CHECK(widelane_configure("pool:1023") == WIDELANE_UNAVAILABLE);
    CHECK(strstr(widelane_last_error(), "CPU 1023"));

    if (strcmp(arguments[3], "explicit") == 0) {
        CHECK(widelane_configure(NULL) == WIDELANE_OK);
        CHECK(widelane_configure("inline") == WIDELANE_CONFIGURED);
    } else if (strcmp(arguments[3], "mistake") == 0) {
        CHECK(widelane_configure(NULL) == WIDELANE_INVALID);
        CHECK(strstr(widelane_last_error(), "WIDELANE_RUN_WIDE: "));
    }
    errno = EDOM;

    CHECK(widelane_run_wide(look, &seen, &result) == WIDELANE_OK);
    CHECK(result == 42 && seen.error == EDOM && errno == ENOTTY);
    elsewhere = !pthread_equal(seen.thread, pthread_self());
    CHECK(elsewhere == pool);
    CHECK(!wide || seen.cpu == vector);
    errno = EDOM;
    CHECK(widelane_configure("inline") == WIDELANE_CONFIGURED && errno == EDOM);
    CHECK(widelane_run_wide(look, &seen, NULL) == WIDELANE_OK);
    CHECK(widelane_run_wide(nested, &seen, &result) == WIDELANE_OK && result == 42);

    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        result = 0;
        if (widelane_run_wide(look, &seen, &result) != WIDELANE_OK || result != 42) _exit(2);
        _exit(pthread_equal(seen.thread, pthread_self()) ? 0 : 3);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(widelane_run_wide(look, &seen, &result) == WIDELANE_OK && result == 42);
    puts("all well");
    return 0;
}
