/* Makes handshakes with itself, eight at the same time. Those of the server have stacks of their own, and
 * leave them in the middle of SSL_do_handshake. They end in the order in which they began. */
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

void *TLS_method(void);
void *SSL_CTX_new(void *);
int SSL_CTX_use_certificate_file(void *, const char *, int);
int SSL_CTX_use_PrivateKey_file(void *, const char *, int);
void SSL_CTX_set_cert_cb(void *, int (*)(void *, void *), void *);
void *SSL_new(void *);
void SSL_free(void *);
void SSL_set_accept_state(void *);
void SSL_set_connect_state(void *);
void SSL_set_bio(void *, void *, void *);
int SSL_do_handshake(void *);
int BIO_new_bio_pair(void **, size_t, void **, size_t);

enum { CONNECTIONS = 8, ROUNDS = 25, STACK = 256 << 10, MOST_TURNS = 100, PEM = 1 };

static struct connection {
    void *server, *client;
    int served, connected;
    ucontext_t context;
    char *stack;
} connections[CONNECTIONS], *current;
static ucontext_t scheduler;

static int suspend(void *server, void *unused)
{
    struct connection *own = current;

    (void)server;
    (void)unused;
    swapcontext(&own->context, &scheduler);
    return 1;
}

static void serve(void)
{
    struct connection *own = current;

    while (SSL_do_handshake(own->server) != 1)
        suspend(NULL, NULL);
    own->served = 1;
}

static void begin(struct connection *one, void *server, void *client)
{
    void *near, *far;

    one->server = SSL_new(server);
    one->client = SSL_new(client);
    if (!one->server || !one->client || BIO_new_bio_pair(&near, 0, &far, 0) != 1)
        exit(3);
    SSL_set_bio(one->server, near, near);
    SSL_set_bio(one->client, far, far);
    SSL_set_accept_state(one->server);
    SSL_set_connect_state(one->client);
    one->served = one->connected = 0;
    getcontext(&one->context);
    one->context.uc_stack.ss_sp = one->stack;
    one->context.uc_stack.ss_size = STACK;
    one->context.uc_link = &scheduler;
    makecontext(&one->context, serve, 0);
}

/* Returns whether both sides are done. */
static int go_on(struct connection *one)
{
    if (!one->connected)
        one->connected = SSL_do_handshake(one->client) == 1;
    if (!one->served) {
        current = one;
        swapcontext(&scheduler, &one->context);
    }
    return one->connected && one->served;
}

int main(int count, char **arguments)
{
    void *server = SSL_CTX_new(TLS_method()), *client = SSL_CTX_new(TLS_method());
    char byte = 'x';

    if (count != 3 || SSL_CTX_use_certificate_file(server, arguments[1], PEM) != 1
        || SSL_CTX_use_PrivateKey_file(server, arguments[2], PEM) != 1)
        return 2;
    SSL_CTX_set_cert_cb(server, suspend, NULL);
    for (int i = 0; i < CONNECTIONS; i++)
        connections[i].stack = malloc(STACK);
    /* The tracer is started between these two. */
    if (write(1, &byte, 1) != 1 || read(0, &byte, 1) != 1)
        return 2;
    for (int round = 0; round < ROUNDS; round++) {
        int turns = 0, done = 0;

        for (int i = 0; i < CONNECTIONS; i++)
            begin(&connections[i], server, client);
        while (done < CONNECTIONS) {
            if (turns++ == MOST_TURNS)
                return 4;
            done = 0;
            for (int i = 0; i < CONNECTIONS; i++)
                done += go_on(&connections[i]);
        }
        for (int i = 0; i < CONNECTIONS; i++) {
            SSL_free(connections[i].server);
            SSL_free(connections[i].client);
        }
    }
    return 0;
}
