/* A server whose queue of connections overflows, with a clock of its own: the queue becomes short, only clients
 * that are still there are handed out, and afterwards all is as before. Ends with status 0 if all of that is so. */

#include "uses/stand_in.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>
#include <time.h>

#define USUAL 48
#define SHORT 32
#define CLIENTS 200

static int listener, clients[CLIENTS];
static struct sockaddr_in address;
static long milliseconds = 1000;
static int all_are_late;

#define CHECK(so) \
    do { \
        if (!(so)) { \
            fprintf(stderr, "line %d: not so: %s (errno %d)\n", __LINE__, #so, errno); \
            exit(1); \
        } \
    } while (0)

/* The library's clock. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock != CLOCK_MONOTONIC_COARSE)
        return syscall(SYS_clock_gettime, clock, now);
    now->tv_sec = milliseconds / 1000;
    now->tv_nsec = milliseconds % 1000 * 1000000;
    return 0;
}

/* Events of connections, as the library reports them. */
int getsockopt(int fd, int level, int option, void *restrict value, socklen_t *restrict len)
{
    int result = syscall(SYS_getsockopt, fd, level, option, value, len);

    if (result == 0 && level == IPPROTO_TCP && option == TCP_INFO && all_are_late)
        ((struct tcp_info *)value)->tcpi_last_data_recv = 501;
    return result;
}

static struct tcp_info info(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;

    CHECK(syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
    return info;
}

static unsigned limit(int fd)
{
    return info(fd).tcpi_sacked;
}

/* A client that has connected, or one whose attempt the kernel has dropped. */
static int client(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    CHECK(fd >= 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EINPROGRESS);
    return fd;
}

static void go_away(int fd)
{
    struct linger at_once = { 1, 0 };

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

/* More clients than the queue has room for. Those that are not in it go away at once. */
static int fill(void)
{
    int count = 0;

    for (int i = 0; i < USUAL + 10; i++) {
        int fd = client();

        if (info(fd).tcpi_state == TCP_ESTABLISHED && count < CLIENTS)
            clients[count++] = fd;
        else
            go_away(fd);
    }
    return count;
}

/* Overload begins; the clients that wait then are in `clients`, oldest first. */
static int overload(void)
{
    int count = fill();

    for (int i = 0; i < 5; i++) {
        int fd = accept(listener, NULL, NULL);

        CHECK(fd >= 0);
        close(fd);
        go_away(clients[0]);
        memmove(clients, clients + 1, --count * sizeof *clients);
        for (int more = 0; more < 4; more++) {
            int next = client();

            if (info(next).tcpi_state == TCP_ESTABLISHED)
                clients[count++] = next;
            else
                go_away(next);
        }
        milliseconds += 100;
    }
    return count;
}

/* Accepts all that wait. */
static void empty(int count)
{
    int fd;

    while ((fd = accept(listener, NULL, NULL)) >= 0)
        close(fd);
    CHECK(errno == EAGAIN);
    while (count > 0)
        go_away(clients[--count]);
}

/* Each client is served at once. */
static void calm(int times)
{
    while (times-- > 0) {
        int fd = client(), served;

        milliseconds += 100;
        served = accept(listener, NULL, NULL);
        CHECK(served >= 0);
        close(served);
        go_away(fd);
    }
}

static int from(int fd, const struct sockaddr_in *peer)
{
    struct sockaddr_in own;
    socklen_t len = sizeof own;

    CHECK(getsockname(fd, (struct sockaddr *)&own, &len) == 0);
    return own.sin_port == peer->sin_port;
}

/* Every other client goes away; the server gets the others only, each with its own address. */
static void only_living_ones(void)
{
    int count = overload(), next = 1, fd;
    unsigned *news = news_of_overload, gone = news[2], served = news[4];

    CHECK(limit(listener) == SHORT);
    CHECK(count > SHORT);
    CHECK(news[0] == 1 && news[1] == 0);
    for (int i = 0; i < count; i += 2) {
        if (i % 4 == 0)
            go_away(clients[i]);
        else
            shutdown(clients[i], SHUT_WR);
    }
    for (;;) {
        struct sockaddr_in peer;
        unsigned char part[16];
        socklen_t len = sizeof peer;

        errno = 0;
        fd = accept4(listener, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK);
        if (fd < 0)
            break;
        CHECK(next < count && len == sizeof peer && from(clients[next], &peer));
        CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
        close(fd);
        next += 2;
        if (next >= count)
            continue;
        /* With room for a part of the address. */
        memset(part, 0x55, sizeof part);
        len = 4;
        fd = accept(listener, (struct sockaddr *)part, &len);
        CHECK(fd >= 0 && len == sizeof peer && part[3] != 0x55 && part[4] == 0x55);
        len = sizeof peer;
        CHECK(getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && from(clients[next], &peer));
        close(fd);
        next += 2;
    }
    CHECK(errno == EAGAIN);
    CHECK(next >= count);
    CHECK(news[2] - gone == (count + 1U) / 2 && news[4] - served == count / 2U && news[3] == 0);
    for (int i = 0; i < count; i++) {
        if (i % 4 != 0)
            go_away(clients[i]);
    }
    calm(11);
    CHECK(limit(listener) == USUAL);
    CHECK(news[0] == 1 && news[1] == 1);
}

/* One that has waited for too long is reset. */
static void late_ones_are_refused(void)
{
    int count = overload();
    char byte;

    CHECK(limit(listener) == SHORT);
    all_are_late = 1;
    CHECK(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
    CHECK(news_of_overload[3] == (unsigned)count);
    for (int i = 0; i < count; i++)
        CHECK(read(clients[i], &byte, 1) == -1 && errno == ECONNRESET);
    /* One that blocks hands out whatever comes. */
    go_away(client());
    CHECK(fcntl(listener, F_SETFL, 0) == 0);
    close(accept(listener, NULL, NULL));
    CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    all_are_late = 0;
    empty(count);
    milliseconds += 1000;
    calm(1);
    CHECK(limit(listener) == USUAL);
    all_are_late = 1;
    calm(1);
    all_are_late = 0;
}

/* A child of a fork begins anew, and does not end its parent's overload. */
static void processes_are_apart(void)
{
    int count = overload(), status = -1, copy;
    pid_t child = fork();

    if (child == 0) {
        close(listener);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(limit(listener) == SHORT);
    copy = fcntl(listener, F_DUPFD, 0);
    CHECK(copy >= 0);
    close(listener);
    CHECK(limit(copy) == USUAL);
    CHECK(news_of_overload[0] == 3 && news_of_overload[1] == 3);
    listener = copy;
    empty(count);
}

/* With `overload = off`, and before the provider has come. */
static void can_be_switched_off(void)
{
    int count;

    queues_are_short = 0;
    count = overload();
    CHECK(limit(listener) == USUAL);
    CHECK(news_of_overload[0] == 0);
    empty(count);
    queues_are_short = 1;
}

int main(void)
{
    socklen_t len = sizeof address;
    int count;

    alarm(60);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listener, USUAL) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &len) == 0);
    count = overload();
    CHECK(limit(listener) == USUAL);
    empty(count);
    attach();
    CHECK(library != NULL);
    can_be_switched_off();
    only_living_ones();
    late_ones_are_refused();
    processes_are_apart();
    CHECK(wait_for_pass() == 1);
    return 0;
}
