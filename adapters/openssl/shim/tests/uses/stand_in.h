/* A stand-in for the provider, on any CPU: its jobs compute nothing, and end when a pass runs. They are
 * submitted by callbacks in which a server may fail, so that a handshake can be suspended in each of them.
 * The tables are those of adapters/openssl/tables/src/lib.rs. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/close_range.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct passes {
    size_t size;
    size_t (*turn)(int any);
    size_t (*waiting)(void);
    unsigned long (*submitted)(void);
    void (*prepare_keys)(int at_once);
    void (*prepare)(void);
    int (*lanes_are_off)(void);
    int (*shortens_queues)(void);
    void (*overload)(int news, unsigned waited);
    void (*way)(unsigned number);
};

struct suspension {
    size_t size;
    void *(*current)(void);
    int (*suspend)(void *);
    void (*wake)(void *);
    void (*attach)(const struct passes *);
    size_t (*take_imports)(void);
};

struct job {
    void *handshake;
    int done;
    struct job *next;
};

static const struct suspension *library;
static __thread struct job *jobs;
static __thread size_t job_count;
static __thread unsigned long job_total;
static int suspensions;

/* Jobs of a full pass. */
static size_t full = 4;

static size_t turn(int any)
{
    struct job *job = jobs;
    size_t carried = job_count;

    if (carried == 0 || (!any && carried < full))
        return 0;
    jobs = NULL;
    job_count = 0;
    while (job != NULL) {
        struct job *next = job->next;

        job->done = 1;
        library->wake(job->handshake);
        job = next;
    }
    return carried;
}

static size_t waiting(void)
{
    return job_count;
}

static unsigned long submitted(void)
{
    return job_total;
}

static void prepare_keys(int at_once)
{
    (void)at_once;
}

static void prepare(void)
{
}

static int lanes_are_off(void)
{
    return 0;
}

static int queues_are_short = 1;

static int shortens_queues(void)
{
    return queues_are_short;
}

/* Number of events of each kind from the library: begins, ends, gone, refused, served. */
static unsigned news_of_overload[5];

static void count_overload(int news, unsigned waited)
{
    (void)waited;
    news_of_overload[news]++;
}

/* A bit for each way that the library has told of, by its number in crates/status/src/way.rs. */
static unsigned ways_told;

static void note_way(unsigned number)
{
    __atomic_fetch_or(&ways_told, 1u << number, __ATOMIC_RELAXED);
}

static const struct passes passes = {
    sizeof passes, turn, waiting, submitted, prepare_keys, prepare, lanes_are_off, shortens_queues, count_overload,
    note_way
};

static void attach(void)
{
    library = dlsym(RTLD_DEFAULT, "widelane_suspension_1");
    if (library != NULL)
        library->attach(&passes);
}

/* Waits for a pass on the handshake's stack. 0 if the handshake is being ended. */
__attribute__((unused)) static int wait_for_pass(void)
{
    void *handshake = library == NULL ? NULL : library->current();
    struct job job = { handshake, 0, jobs }, **place;
    pid_t process = getpid();
    int go_on = 1;

    if (handshake == NULL)
        return 1;
    jobs = &job;
    job_count++;
    job_total++;
    suspensions++;
    /* A forked process has none of its parent's jobs: it computes by itself. */
    while (!job.done && go_on && getpid() == process)
        go_on = library->suspend(handshake);
    for (place = &jobs; *place != NULL && !job.done; place = &(*place)->next) {
        if (*place == &job) {
            *place = job.next;
            job_count--;
            break;
        }
    }
    return go_on;
}
