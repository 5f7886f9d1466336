/* A server that moves a suspended handshake to another thread: there it is told to try again. The
 * handshake ends where it began. Then one that goes on in a forked process. The arguments are a
 * certificate and its key. Ends with status 0 if all of that is so, and 77 if no handshake is suspended here. */

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static SSL *server;

static void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static void *elsewhere(void *unused)
{
    int result = SSL_do_handshake(server);
    char byte;

    if (result != -1 || SSL_get_error(server, result) != SSL_ERROR_WANT_READ)
        die("the other thread is not told to try again");
    result = SSL_read(server, &byte, 1);
    if (result != -1 || SSL_get_error(server, result) != SSL_ERROR_WANT_READ)
        die("the other thread may read");
    return unused;
}

/* 1 when the handshake has ended. */
static int step(SSL *ssl)
{
    int result = SSL_do_handshake(ssl);

    if (result == 1)
        return 1;
    if (SSL_get_error(ssl, result) != SSL_ERROR_WANT_READ)
        die("the handshake fails");
    return 0;
}

/* A client that has sent its ClientHello to `server`, which is new, and of whose socket `waits` tells. */
static SSL *begin(SSL_CTX *context, int waits, int ends[2])
{
    SSL *client = SSL_new(SSL_CTX_new(TLS_client_method()));
    struct epoll_event event = { .events = EPOLLIN };

    server = SSL_new(context);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0
        || epoll_ctl(waits, EPOLL_CTL_ADD, ends[0], &event) != 0)
        die("no sockets");
    SSL_set_accept_state(server);
    SSL_set_connect_state(client);
    SSL_set_fd(server, ends[0]);
    SSL_set_fd(client, ends[1]);
    step(client);
    return client;
}

/* The child of a fork goes on with a handshake that waits in the parent: its jobs are the parent's. */
static void fork_in_the_middle(SSL_CTX *context, int waits)
{
    struct epoll_event event;
    int ends[2], done = 0, turns, status = -1;
    SSL *client;
    pid_t child;

    client = begin(context, waits, ends);
    step(server);
    child = fork();
    if (child == 0) {
        alarm(20);
        for (turns = 0; done < 2 && turns < 100; turns++) {
            epoll_wait(waits, &event, 1, 100);
            done = step(server) + step(client);
        }
        SSL_free(server);
        _exit(done == 2 ? 0 : 1);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        die("the child does not go on with the handshake");
    SSL_free(server);
    SSL_free(client);
    close(ends[0]);
    close(ends[1]);
}

int main(int count, char **arguments)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    struct epoll_event event;
    int ends[2], done = 0, turns, waits = epoll_create1(0);
    pthread_t thread;
    SSL *client;

    if (count != 3 || SSL_CTX_use_certificate_chain_file(context, arguments[1]) != 1
        || SSL_CTX_use_PrivateKey_file(context, arguments[2], SSL_FILETYPE_PEM) != 1)
        die("no certificate");
    client = begin(context, waits, ends);
    /* Only a thread that waits in the instance is told of its events. */
    if (epoll_wait(waits, &event, 1, 60000) != 1)
        die("no event");
    step(server);
    /* What came is read, and no answer was sent: the handshake waits for a pass. */
    if (recv(ends[0], &done, 1, MSG_PEEK) != -1 || recv(ends[1], &done, 1, MSG_PEEK) != -1)
        return 77;
    if (pthread_create(&thread, NULL, elsewhere, NULL) != 0 || pthread_join(thread, NULL) != 0)
        die("no thread");
    for (turns = 0; done < 2 && turns < 100; turns++) {
        epoll_wait(waits, &event, 1, 100);
        done = step(server) + step(client);
    }
    if (done < 2)
        die("the handshake does not end");
    SSL_free(server);
    SSL_free(client);
    fork_in_the_middle(context, waits);
    return 0;
}
