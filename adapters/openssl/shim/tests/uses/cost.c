/* A program that never suspends a handshake, for counts of its instructions with and without the library. Arguments: what
 * it does, and how often. A request is a message of 64 bytes over an established connection and an answer of 1,024, both
 * ends in one thread; "beside" is the same while another thread has a suspended handshake; the rest are single calls. */

#include "stand_in.h"

static SSL_CTX *context;

static void use_new_certificate(void)
{
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    X509 *certificate = X509_new();

    X509_set_pubkey(certificate, key);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_sign(certificate, key, EVP_sha256());
    SSL_CTX_use_certificate(context, certificate);
    SSL_CTX_use_PrivateKey(context, key);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

static void expect(int condition)
{
    if (!condition)
        _exit(1);
}

static SSL *server, *client;
static int epoll, ends[2];
static char buffer[16384];

/* As event loops do: a wait, a read, an answer, and one more read that finds nothing. */
static void request(void)
{
    struct epoll_event event;

    expect(SSL_write(client, buffer, 64) == 64);
    expect(epoll_wait(epoll, &event, 1, -1) == 1);
    expect(SSL_read(server, buffer, sizeof buffer) == 64);
    expect(SSL_write(server, buffer, 1024) == 1024);
    expect(SSL_read(server, buffer, sizeof buffer) < 0);
    expect(SSL_get_error(server, -1) == SSL_ERROR_WANT_READ);
    expect(SSL_read(client, buffer, sizeof buffer) == 1024);
}

static __thread int suspends;

static int at_certificate(SSL *ssl, void *unused)
{
    (void)ssl, (void)unused;
    return !suspends || wait_for_pass();
}

static SSL *end(SSL_CTX *of, int fd, void (*set_state)(SSL *))
{
    SSL *ssl = SSL_new(of);

    SSL_set_fd(ssl, fd);
    set_state(ssl);
    return ssl;
}

/* The first handshakes of a thread among others are not suspended. */
static void *begin_handshakes(void *done)
{
    struct epoll_event event = { .events = EPOLLIN };
    int own = epoll_create1(0), pair[2], i;

    suspends = 1;
    expect(epoll_wait(own, &event, 1, 1) == 0);
    for (i = 0; i < 20 && suspensions == 0; i++) {
        event = (struct epoll_event){ .events = EPOLLIN };
        expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
        expect(epoll_ctl(own, EPOLL_CTL_ADD, pair[0], &event) == 0);
        SSL_do_handshake(end(SSL_CTX_new(TLS_client_method()), pair[1], SSL_set_connect_state));
        SSL_do_handshake(end(context, pair[0], SSL_set_accept_state));
    }
    expect(library == NULL || suspensions == 1);
    expect(write(*(int *)done, "", 1) == 1);
    pause();
    return NULL;
}

static void begin_beside(void)
{
    int done[2];
    pthread_t thread;

    expect(pipe(done) == 0 && pthread_create(&thread, NULL, begin_handshakes, &done[1]) == 0);
    expect(read(done[0], buffer, 1) == 1);
}

static void wait_by_epoll(void)
{
    struct epoll_event event;

    expect(epoll_wait(epoll, &event, 1, 1) == 0);
}

static void wait_by_poll(void)
{
    struct pollfd watched[10];
    int i;

    for (i = 0; i < 10; i++)
        watched[i] = (struct pollfd){ .fd = ends[0], .events = POLLIN };
    expect(poll(watched, 10, 1) == 0);
}

static void wait_by_select(void)
{
    struct timeval time = { 0, 1 };
    fd_set set;

    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    expect(select(ends[0] + 1, &set, NULL, NULL, &time) == 0);
}

static void read_nothing(void)
{
    expect(SSL_read(server, buffer, 1) < 0);
}

static void get_error(void)
{
    expect(SSL_get_error(server, -1) == SSL_ERROR_WANT_READ);
}

static void close_nothing(void)
{
    expect(close(-1) == -1);
}

static void accept_nothing(void)
{
    expect(accept4(-1, NULL, NULL, 0) == -1);
}

static void nothing(void)
{
}

static const struct {
    const char *name;
    void (*call)(void);
} all[] = {
    { "request", request },     { "beside", request },          { "epoll_wait", wait_by_epoll }, { "poll", wait_by_poll },
    { "select", wait_by_select }, { "SSL_read", read_nothing },    { "SSL_get_error", get_error },
    { "close", close_nothing }, { "accept4", accept_nothing },
};

int main(int count, char **arguments)
{
    struct epoll_event event = { .events = EPOLLIN };
    int times = count == 3 ? atoi(arguments[2]) : 0, done = 0;
    void (*call)(void) = nothing;
    size_t i;

    for (i = 0; i < sizeof all / sizeof *all; i++) {
        if (count != 3)
            puts(all[i].name);
        else if (strcmp(all[i].name, arguments[1]) == 0)
            call = all[i].call;
    }
    if (call == nothing)
        return count == 3;
    epoll = epoll_create1(0);
    attach();
    context = SSL_CTX_new(TLS_server_method());
    use_new_certificate();
    SSL_CTX_set_cert_cb(context, at_certificate, NULL);
    expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    server = end(context, ends[0], SSL_set_accept_state);
    client = end(SSL_CTX_new(TLS_client_method()), ends[1], SSL_set_connect_state);
    while (done != 3) {
        done = SSL_do_handshake(client) == 1;
        done |= (SSL_do_handshake(server) == 1) << 1;
    }
    expect(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    /* The client takes the tickets of the handshake. */
    expect(SSL_read(client, buffer, 1) < 0);
    read_nothing();
    if (strcmp(arguments[1], "beside") == 0)
        begin_beside();
    while (times-- > 0)
        call();
    return 0;
}
