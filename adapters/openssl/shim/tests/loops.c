/* A server of one thread that answers each client with its own way to wait. Arguments: the way, an IPv4 address and
 * a port, a file with a certificate and its key. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* As many descriptors as select has room for. */
#define MOST FD_SETSIZE

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nloops";

static SSL *connections[MOST];
static int listener, epoll = -1;
static SSL_CTX *context;

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    ERR_print_errors_fp(stderr);
    exit(1);
}

static void watch(int fd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

    if (epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        die("epoll_ctl");
}

static void end(int fd)
{
    SSL_free(connections[fd]);
    connections[fd] = NULL;
    close(fd);
}

static void serve(int fd)
{
    SSL *ssl = connections[fd];
    char request[4096];
    int result = SSL_accept(ssl);

    if (result == 1)
        result = SSL_read(ssl, request, sizeof request);
    if (result <= 0) {
        if (SSL_get_error(ssl, result) != SSL_ERROR_WANT_READ)
            end(fd);
        ERR_clear_error();
        return;
    }
    if (SSL_write(ssl, answer, sizeof answer - 1) > 0)
        SSL_shutdown(ssl);
    ERR_clear_error();
    end(fd);
}

static void accept_all(void)
{
    int fd;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= MOST) {
            close(fd);
            continue;
        }
        connections[fd] = SSL_new(context);
        SSL_set_fd(connections[fd], fd);
        watch(fd);
        /* As servers do that expect the client's bytes with the connection. */
        serve(fd);
    }
}

static void is_ready(int fd)
{
    if (fd == listener)
        accept_all();
    else if (connections[fd] != NULL)
        serve(fd);
}

static int is_watched(int fd)
{
    return fd == listener || connections[fd] != NULL;
}

static void wait_by_poll(int with_signals)
{
    static struct pollfd fds[MOST];
    int fd, i, count = 0;

    for (fd = 0; fd < MOST; fd++)
        if (is_watched(fd))
            fds[count++] = (struct pollfd){ .fd = fd, .events = POLLIN };
    if ((with_signals ? ppoll(fds, count, NULL, NULL) : poll(fds, count, -1)) < 0)
        die("poll");
    for (i = 0; i < count; i++)
        if (fds[i].revents != 0)
            is_ready(fds[i].fd);
}

static void wait_by_select(int with_signals)
{
    int fd, most = 0;
    fd_set set;

    FD_ZERO(&set);
    for (fd = 0; fd < MOST; fd++) {
        if (is_watched(fd)) {
            FD_SET(fd, &set);
            most = fd;
        }
    }
    if ((with_signals ? pselect(most + 1, &set, NULL, NULL, NULL, NULL)
                      : select(most + 1, &set, NULL, NULL, NULL)) < 0)
        die("select");
    for (fd = 0; fd <= most; fd++)
        if (FD_ISSET(fd, &set))
            is_ready(fd);
}

static void wait_by_epoll(const char *way)
{
    struct timespec time = { 10, 0 };
    struct epoll_event events[64];
    int i, count;

    if (strcmp(way, "epoll_pwait2") == 0)
        count = epoll_pwait2(epoll, events, 64, &time, NULL);
    else if (strcmp(way, "epoll_pwait") == 0)
        count = epoll_pwait(epoll, events, 64, -1, NULL);
    else
        count = epoll_wait(epoll, events, 64, -1);
    if (count < 0)
        die("epoll");
    for (i = 0; i < count; i++)
        is_ready(events[i].data.fd);
}

int main(int count, char **arguments)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    const char *way = arguments[1];

    signal(SIGPIPE, SIG_IGN);
    context = SSL_CTX_new(TLS_server_method());
    if (count != 5 || SSL_CTX_use_certificate_chain_file(context, arguments[4]) != 1
        || SSL_CTX_use_PrivateKey_file(context, arguments[4], SSL_FILETYPE_PEM) != 1)
        die("no certificate");
    address.sin_port = htons(atoi(arguments[3]));
    inet_pton(AF_INET, arguments[2], &address.sin_addr);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 256) != 0)
        die("no listener");
    if (strncmp(way, "epoll", 5) == 0) {
        epoll = epoll_create1(0);
        watch(listener);
    }
    for (;;) {
        if (epoll >= 0)
            wait_by_epoll(way);
        else if (strstr(way, "select") != NULL)
            wait_by_select(way[0] == 'p');
        else
            wait_by_poll(way[1] == 'p');
    }
}
