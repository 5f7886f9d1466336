/* Uses of libssl that are allowed and unusual, while handshakes are suspended or not. Each prints what it
 * sees; the same is seen with the library and without it. Arguments: the use, where handshakes are
 * suspended (cert, hello, alpn, all of these and where a client's certificate is verified, or every call of libssl's to
 * libcrypto as well), the TLS version (1.2, 1.3). Without arguments: the names of the uses. */

#include "stand_in.h"
#include "everywhere.h"

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) {                                           \
            printf("line %d: not so: %s\n", __LINE__, #condition);    \
            fflush(stdout);                                           \
            _exit(1);                                                 \
        }                                                             \
    } while (0)

/* What a server keeps of a connection. */
struct connection {
    SSL *server, *client;
    int ends[2], epoll;
    int server_done, client_done, is_alive;
    unsigned events;
    int calls, late_calls;
};

static SSL_CTX *context, *client_context;
static const char *points;
static int are_all;
static int freed, ex_data;

/* ---- The server's own callbacks. */

static void (*in_callback)(SSL *);

static int at_certificate(SSL *ssl, void *unused)
{
    (void)unused;
    if (in_callback != NULL) {
        void (*call)(SSL *) = in_callback;

        in_callback = NULL;
        call(ssl);
    }
    if (strcmp(points, "cert") != 0 && !are_all)
        return 1;
    return wait_for_pass();
}

static int at_hello(SSL *ssl, int *alert, void *unused)
{
    (void)ssl, (void)unused;
    *alert = SSL_AD_INTERNAL_ERROR;
    if (strcmp(points, "hello") != 0 && !are_all)
        return SSL_CLIENT_HELLO_SUCCESS;
    return wait_for_pass() ? SSL_CLIENT_HELLO_SUCCESS : SSL_CLIENT_HELLO_ERROR;
}

static int at_protocol(SSL *ssl, const unsigned char **out, unsigned char *len,
                       const unsigned char *in, unsigned int in_len, void *unused)
{
    (void)ssl, (void)in_len, (void)unused;
    *out = in + 1;
    *len = in[0];
    if (strcmp(points, "alpn") != 0 && !are_all)
        return SSL_TLSEXT_ERR_OK;
    return wait_for_pass() ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* In the last flight of the client, with which the handshake ends. */
static int at_client_certificate(X509_STORE_CTX *store, void *unused)
{
    (void)store, (void)unused;
    return wait_for_pass();
}

static void on_free(void *parent, void *value, CRYPTO_EX_DATA *data, int index, long argument, void *pointer)
{
    (void)parent, (void)data, (void)index, (void)argument, (void)pointer;
    if (value != NULL)
        __atomic_fetch_add(&freed, 1, __ATOMIC_SEQ_CST);
}

static void called_back(const SSL *ssl)
{
    struct connection *c = SSL_get_app_data(ssl);

    if (c == NULL)
        return;
    c->calls++;
    c->late_calls += !c->is_alive;
}

static void on_info(const SSL *ssl, int where, int result)
{
    (void)where, (void)result;
    called_back(ssl);
}

static void on_message(int write, int version, int type, const void *data, size_t len, SSL *ssl, void *unused)
{
    (void)write, (void)version, (void)type, (void)data, (void)len, (void)unused;
    called_back(ssl);
}

static int removals;

static void on_removal(SSL_CTX *of, SSL_SESSION *session)
{
    (void)of, (void)session;
    removals++;
}

/* ---- Making connections. */

static void use_new_certificate(SSL_CTX *of)
{
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    X509 *certificate = X509_new();
    X509_NAME *name = X509_get_subject_name(certificate);

    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    X509_sign(certificate, key, EVP_sha256());
    CHECK(SSL_CTX_use_certificate(of, certificate) == 1 && SSL_CTX_use_PrivateKey(of, key) == 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

static SSL_CTX *server_context(int version)
{
    SSL_CTX *made = SSL_CTX_new(TLS_server_method());

    use_new_certificate(made);
    if (are_all) {
        SSL_CTX_set_verify(made, SSL_VERIFY_PEER, NULL);
        SSL_CTX_set_cert_verify_callback(made, at_client_certificate, NULL);
        SSL_CTX_set_session_id_context(made, (const unsigned char *)"uses", 4);
    }
    SSL_CTX_set_max_proto_version(made, version);
    SSL_CTX_set_cert_cb(made, at_certificate, NULL);
    SSL_CTX_set_client_hello_cb(made, at_hello, NULL);
    SSL_CTX_set_alpn_select_cb(made, at_protocol, NULL);
    SSL_CTX_set_info_callback(made, on_info);
    SSL_CTX_sess_set_remove_cb(made, on_removal);
    return made;
}

static SSL *new_client(int fd)
{
    SSL *ssl = SSL_new(client_context);

    CHECK(ssl != NULL && SSL_set_fd(ssl, fd) == 1);
    SSL_set_connect_state(ssl);
    return ssl;
}

static SSL *new_server(struct connection *c, int fd)
{
    SSL *ssl = SSL_new(context);

    CHECK(ssl != NULL);
    SSL_set_app_data(ssl, c);
    SSL_set_ex_data(ssl, ex_data, c);
    SSL_set_msg_callback(ssl, on_message);
    if (fd >= 0)
        CHECK(SSL_set_fd(ssl, fd) == 1);
    return ssl;
}

static void watch(struct connection *c, int epoll, int operation, unsigned events)
{
    struct epoll_event event = { .events = events, .data.ptr = c };

    c->epoll = epoll;
    c->events = events;
    CHECK(epoll_ctl(epoll, operation, c->ends[0], &event) == 0);
}

/* This thread waits, as an event loop does before its first connection. */
static void wait_once(int epoll)
{
    struct epoll_event event;

    CHECK(epoll_wait(epoll, &event, 1, 1) == 0);
}

static int new_epoll(void)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);

    CHECK(epoll >= 0);
    wait_once(epoll);
    return epoll;
}

/* Two ends of a connection. */
static void pair(int ends[2])
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
}

/* Two ends of a connection, of which the server's was accepted. */
static void accept_one(int ends[2])
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t len = sizeof name;

    /* The kernel chooses a name without a file. */
    CHECK(bind(listener, (struct sockaddr *)&name, sizeof name.sun_family) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&name, &len) == 0);
    ends[1] = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(ends[1], (struct sockaddr *)&name, len) == 0);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    ends[0] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    CHECK(ends[0] >= 0);
    close(listener);
}

static struct connection *connect_by(void (*make)(int ends[2]))
{
    struct connection *c = calloc(1, sizeof *c);

    make(c->ends);
    c->is_alive = 1;
    c->epoll = -1;
    c->server = new_server(c, c->ends[0]);
    c->client = new_client(c->ends[1]);
    return c;
}

static struct connection *connect_unwatched(void)
{
    return connect_by(pair);
}

static struct connection *connect_one(int epoll)
{
    struct connection *c = connect_unwatched();

    SSL_set_accept_state(c->server);
    watch(c, epoll, EPOLL_CTL_ADD, EPOLLIN);
    return c;
}

/* ---- Going on with them. */

static void step_client(struct connection *c)
{
    int result = c->client_done ? 1 : SSL_do_handshake(c->client);

    if (result == 1)
        c->client_done = 1;
    else
        CHECK(SSL_get_error(c->client, result) == SSL_ERROR_WANT_READ);
}

static void step_server(struct connection *c)
{
    int result = c->server_done ? 1 : SSL_do_handshake(c->server);

    if (result == 1)
        c->server_done = 1;
    else
        CHECK(SSL_get_error(c->server, result) == SSL_ERROR_WANT_READ && SSL_want_read(c->server));
}

/* One turn of the event loop; how many events there were. */
static int serve(int epoll, int timeout)
{
    struct epoll_event events[8];
    int i, count = epoll_wait(epoll, events, 8, timeout);

    CHECK(count >= 0);
    for (i = 0; i < count; i++) {
        struct connection *c = events[i].data.ptr;

        CHECK(c->is_alive);
        step_server(c);
        if (c->events & EPOLLONESHOT)
            watch(c, epoll, EPOLL_CTL_MOD, c->events);
    }
    return count;
}

static void greet(struct connection *c)
{
    char byte = 0;
    int i, got = -1;

    CHECK(SSL_write(c->client, "x", 1) == 1);
    for (i = 0; i < 100 && got != 1; i++)
        got = SSL_read(c->server, &byte, 1);
    CHECK(got == 1 && byte == 'x');
    CHECK(SSL_write(c->server, "y", 1) == 1);
    for (got = -1, i = 0; i < 100 && got != 1; i++)
        got = SSL_read(c->client, &byte, 1);
    CHECK(got == 1 && byte == 'y');
}

static void complete(struct connection *c)
{
    int turns;

    for (turns = 0; turns < 300 && !(c->server_done && c->client_done); turns++) {
        step_client(c);
        serve(c->epoll, 10);
    }
    CHECK(c->server_done && c->client_done);
    greet(c);
    puts("complete");
}

/* The server's first call, which sends its answer or is suspended: it is told to try again. */
static void call_once(struct connection *c)
{
    int result;

    step_client(c);
    result = SSL_do_handshake(c->server);
    CHECK(result == -1 && SSL_get_error(c->server, result) == SSL_ERROR_WANT_READ);
}

/* The server frees its own object, then the connection. */
static void drop(struct connection *c)
{
    int before = c->calls;

    c->is_alive = 0;
    SSL_free(c->server);
    c->server = NULL;
    printf("calls back while it was freed: %d %d\n", c->calls - before, c->late_calls);
    c->calls = before;
}

static void drop_all(struct connection *c)
{
    drop(c);
    close(c->ends[0]);
    SSL_free(c->client);
    close(c->ends[1]);
    free(c);
}

/* Another client takes the place of the one that the connection has. */
static void next_client(struct connection *c, void (*make)(int ends[2]))
{
    close(c->ends[0]);
    close(c->ends[1]);
    SSL_free(c->client);
    make(c->ends);
    c->client = new_client(c->ends[1]);
    c->client_done = c->server_done = 0;
}

static void on_a_thread(void *(*work)(void *), void *of)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, work, of) == 0 && pthread_join(thread, NULL) == 0);
}

/* A function of OpenSSL's past the library, which has the same name for another one. */
static void *of_openssl(const char *name)
{
    return dlsym(dlopen("libssl.so.3", RTLD_NOW | RTLD_NOLOAD), name);
}

/* ---- The uses. */

static void plain(void)
{
    struct connection *c = connect_one(new_epoll());

    complete(c);
    drop_all(c);
}

/* Handshakes of a thread among others, after which its instance is known to be its own. */
static void warm_up(int epoll)
{
    int i;

    for (i = 0; i < 8; i++) {
        struct connection *c = connect_one(epoll);

        complete(c);
        drop_all(c);
    }
}

static void many(void)
{
    int epoll = new_epoll(), i, turns, done = 0;
    struct connection *c[20];

    for (i = 0; i < 20; i++)
        c[i] = connect_one(epoll);
    for (turns = 0; turns < 500 && done < 20; turns++) {
        for (done = i = 0; i < 20; i++) {
            step_client(c[i]);
            done += c[i]->server_done && c[i]->client_done;
        }
        serve(epoll, 1);
    }
    printf("done: %d\n", done);
    for (i = 0; i < 20; i++)
        drop_all(c[i]);
}

static void watched_for(int events)
{
    int epoll = new_epoll();
    struct connection *c = connect_one(epoll);

    watch(c, epoll, EPOLL_CTL_MOD, events);
    complete(c);
    drop_all(c);
}

static void edge(void)
{
    watched_for(EPOLLIN | EPOLLET);
}

static void one_shot(void)
{
    watched_for(EPOLLIN | EPOLLONESHOT);
}

/* No state is set: SSL_accept says by itself that this is a server. */
static void accept_unset(void)
{
    struct connection *c = connect_unwatched();
    int turns, result = 0, epoll = new_epoll();

    watch(c, epoll, EPOLL_CTL_ADD, EPOLLIN);
    for (turns = 0; turns < 300 && (result != 1 || !c->client_done); turns++) {
        struct epoll_event event;

        step_client(c);
        epoll_wait(epoll, &event, 1, 10);
        result = SSL_accept(c->server);
        CHECK(result == 1 || SSL_get_error(c->server, result) == SSL_ERROR_WANT_READ);
    }
    CHECK(result == 1 && c->client_done);
    greet(c);
    drop_all(c);
}

/* No state is set, and nothing sets it. */
static void handshake_unset(void)
{
    struct connection *c = connect_unwatched();
    int result;

    watch(c, new_epoll(), EPOLL_CTL_ADD, EPOLLIN);
    step_client(c);
    result = SSL_do_handshake(c->server);
    printf("%d %d %s\n", result, SSL_get_error(c->server, result), ERR_reason_error_string(ERR_get_error()));
    drop_all(c);
}

static void *blocking_client(void *of)
{
    struct connection *c = of;
    char byte;

    CHECK(SSL_connect(c->client) == 1 && SSL_write(c->client, "x", 1) == 1);
    CHECK(SSL_read(c->client, &byte, 1) == 1);
    return NULL;
}

/* Both sides go on by calls that block, the client on a thread of its own. */
static void serve_blocking(struct connection *c)
{
    pthread_t thread;
    char byte;

    fcntl(c->ends[0], F_SETFL, 0);
    fcntl(c->ends[1], F_SETFL, 0);
    pthread_create(&thread, NULL, blocking_client, c);
    printf("SSL_accept: %d\n", SSL_accept(c->server));
    CHECK(SSL_read(c->server, &byte, 1) == 1 && SSL_write(c->server, "y", 1) == 1);
    pthread_join(thread, NULL);
    drop_all(c);
}

static void blocking(void)
{
    struct connection *c = connect_unwatched();

    watch(c, new_epoll(), EPOLL_CTL_ADD, EPOLLIN);
    serve_blocking(c);
}

static int read_one(SSL *ssl)
{
    char byte;

    return SSL_read(ssl, &byte, 1);
}

static int read_one_ex(SSL *ssl)
{
    char byte;
    size_t len = 0;

    return SSL_read_ex(ssl, &byte, 1, &len) == 1 ? (int)len : -1;
}

static int peek_one(SSL *ssl)
{
    char byte;

    return SSL_peek(ssl, &byte, 1);
}

static int write_one(SSL *ssl)
{
    return SSL_write(ssl, "y", 1);
}

static int write_one_ex(SSL *ssl)
{
    size_t len = 0;

    return SSL_write_ex(ssl, "y", 1, &len) == 1 ? (int)len : -1;
}

static void start_by(int (*call)(SSL *), struct connection *c)
{
    int turns, result = -1, sent = 0;

    for (turns = 0; turns < 300 && (result != 1 || !c->client_done); turns++) {
        struct epoll_event event;

        step_client(c);
        if (c->client_done && !sent)
            sent = SSL_write(c->client, "x", 1);
        epoll_wait(c->epoll, &event, 1, 10);
        if (result == 1)
            continue;
        result = call(c->server);
        CHECK(result == 1 || SSL_get_error(c->server, result) == SSL_ERROR_WANT_READ);
    }
    printf("result %d, in the handshake: %d\n", result, SSL_in_init(c->server));
}

/* Reading and writing do the handshake. */
static void started_by(int (*call)(SSL *))
{
    struct connection *c = connect_one(new_epoll());

    start_by(call, c);
    drop_all(c);
}

static void read_starts(void)
{
    started_by(read_one);
}

static void read_ex_starts(void)
{
    started_by(read_one_ex);
}

static void peek_starts(void)
{
    started_by(peek_one);
}

static void write_starts(void)
{
    started_by(write_one);
}

static void write_ex_starts(void)
{
    started_by(write_one_ex);
}

/* The second client sends data with its first message. */
static void early_data(void)
{
    struct connection *c;
    SSL_SESSION *session;
    char bytes[16];
    int turns, result = SSL_READ_EARLY_DATA_ERROR;
    size_t len, all = 0;

    SSL_CTX_set_max_early_data(context, 100);
    SSL_CTX_set_options(context, SSL_OP_NO_ANTI_REPLAY);
    c = connect_one(new_epoll());
    complete(c);
    session = SSL_get1_session(c->client);
    SSL_shutdown(c->client);
    drop_all(c);
    if (SSL_SESSION_get_max_early_data(session) == 0) {
        SSL_SESSION_free(session);
        return;
    }
    c = connect_one(new_epoll());
    CHECK(SSL_set_session(c->client, session) == 1);
    CHECK(SSL_write_early_data(c->client, "early", 5, &len) == 1);
    for (turns = 0; turns < 300 && result != SSL_READ_EARLY_DATA_FINISH; turns++) {
        struct epoll_event event;

        epoll_wait(c->epoll, &event, 1, 10);
        result = SSL_read_early_data(c->server, bytes, sizeof bytes, &len);
        if (result == SSL_READ_EARLY_DATA_ERROR)
            CHECK(SSL_get_error(c->server, 0) == SSL_ERROR_WANT_READ);
        else
            all += len;
        step_client(c);
    }
    printf("early data: %zu bytes, %d\n", all, SSL_get_early_data_status(c->server));
    /* What comes next may have been read. */
    step_server(c);
    complete(c);
    drop_all(c);
    SSL_SESSION_free(session);
}

/* A second handshake on the same connection, in calls that read. */
static void renegotiate(void)
{
    struct connection *c;
    char byte;
    int turns, got = 0, sent = 0;

    SSL_CTX_set_options(context, SSL_OP_ALLOW_CLIENT_RENEGOTIATION);
    c = connect_one(new_epoll());
    complete(c);
    if (SSL_version(c->server) != TLS1_2_VERSION)
        return;
    CHECK(SSL_renegotiate(c->client) == 1);
    c->client_done = 0;
    step_client(c);
    for (turns = 0; turns < 300 && !(c->client_done && got == 1); turns++) {
        struct epoll_event event;

        epoll_wait(c->epoll, &event, 1, 10);
        got = SSL_read(c->server, &byte, 1);
        CHECK(got == 1 || SSL_get_error(c->server, got) == SSL_ERROR_WANT_READ);
        step_client(c);
        if (c->client_done && !sent)
            sent = SSL_write(c->client, "x", 1);
    }
    printf("client done: %d, read: %d, in the handshake: %d\n", c->client_done, got, SSL_in_init(c->server));
    greet(c);
    drop_all(c);
}

static void free_in_the_middle(void)
{
    struct connection *c = connect_one(new_epoll());
    int kept;

    call_once(c);
    ERR_clear_error();
    ERR_raise(ERR_LIB_USER, 77);
    kept = removals;
    drop(c);
    printf("sessions removed: %d\n", removals - kept);
    printf("error of the server's: %d", ERR_GET_REASON(ERR_get_error()));
    printf(", others: %lu, freed: %d\n", ERR_peek_error(), freed);
}

static void free_with_own_callback(void)
{
    struct connection *c = connect_one(new_epoll());

    SSL_set_info_callback(c->server, on_info);
    call_once(c);
    CHECK(SSL_get_info_callback(c->server) == on_info);
    drop_all(c);
    c = connect_one(new_epoll());
    call_once(c);
    CHECK(SSL_get_info_callback(c->server) == NULL);
    SSL_set_info_callback(c->server, on_info);
    CHECK(SSL_get_info_callback(c->server) == on_info);
    complete(c);
    CHECK(SSL_get_info_callback(c->server) == on_info);
    drop_all(c);
}

static char story[4096];

static void on_story(const SSL *ssl, int where, int result)
{
    size_t len = strlen(story);

    (void)ssl;
    /* The client answers while the server is suspended: it need not wait for that. */
    if (is_suspended_everywhere && where == SSL_CB_ACCEPT_EXIT && result < 0)
        return;
    snprintf(story + len, sizeof story - len, "%x:%d ", where, result);
}

/* The server's callback comes as often as without the library, with the same values. */
static void callbacks_in_order(void)
{
    struct connection *c = connect_one(new_epoll());

    SSL_set_info_callback(c->server, on_story);
    complete(c);
    puts(story);
    drop_all(c);
}

static void clear_in_the_middle(void)
{
    int epoll = new_epoll();
    struct connection *c = connect_one(epoll);

    SSL_set_info_callback(c->server, on_info);
    call_once(c);
    ERR_clear_error();
    ERR_raise(ERR_LIB_USER, 77);
    c->is_alive = 0;
    printf("SSL_clear: %d\n", SSL_clear(c->server));
    c->is_alive = 1;
    printf("error of the server's: %d", ERR_GET_REASON(ERR_get_error()));
    printf(", others: %lu\n", ERR_peek_error());
    CHECK(SSL_get_rfd(c->server) == c->ends[0] && SSL_get_wfd(c->server) == c->ends[0]);
    CHECK(SSL_get_info_callback(c->server) == on_info);
    printf("late calls: %d\n", c->late_calls);
    /* The same object serves another client. */
    next_client(c, pair);
    SSL_set_fd(c->server, c->ends[0]);
    SSL_set_accept_state(c->server);
    watch(c, epoll, EPOLL_CTL_ADD, EPOLLIN);
    complete(c);
    drop_all(c);
}

/* An object whose connection was established serves another client, whose handshake begins with a call that reads. */
static void clear_and_read(void)
{
    int epoll = new_epoll(), before;
    struct connection *c = connect_one(epoll);

    complete(c);
    before = suspensions;
    printf("SSL_clear: %d\n", SSL_clear(c->server));
    next_client(c, pair);
    SSL_set_fd(c->server, c->ends[0]);
    SSL_set_accept_state(c->server);
    watch(c, epoll, EPOLL_CTL_ADD, EPOLLIN);
    start_by(read_one, c);
    if (library != NULL && suspensions == before)
        puts("the second was not suspended");
    drop_all(c);
}

static void two_references(void)
{
    struct connection *c = connect_one(new_epoll());

    SSL_up_ref(c->server);
    call_once(c);
    SSL_free(c->server);
    CHECK(SSL_get_rfd(c->server) == c->ends[0]);
    complete(c);
    SSL_up_ref(c->server);
    SSL_free(c->server);
    drop(c);
    printf("freed: %d\n", freed);
}

static void two_references_and_a_free(void)
{
    struct connection *c = connect_one(new_epoll());

    call_once(c);
    SSL_up_ref(c->server);
    SSL_free(c->server);
    printf("freed: %d\n", freed);
    drop(c);
    printf("freed: %d\n", freed);
}

static void duplicate(void)
{
    struct connection *c = connect_one(new_epoll());
    SSL *copy;

    call_once(c);
    copy = SSL_dup(c->server);
    printf("the same: %d\n", copy == c->server);
    SSL_free(copy);
    complete(c);
    drop(c);
    printf("freed: %d\n", freed);
}

static void another_descriptor(void)
{
    struct connection *c = connect_one(new_epoll());
    int other = dup(c->ends[0]);

    call_once(c);
    CHECK(SSL_set_fd(c->server, other) == 1);
    complete(c);
    drop_all(c);
    close(other);
}

static void shut_down(void)
{
    struct connection *c = connect_one(new_epoll());
    int result;

    call_once(c);
    result = SSL_shutdown(c->server);
    printf("SSL_shutdown: %d, %d", result, SSL_get_error(c->server, result));
    printf(", %s\n", ERR_reason_error_string(ERR_get_error()));
    complete(c);
    printf("SSL_shutdown: %d\n", SSL_shutdown(c->server));
    drop_all(c);
}

static void close_before_free(void)
{
    int epoll = new_epoll(), other;
    struct connection *c = connect_one(epoll);
    struct epoll_event event = { .events = EPOLLIN };

    call_once(c);
    close(c->ends[0]);
    /* Another file with the same number, of which nothing is to be told. */
    other = eventfd(0, EFD_NONBLOCK);
    CHECK(other == c->ends[0] && epoll_ctl(epoll, EPOLL_CTL_ADD, other, &event) == 0);
    printf("events: %d\n", epoll_wait(epoll, &event, 1, 20));
    drop(c);
    printf("events: %d, freed: %d\n", epoll_wait(epoll, &event, 1, 20), freed);
}

/* As before, but the number changes hands without a `close`. */
static void replaced_by_dup2(void)
{
    int epoll = new_epoll(), other = eventfd(0, EFD_NONBLOCK);
    struct connection *c = connect_one(epoll);
    struct epoll_event event = { .events = EPOLLIN };

    call_once(c);
    CHECK(dup2(other, c->ends[0]) == c->ends[0]);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, c->ends[0], &event) == 0);
    printf("events: %d\n", epoll_wait(epoll, &event, 1, 20));
    drop(c);
    printf("events: %d\n", epoll_wait(epoll, &event, 1, 20));
}

/* The number of the socket becomes another connection's before the first one is freed: no byte of the first comes there. */
static void number_used_again(void)
{
    int way;

    for (way = 0; way < 4; way++) {
        int epoll = new_epoll(), elsewhere = epoll_create1(0), ends[2];
        struct connection *c = connect_one(epoll);
        struct epoll_event event = { .events = EPOLLIN };
        char bytes[16];

        call_once(c);
        close(c->ends[0]);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0 && ends[0] == c->ends[0]);
        CHECK(send(ends[1], "hello", 5, 0) == 5);
        if (way == 0)
            CHECK(epoll_wait(epoll, &event, 1, 5) == 0);
        else if (way == 1)
            CHECK(poll(NULL, 0, 5) == 0);
        else if (way == 2)
            CHECK(epoll_ctl(elsewhere, EPOLL_CTL_ADD, ends[0], &event) == 0);
        else
            SSL_set_accept_state(c->server);
        CHECK(poll(NULL, 0, 5) == 0);
        drop(c);
        printf("way %d: %d sent, ", way, (int)recv(ends[1], bytes, sizeof bytes, 0));
        printf("%d received\n", (int)recv(ends[0], bytes, sizeof bytes, 0));
        close(ends[0]);
        close(ends[1]);
        SSL_free(c->client);
        close(c->ends[1]);
        close(epoll);
        close(elsewhere);
        free(c);
    }
}

/* The socket is registered anew in the middle, and its removal before that was not seen: the socket is open. */
static void removed_unseen(void)
{
    int way;

    for (way = 0; way < 2; way++) {
        int epoll = new_epoll(), same = dup(epoll);
        struct connection *c = connect_one(epoll);

        call_once(c);
        if (way == 0)
            CHECK(epoll_ctl(same, EPOLL_CTL_DEL, c->ends[0], NULL) == 0);
        else
            CHECK(syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_DEL, c->ends[0], NULL) == 0);
        watch(c, epoll, EPOLL_CTL_ADD, EPOLLIN);
        complete(c);
        drop_all(c);
        close(epoll);
        close(same);
    }
}

static void *close_own_table(void *unused)
{
    (void)unused;
    CHECK(close_range(3, ~0U, CLOSE_RANGE_UNSHARE) == 0);
    return NULL;
}

/* A thread gets a table of descriptors of its own, and closes all that are in it: those of other threads stay open. */
static void closed_in_another_table(void)
{
    struct connection *c = connect_one(new_epoll());

    call_once(c);
    on_a_thread(close_own_table, NULL);
    complete(c);
    drop_all(c);
}

static void close_everything(void)
{
    int i;
    struct connection *c[3];

    for (i = 0; i < 3; i++) {
        c[i] = connect_one(new_epoll());
        call_once(c[i]);
        if (i == 0)
            closefrom(3);
        else if (i == 1)
            CHECK(close_range(3, ~0U, 0) == 0);
        else
            for (int fd = 3; fd < 100; fd++)
                close(fd);
    }
    for (i = 0; i < 3; i++)
        drop(c[i]);
    c[0] = connect_one(new_epoll());
    complete(c[0]);
    printf("freed: %d\n", freed);
}

/* A fork whose child ends by itself if it hangs. */
static pid_t fork_once(void)
{
    pid_t child = fork();

    if (child == 0)
        alarm(60);
    return child;
}

static pid_t fork_in_handshake(struct connection *c)
{
    call_once(c);
    fflush(stdout);
    return fork_once();
}

static int ended_well(pid_t child)
{
    int status = -1;

    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void fork_and_free(void)
{
    struct connection *c = connect_one(new_epoll());
    pid_t child = fork_in_handshake(c);

    if (child == 0) {
        drop_all(c);
        fflush(stdout);
        _exit(freed == 1 ? 5 : 6);
    }
    printf("child: %d\n", ended_well(child));
    complete(c);
    drop_all(c);
}

static void fork_and_serve(void)
{
    struct connection *c = connect_one(new_epoll());
    pid_t child = fork_in_handshake(c);

    if (child == 0) {
        complete(c);
        drop_all(c);
        fflush(stdout);
        _exit(5);
    }
    printf("child: %d\n", ended_well(child));
    drop(c);
}

static void fork_and_exit(void)
{
    struct connection *c = connect_one(new_epoll());
    pid_t child = fork_in_handshake(c);

    if (child == 0)
        exit(5);
    printf("child: %d\n", ended_well(child));
    complete(c);
    drop_all(c);
}

static void vfork_and_close(void)
{
    struct connection *c = connect_one(new_epoll());
    char *arguments[] = { "true", NULL };
    posix_spawn_file_actions_t actions;
    pid_t child;

    call_once(c);
    child = vfork();
    if (child == 0) {
        close(c->ends[0]);
        close(c->epoll);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    printf("child: %d\n", ended_well(child));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, c->ends[0]);
    CHECK(posix_spawn(&child, "/bin/true", &actions, NULL, arguments, NULL) == 0);
    printf("child: %d\n", ended_well(child));
    posix_spawn_file_actions_destroy(&actions);
    complete(c);
    drop_all(c);
}

static volatile int stop;

static void *register_and_close(void *unused)
{
    int epoll = epoll_create1(0), ends[2];
    struct epoll_event event = { .events = EPOLLIN };

    CHECK(pipe(ends) == 0);
    while (!stop) {
        SSL *ssl = SSL_new(context);

        epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
        epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], &event);
        close(dup(ends[0]));
        SSL_up_ref(ssl);
        SSL_free(ssl);
        SSL_free(ssl);
    }
    return unused;
}

/* Nothing in a child waits for what a thread of the parent held. */
static void fork_beside_threads(void)
{
    SSL *ssl = SSL_new(context);
    pthread_t threads[2];
    int i;

    for (i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, register_and_close, NULL);
    for (i = 0; i < 100; i++) {
        pid_t child = fork_once();

        if (child == 0) {
            int epoll = epoll_create1(0);
            struct epoll_event event = { .events = EPOLLIN };

            epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &event);
            close(1000);
            close(epoll);
            SSL_up_ref(ssl);
            SSL_free(ssl);
            _exit(5);
        }
        CHECK(ended_well(child) == 5);
    }
    stop = 1;
    for (i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    SSL_free(ssl);
    puts("all ended");
}

static void two_instances(void)
{
    int one = new_epoll(), other = new_epoll(), turns;
    struct connection *c = connect_one(one);

    watch(c, other, EPOLL_CTL_ADD, EPOLLIN);
    for (turns = 0; turns < 300 && !(c->server_done && c->client_done); turns++) {
        step_client(c);
        serve(one, 5);
        serve(other, 5);
    }
    CHECK(c->server_done && c->client_done);
    greet(c);
    drop_all(c);
}

/* From one instance to another in which this thread has never waited. */
static void another_instance(void)
{
    int one = new_epoll(), other = epoll_create1(0);
    struct connection *c = connect_one(one);

    call_once(c);
    CHECK(epoll_ctl(one, EPOLL_CTL_DEL, c->ends[0], NULL) == 0);
    watch(c, other, EPOLL_CTL_ADD, EPOLLIN);
    complete(c);
    drop_all(c);
}

static void unwatched_for_a_while(void)
{
    int epoll = new_epoll();
    struct connection *c = connect_one(epoll);
    struct epoll_event event;

    call_once(c);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, c->ends[0], NULL) == 0);
    printf("events: %d\n", epoll_wait(epoll, &event, 1, 10));
    watch(c, epoll, EPOLL_CTL_ADD, EPOLLIN);
    complete(c);
    drop_all(c);
}

/* The socket is watched anew for each event, as some event loops do. */
static void watched_for_each_event(void)
{
    int epoll = new_epoll(), turns;
    struct connection *c = connect_one(epoll);
    struct epoll_event event;

    for (turns = 0; turns < 300 && !(c->server_done && c->client_done); turns++) {
        step_client(c);
        if (epoll_wait(epoll, &event, 1, 10) != 1)
            continue;
        CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, c->ends[0], NULL) == 0);
        step_server(c);
        watch(c, epoll, EPOLL_CTL_ADD, EPOLLIN);
    }
    CHECK(c->server_done && c->client_done);
    greet(c);
    drop_all(c);
}

/* The instance is itself watched, in another one, or by poll. */
static void nested_instances(void)
{
    int inner = epoll_create1(0), outer = new_epoll(), turns;
    struct connection *c = connect_one(inner);
    struct epoll_event event = { .events = EPOLLIN, .data.fd = inner };

    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == 0);
    for (turns = 0; turns < 300 && !(c->server_done && c->client_done); turns++) {
        step_client(c);
        if (epoll_wait(outer, &event, 1, 10) == 1)
            serve(inner, 0);
    }
    CHECK(c->server_done && c->client_done);
    greet(c);
    drop_all(c);
}

static void polled_instance(void)
{
    int epoll = new_epoll(), turns;
    struct connection *c = connect_one(epoll);
    struct pollfd watched = { .fd = epoll, .events = POLLIN };

    for (turns = 0; turns < 300 && !(c->server_done && c->client_done); turns++) {
        step_client(c);
        if (poll(&watched, 1, 10) == 1)
            serve(epoll, 0);
    }
    CHECK(c->server_done && c->client_done);
    greet(c);
    drop_all(c);
}

/* After one call the server waits for this connection in other ways. */
static void other_waits(void)
{
    int way, turns;

    for (way = 0; way < 5; way++) {
        struct connection *c = connect_one(new_epoll());
        struct pollfd watched = { .fd = c->ends[0], .events = POLLIN };
        struct timespec short_time = { 0, 10000000 };
        struct timeval as_short = { 0, 10000 };
        struct epoll_event event;
        fd_set set;
        int ready = 0;

        call_once(c);
        for (turns = 0; turns < 300 && !(c->server_done && c->client_done); turns++) {
            step_client(c);
            FD_ZERO(&set);
            FD_SET(c->ends[0], &set);
            if (way == 0)
                ready = poll(&watched, 1, 10);
            else if (way == 1)
                ready = ppoll(&watched, 1, &short_time, NULL);
            else if (way == 2)
                ready = select(c->ends[0] + 1, &set, NULL, NULL, &as_short);
            else if (way == 3)
                ready = pselect(c->ends[0] + 1, &set, NULL, NULL, &short_time, NULL);
            else
                ready = epoll_pwait2(c->epoll, &event, 1, &short_time, NULL);
            if (ready == 1)
                step_server(c);
        }
        printf("way %d: %d %d\n", way, c->server_done, c->client_done);
        drop_all(c);
    }
}

/* The server does not wait at all. */
static void busy(void)
{
    struct connection *c = connect_one(new_epoll());
    int turns;

    for (turns = 0; turns < 10000 && !(c->server_done && c->client_done); turns++) {
        step_client(c);
        step_server(c);
    }
    printf("done: %d %d\n", c->server_done, c->client_done);
    drop_all(c);
}

/* A connection that was accepted; the first call comes before the socket is watched. */
static void accepted(int alias)
{
    int epoll = new_epoll(), other = -1;
    struct connection *c = connect_by(accept_one);

    SSL_set_accept_state(c->server);
    step_client(c);
    if (alias) {
        struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = c };

        /* Watched under another number, and the edge is gone before the first call. */
        other = alias == 1 ? dup(c->ends[0]) : fcntl(c->ends[0], F_DUPFD_CLOEXEC, 50);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, other, &event) == 0);
        CHECK(epoll_wait(epoll, &event, 1, 1000) == 1);
        c->epoll = epoll;
        step_server(c);
    } else {
        step_server(c);
        watch(c, epoll, EPOLL_CTL_ADD, EPOLLIN | EPOLLET);
    }
    complete(c);
    drop_all(c);
    close(other);
}

static void accepted_and_called_first(void)
{
    accepted(0);
}

static void watched_under_other_numbers(void)
{
    accepted(1);
    accepted(2);
}

/* SSL_accept says what the connection is, and SSL_read has the handshake. */
static void accepted_and_read(void)
{
    struct connection *c = connect_by(accept_one);
    int epoll = new_epoll(), result;

    result = SSL_accept(c->server);
    CHECK(result == -1 && SSL_get_error(c->server, result) == SSL_ERROR_WANT_READ);
    watch(c, epoll, EPOLL_CTL_ADD, EPOLLIN);
    start_by(read_one, c);
    drop_all(c);
}

static void context_goes_first(void)
{
    struct connection *c = connect_one(new_epoll()), *d = connect_one(new_epoll());

    call_once(c);
    call_once(d);
    SSL_CTX_free(context);
    context = NULL;
    drop(c);
    complete(d);
    drop(d);
    printf("freed: %d\n", freed);
}

static void another_context(void)
{
    struct connection *c = connect_one(new_epoll());
    SSL_CTX *other = server_context(SSL_CTX_get_max_proto_version(context));

    call_once(c);
    CHECK(SSL_set_SSL_CTX(c->server, other) == other);
    SSL_CTX_free(other);
    complete(c);
    drop_all(c);
}

/* The handshake begins anew, on the client's old bytes: it fails or waits, and can be freed. */
static void another_state(void)
{
    struct connection *c = connect_one(new_epoll());

    call_once(c);
    SSL_set_accept_state(c->server);
    printf("before: %d\n", SSL_in_before(c->server));
    drop_all(c);
}

/* Carries what the server reads and writes in memory between that and its socket. */
static void complete_by_memory(struct connection *c, BIO *in, BIO *out)
{
    char bytes[16384];
    int turns, len;

    for (turns = 0; turns < 300 && !(c->server_done && c->client_done); turns++) {
        step_client(c);
        len = recv(c->ends[0], bytes, sizeof bytes, 0);
        if (len > 0)
            BIO_write(in, bytes, len);
        step_server(c);
        len = BIO_read(out, bytes, sizeof bytes);
        if (len > 0)
            CHECK(send(c->ends[0], bytes, len, 0) == len);
    }
    printf("done: %d %d\n", c->server_done, c->client_done);
    drop_all(c);
}

static void memory(void)
{
    struct connection *c = connect_unwatched();
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());

    wait_once(new_epoll());
    SSL_set_bio(c->server, in, out);
    SSL_set_accept_state(c->server);
    complete_by_memory(c, in, out);
}

/* In the middle of the handshake, memory takes the place of the socket. */
static void memory_in_the_middle(void)
{
    struct connection *c = connect_one(new_epoll());
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());

    call_once(c);
    SSL_set_bio(c->server, in, out);
    complete_by_memory(c, in, out);
}

static void buffer(void)
{
    struct connection *c = connect_one(new_epoll());
    BIO *socket = BIO_new_socket(c->ends[0], BIO_NOCLOSE);

    BIO_up_ref(socket);
    SSL_set_bio(c->server, BIO_push(BIO_new(BIO_f_buffer()), socket), socket);
    complete(c);
    drop_all(c);
}

static void own_jobs(void)
{
    struct connection *c = connect_one(new_epoll());

    SSL_set_mode(c->server, SSL_MODE_ASYNC);
    complete(c);
    drop_all(c);
}

static struct connection *victim;

static void suspend_victim(int epoll)
{
    victim = connect_one(epoll);
    call_once(victim);
}

static void free_victim(SSL *ssl)
{
    (void)ssl;
    drop(victim);
}

static void callback_frees_another(void)
{
    int epoll = new_epoll();
    struct connection *c;

    suspend_victim(epoll);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, victim->ends[0], NULL) == 0);
    c = connect_one(epoll);
    in_callback = free_victim;
    complete(c);
    drop(c);
    printf("freed: %d\n", freed);
}

static void serve_victim(SSL *ssl)
{
    int turns;

    (void)ssl;
    for (turns = 0; turns < 300 && !(victim->server_done && victim->client_done); turns++) {
        step_client(victim);
        serve(victim->epoll, 10);
    }
    CHECK(victim->server_done && victim->client_done);
}

static void callback_waits(void)
{
    int epoll = new_epoll();
    struct connection *c = connect_one(epoll);

    /* In an instance of its own, as an inner event loop has. */
    suspend_victim(new_epoll());
    in_callback = serve_victim;
    complete(c);
    drop(c);
    drop(victim);
}

static void handshake_of_its_own(SSL *ssl)
{
    (void)ssl;
    plain();
}

static void callback_has_a_handshake_of_its_own(void)
{
    struct connection *c = connect_one(new_epoll());

    in_callback = handshake_of_its_own;
    complete(c);
    drop_all(c);
}

static void end_the_process(SSL *ssl)
{
    (void)ssl;
    puts("ends in a callback");
    exit(0);
}

static void drop_victim(void)
{
    drop(victim);
}

static void exit_in_a_callback(void)
{
    struct connection *c;

    suspend_victim(new_epoll());
    atexit(drop_victim);
    c = connect_one(new_epoll());
    in_callback = end_the_process;
    complete(c);
}

/* When thread-locals of the library are gone. */
static void exit_with_a_handshake(void)
{
    struct connection *c = connect_one(new_epoll());

    complete(c);
    victim = c;
    atexit(drop_victim);
    exit(0);
}

static SSL *in_destructor;

__attribute__((destructor)) static void at_the_very_end(void)
{
    SSL_free(in_destructor);
}

static void free_at_the_very_end(void)
{
    struct connection *c = connect_one(new_epoll());

    complete(c);
    in_destructor = c->server;
}

static void clear_late(void)
{
    SSL_clear(in_destructor);
    SSL_free(SSL_new(context));
}

static void clear_at_exit(void)
{
    in_destructor = SSL_new(context);
    atexit(clear_late);
    SSL_free(SSL_new(context));
}

static pthread_key_t key;

static void free_value(void *value)
{
    drop(value);
    printf("freed: %d\n", freed);
}

static void *thread_with_value(void *middle)
{
    int epoll = new_epoll();
    struct connection *c, *d;

    warm_up(epoll);
    c = connect_one(epoll);
    d = connect_one(epoll);
    call_once(d);
    complete(d);
    if (middle != NULL)
        call_once(c);
    else
        complete(c);
    pthread_setspecific(key, c);
    drop(d);
    return NULL;
}

static void thread_ends(void)
{
    int middle;

    pthread_key_create(&key, free_value);
    for (middle = 0; middle < 2; middle++)
        on_a_thread(thread_with_value, middle ? &middle : NULL);
}

static void *thread_calls_once(void *of)
{
    struct connection **c = of;
    int epoll = new_epoll();

    warm_up(epoll);
    *c = connect_one(epoll);
    call_once(*c);
    return NULL;
}

/* The thread in which the handshake began is gone. */
static void freed_after_its_thread(void)
{
    struct connection *c;

    on_a_thread(thread_calls_once, &c);
    drop(c);
    printf("freed: %d\n", freed);
}

static void *thread_frees(void *of)
{
    struct connection *c = of;

    drop(c);
    return NULL;
}

/* Another thread frees a connection in the middle: no event comes for it any more. */
static void freed_by(void *(*frees)(void *))
{
    int epoll = new_epoll(), turns;
    struct connection *c = connect_one(epoll), *d = connect_one(epoll);
    struct epoll_event event;

    call_once(c);
    on_a_thread(frees, c);
    /* The socket stays open and watched; its bytes were read. */
    for (turns = 0; turns < 3; turns++)
        printf("events: %d\n", epoll_wait(epoll, &event, 1, 10));
    printf("freed: %d\n", freed);
    complete(d);
    drop_all(d);
    close(c->ends[0]);
}

static void freed_elsewhere(void)
{
    freed_by(thread_frees);
}

static void *thread_gives_a_reference_back(void *of)
{
    struct connection *c = of;

    SSL_free(c->server);
    return NULL;
}

static void reference_given_back_elsewhere(void)
{
    struct connection *c = connect_one(new_epoll());

    SSL_up_ref(c->server);
    call_once(c);
    on_a_thread(thread_gives_a_reference_back, c);
    complete(c);
    drop(c);
    printf("freed: %d\n", freed);
}

static void *thread_completes(void *of)
{
    complete(of);
    return NULL;
}

/* Moved in the middle by the thread that has it, to one that waits elsewhere. */
static void moved(void)
{
    struct connection *c = connect_one(new_epoll());

    call_once(c);
    CHECK(epoll_ctl(c->epoll, EPOLL_CTL_DEL, c->ends[0], NULL) == 0);
    watch(c, epoll_create1(0), EPOLL_CTL_ADD, EPOLLIN);
    on_a_thread(thread_completes, c);
    drop_all(c);
}

static void *waits_for_ever(void *epoll)
{
    struct epoll_event event;

    for (;;)
        epoll_wait(*(int *)epoll, &event, 1, -1);
    return NULL;
}

static void *accepts_for_ever(void *listener)
{
    for (;;)
        accept(*(int *)listener, NULL, NULL);
    return NULL;
}

static void cancel(void *(*work)(void *), void *of)
{
    pthread_t thread;
    void *result;

    pthread_create(&thread, NULL, work, of);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    CHECK(result == PTHREAD_CANCELED);
}

/* A thread is cancelled in a function that waits. */
static void cancelled_threads(void)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    int epoll = new_epoll(), listener = socket(AF_UNIX, SOCK_STREAM, 0);

    CHECK(bind(listener, (struct sockaddr *)&name, sizeof name.sun_family) == 0 && listen(listener, 1) == 0);
    cancel(waits_for_ever, &epoll);
    cancel(accepts_for_ever, &listener);
    puts("cancelled");
}

static void unload(void)
{
    struct connection *c = connect_one(new_epoll());
    void *again = dlopen("libssl.so.3", RTLD_NOW), *other = dlopen("libz.so.1", RTLD_NOW);

    call_once(c);
    if (again != NULL)
        dlclose(again);
    if (other != NULL)
        dlclose(other);
    complete(c);
    drop_all(c);
}

/* ---- Event loops of each kind. */

#define MANY 20

static const char *const ways[] = { "poll", "ppoll", "select", "pselect", "epoll_pwait", "epoll_pwait2" };

/* Waits for the servers' sockets, and says which are readable. */
static void wait_for_servers(int way, struct connection **c, int epoll, char *readable)
{
    struct timespec short_time = { 0, 1000000 };
    struct timeval as_short = { 0, 1000 };
    struct epoll_event events[MANY];
    struct pollfd fds[MANY];
    int i, j, count = 0, most = 0;
    fd_set set;

    FD_ZERO(&set);
    for (i = 0; i < MANY; i++) {
        fds[i] = (struct pollfd){ .fd = c[i]->ends[0], .events = POLLIN };
        FD_SET(c[i]->ends[0], &set);
        most = c[i]->ends[0] > most ? c[i]->ends[0] : most;
        readable[i] = 0;
    }
    switch (way) {
    case 0: count = poll(fds, MANY, 1); break;
    case 1: count = ppoll(fds, MANY, &short_time, NULL); break;
    case 2: count = select(most + 1, &set, NULL, NULL, &as_short); break;
    case 3: count = pselect(most + 1, &set, NULL, NULL, &short_time, NULL); break;
    case 4: count = epoll_pwait(epoll, events, MANY, 1, NULL); break;
    case 5: count = epoll_pwait2(epoll, events, MANY, &short_time, NULL); break;
    }
    CHECK(count >= 0);
    for (i = 0; i < MANY; i++) {
        if (way < 2)
            readable[i] = fds[i].revents != 0;
        else if (way < 4)
            readable[i] = count > 0 && FD_ISSET(c[i]->ends[0], &set);
        for (j = 0; way >= 4 && j < count; j++)
            readable[i] |= events[j].data.ptr == c[i];
        count -= way < 4 && readable[i];
    }
    CHECK(way >= 4 || count == 0);
}

static void loops(void)
{
    int way, i, turns, done = 0;

    for (way = 0; way < 6; way++, done = 0) {
        int before = suspensions, epoll = new_epoll();
        struct connection *c[MANY];
        char readable[MANY];

        for (i = 0; i < MANY; i++) {
            c[i] = connect_unwatched();
            SSL_set_accept_state(c[i]->server);
            if (way >= 4)
                watch(c[i], epoll, EPOLL_CTL_ADD, EPOLLIN);
            /* As servers do that expect the client's bytes with the connection. */
            step_server(c[i]);
        }
        for (turns = 0; turns < 500 && done < MANY; turns++) {
            for (done = i = 0; i < MANY; i++) {
                step_client(c[i]);
                done += c[i]->server_done && c[i]->client_done;
            }
            wait_for_servers(way, c, epoll, readable);
            for (i = 0; i < MANY; i++)
                if (readable[i])
                    step_server(c[i]);
        }
        printf("%s: %d\n", ways[way], done);
        CHECK(library == NULL || suspensions - before > MANY / 2);
        for (i = 0; i < MANY; i++) {
            greet(c[i]);
            drop_all(c[i]);
        }
    }
}

/* One connection at a time has nothing to share: it is not suspended in poll. */
static void alone_in_poll(void)
{
    struct connection *c = connect_unwatched();
    struct pollfd watched = { .fd = c->ends[0], .events = POLLIN };
    int turns;

    SSL_set_accept_state(c->server);
    for (turns = 0; turns < 300 && !(c->server_done && c->client_done); turns++) {
        step_client(c);
        if (poll(&watched, 1, 10) == 1)
            step_server(c);
    }
    printf("done: %d, suspended: %d\n", c->server_done && c->client_done, suspensions);
    drop_all(c);
}

/* The thread sleeps where nothing tells it of the connection: the client gets its answer all the same. */
static void sleeps_elsewhere(void)
{
    int way, turns;

    for (way = 0; way < 4; way++) {
        struct connection *c = connect_one(new_epoll());
        int other = epoll_create1(0);
        struct pollfd watched = { .fd = eventfd(0, 0), .events = POLLIN };
        struct epoll_event event = { .events = EPOLLIN };
        struct timeval short_time = { 0, 5000 };

        call_once(c);
        for (turns = 0; turns < 3; turns++) {
            if (way == 0)
                CHECK(epoll_wait(other, &event, 1, 5) == 0);
            else if (way == 1)
                CHECK(poll(&watched, 1, 5) == 0);
            else if (way == 2)
                CHECK(select(0, NULL, NULL, NULL, &short_time) == 0);
            else
                CHECK(poll(NULL, 0, 5) == 0);
        }
        step_client(c);
        printf("client done: %d\n", c->client_done);
        complete(c);
        drop_all(c);
    }
}

/* The handshake ends in a call that the server has not made. The client waits for the server then. */
static void ends_unasked(void)
{
    struct connection *c = connect_one(new_epoll());
    int turns;

    for (turns = 0; turns < 300 && !c->server_done; turns++) {
        step_client(c);
        serve(c->epoll, 10);
        if (!c->server_done)
            CHECK(SSL_set_fd(c->server, c->ends[0]) == 1);
    }
    CHECK(c->server_done);
    complete(c);
    drop_all(c);
}

/* The client goes away meanwhile, and the server learns why. */
static void fails_unasked(void)
{
    struct connection *c = connect_one(new_epoll());
    int turns, result = -1, error = SSL_ERROR_WANT_READ;

    call_once(c);
    /* No record of TLS. */
    CHECK(send(c->ends[1], "GET / HTTP/1.0\r\n\r\n", 18, 0) == 18);
    CHECK(poll(NULL, 0, 5) == 0);
    for (turns = 0; turns < 300 && error == SSL_ERROR_WANT_READ; turns++) {
        struct epoll_event event;

        CHECK(epoll_wait(c->epoll, &event, 1, 1000) == 1);
        result = SSL_do_handshake(c->server);
        error = SSL_get_error(c->server, result);
    }
    printf("%d %d %s\n", result, error, ERR_reason_error_string(ERR_get_error()));
    drop_all(c);
}

static void blocking_in_the_middle(void)
{
    struct connection *c = connect_one(new_epoll());

    call_once(c);
    serve_blocking(c);
}

/* ---- Connections that others free. */

static void owned_by_a_bio(void)
{
    struct connection *c = connect_one(new_epoll());
    BIO *owner = BIO_new(BIO_f_ssl());

    BIO_set_ssl(owner, c->server, BIO_CLOSE);
    call_once(c);
    c->is_alive = 0;
    BIO_free_all(owner);
    printf("freed: %d, late calls: %d\n", freed, c->late_calls);
}

/* By a function that the library does not stand in for, and the address is used again. */
static void freed_past_the_library(void)
{
    void (*real_free)(SSL *) = (void (*)(SSL *))of_openssl("SSL_free");
    int epoll = new_epoll(), i, turns;
    struct epoll_event event;

    for (i = 0; i < 10; i++) {
        struct connection *c = connect_one(epoll), *d;

        call_once(c);
        c->is_alive = 0;
        real_free(c->server);
        CHECK(freed == 2 * i + 1 && c->late_calls == 0);
        for (turns = 0; turns < 3; turns++)
            CHECK(epoll_wait(epoll, &event, 1, 1) == 0);
        d = connect_one(epoll);
        complete(d);
        drop_all(d);
        close(c->ends[0]);
        SSL_free(c->client);
        close(c->ends[1]);
    }
}

/* An object whose connection was established is cleared by a function that the library does not stand in for, and serves a
 * socket that was just accepted. */
static void cleared_past_the_library(void)
{
    int (*real_clear)(SSL *) = (int (*)(SSL *))of_openssl("SSL_clear");
    struct connection *c = connect_one(new_epoll());

    complete(c);
    next_client(c, accept_one);
    CHECK(real_clear(c->server) == 1 && SSL_set_fd(c->server, c->ends[0]) == 1);
    SSL_set_accept_state(c->server);
    step_server(c);
    watch(c, c->epoll, EPOLL_CTL_ADD, EPOLLIN);
    complete(c);
    drop_all(c);
}

static void *thread_frees_past_the_library(void *of)
{
    void (*real_free)(SSL *) = (void (*)(SSL *))of_openssl("SSL_free");
    struct connection *c = of;

    c->is_alive = 0;
    real_free(c->server);
    return NULL;
}

static void freed_elsewhere_past_the_library(void)
{
    freed_by(thread_frees_past_the_library);
}

/* ---- Callbacks that wait in their own ways. */

static void wait_in_each_way(void)
{
    struct timespec short_time = { 0, 100000 };
    struct timeval as_short = { 0, 100 };
    struct epoll_event event;
    static int other = -1;
    struct pollfd watched;

    if (other < 0)
        other = eventfd(0, 0);
    watched = (struct pollfd){ .fd = other, .events = POLLIN };
    CHECK(poll(&watched, 1, 1) == 0 && ppoll(NULL, 0, &short_time, NULL) == 0);
    CHECK(select(0, NULL, NULL, NULL, &as_short) == 0);
    if (victim != NULL)
        CHECK(epoll_wait(victim->epoll, &event, 1, 0) >= 0);
}

static void on_info_wait(const SSL *ssl, int where, int result)
{
    (void)ssl, (void)where, (void)result;
    wait_in_each_way();
}

static void on_secret_wait(const SSL *ssl, const char *line)
{
    (void)ssl, (void)line;
    wait_in_each_way();
}

static int on_session_wait(SSL *ssl, SSL_SESSION *session)
{
    (void)ssl, (void)session;
    wait_in_each_way();
    return 0;
}

static int on_name_wait(SSL *ssl, int *alert, void *unused)
{
    (void)ssl, (void)alert, (void)unused;
    wait_in_each_way();
    return SSL_TLSEXT_ERR_OK;
}

static void callbacks_wait(void)
{
    int epoll = new_epoll(), i, turns, done = 0;
    struct connection *c[6];

    SSL_CTX_set_info_callback(context, on_info_wait);
    SSL_CTX_set_keylog_callback(context, on_secret_wait);
    SSL_CTX_sess_set_new_cb(context, on_session_wait);
    SSL_CTX_set_tlsext_servername_callback(context, on_name_wait);
    for (i = 0; i < 6; i++)
        c[i] = connect_one(epoll);
    for (turns = 0; turns < 500 && done < 6; turns++) {
        for (done = i = 0; i < 6; i++) {
            step_client(c[i]);
            done += c[i]->server_done && c[i]->client_done;
        }
        victim = done < 6 ? c[turns % 6] : NULL;
        serve(epoll, 1);
    }
    victim = NULL;
    printf("done: %d\n", done);
    for (i = 0; i < 6; i++)
        drop_all(c[i]);
}

/* ---- Threads. */

static void wait_until_stopped(int epoll)
{
    struct epoll_event event;

    while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST))
        epoll_wait(epoll, &event, 1, 5);
}

/* It also asks without an event: the thread that began may have read what came, and it cannot tell this one. */
static void *thread_takes_over(void *of)
{
    struct connection *c = of;
    struct epoll_event event;
    int turns;

    watch(c, new_epoll(), EPOLL_CTL_ADD, EPOLLIN);
    for (turns = 0; turns < 5000 && !(c->server_done && c->client_done); turns++) {
        step_client(c);
        step_server(c);
        if (epoll_wait(c->epoll, &event, 1, 1) == 1)
            poll(NULL, 0, 1);
    }
    CHECK(c->server_done && c->client_done);
    greet(c);
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* A thread takes a connection over in the middle, and the one that began it goes on waiting elsewhere. */
static void taken_over(void)
{
    struct connection *c = connect_one(new_epoll());
    int epoll = c->epoll;
    pthread_t thread;

    call_once(c);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, c->ends[0], NULL) == 0);
    pthread_create(&thread, NULL, thread_takes_over, c);
    wait_until_stopped(epoll);
    pthread_join(thread, NULL);
    drop_all(c);
}

static void *thread_steps_server(void *of)
{
    step_server(of);
    return NULL;
}

/* One thread waits, others do the calls. */
static void served_by_other_threads(void)
{
    struct connection *c = connect_one(new_epoll());
    struct epoll_event event;
    int turns;

    call_once(c);
    for (turns = 0; turns < 300 && !(c->server_done && c->client_done); turns++) {
        step_client(c);
        if (epoll_wait(c->epoll, &event, 1, 10) == 1)
            on_a_thread(thread_steps_server, c);
    }
    CHECK(c->server_done && c->client_done);
    greet(c);
    drop_all(c);
}

static void *thread_serves(void *epoll)
{
    int turns;

    wait_once(*(int *)epoll);
    warm_up(*(int *)epoll);
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (turns = 0; turns < 1000 && !victim->server_done; turns++)
        serve(*(int *)epoll, 10);
    return NULL;
}

static pthread_t last_thread;

static void *thread_serves_some(void *epoll)
{
    int before = suspensions, i;

    for (i = 0; i < 12; i++) {
        struct connection *c = connect_one(*(int *)epoll);

        complete(c);
        drop_all(c);
    }
    /* One that is another thread for the library shares the instance with it. */
    if (library != NULL && suspensions == before && (last_thread == 0 || last_thread == pthread_self()))
        puts("nothing was suspended in a thread");
    last_thread = pthread_self();
    return NULL;
}

/* A thread waits where one waited that has ended and whose number it has. */
static void threads_after_each_other(void)
{
    int epoll = epoll_create1(0), i;

    for (i = 0; i < 3; i++)
        on_a_thread(thread_serves_some, &epoll);
    printf("threads: %d\n", i);
}

/* One thread accepts, another one has the handshake. */
static void handed_over(void)
{
    struct connection *c = connect_unwatched();
    int epoll = epoll_create1(0), turns;
    pthread_t thread;

    victim = c;
    SSL_set_accept_state(c->server);
    pthread_create(&thread, NULL, thread_serves, &epoll);
    wait_until_stopped(new_epoll());
    watch(c, epoll, EPOLL_CTL_ADD, EPOLLIN);
    for (turns = 0; turns < 1000 && !(c->server_done && c->client_done); turns++) {
        step_client(c);
        poll(NULL, 0, 5);
    }
    pthread_join(thread, NULL);
    CHECK(c->server_done && c->client_done);
    greet(c);
    drop_all(c);
}

#define SHARED 12

static struct connection *shared[SHARED];
static pthread_mutex_t shared_locks[SHARED];
static int own_instances, have_waited;

static void step_shared(int i)
{
    if (pthread_mutex_trylock(&shared_locks[i]) != 0)
        return;
    step_server(shared[i]);
    pthread_mutex_unlock(&shared_locks[i]);
}

static void *thread_juggles(void *at)
{
    int epoll = *(int *)at, count, i;
    unsigned random = epoll;
    struct epoll_event events[4];

    CHECK(epoll_wait(epoll, events, 4, 1) == 0);
    __atomic_fetch_add(&have_waited, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
        count = epoll_wait(epoll, events, 4, 1);
        for (i = 0; i < count; i++)
            step_shared(events[i].data.u32);
        random = random * 1103515245 + 12345;
        if (own_instances && random >> 16 & 1)
            step_shared((random >> 20) % SHARED);
    }
    return NULL;
}

/* Threads that wait in one instance, or that each have one and take connections from each other. */
static void juggle(int own)
{
    int i, turns, done = 0, epoll[4];
    pthread_t threads[4];

    own_instances = own;
    for (i = 0; i < 4; i++)
        epoll[i] = own || i == 0 ? epoll_create1(0) : epoll[0];
    for (i = 0; i < SHARED; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data.u32 = i };

        pthread_mutex_init(&shared_locks[i], NULL);
        shared[i] = connect_unwatched();
        SSL_set_accept_state(shared[i]->server);
        CHECK(epoll_ctl(epoll[i % 4], EPOLL_CTL_ADD, shared[i]->ends[0], &event) == 0);
    }
    stop = 0;
    for (i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, thread_juggles, &epoll[i]);
    /* Otherwise the first thread may serve so many alone that its instance counts as its own. */
    while (__atomic_load_n(&have_waited, __ATOMIC_SEQ_CST) < 4)
        poll(NULL, 0, 1);
    for (turns = 0; turns < 2000 && done < SHARED; turns++) {
        poll(NULL, 0, 1);
        for (done = i = 0; i < SHARED; i++) {
            step_client(shared[i]);
            pthread_mutex_lock(&shared_locks[i]);
            done += shared[i]->client_done && shared[i]->server_done;
            pthread_mutex_unlock(&shared_locks[i]);
        }
    }
    /* Some are freed while others wait in the middle. */
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("done: %d\n", done);
    for (i = 0; i < SHARED; i++) {
        SSL_free(shared[i]->server);
        close(shared[i]->ends[0]);
    }
    printf("freed: %d\n", freed);
}

static void juggled(void)
{
    juggle(1);
}

static void shared_instance(void)
{
    juggle(0);
}

/* Serves a client anew in a child that has closed all descriptors of its parent's connection, and ends. */
static _Noreturn void serve_anew(struct connection *inherited)
{
    struct connection *c = connect_one(new_epoll());

    complete(c);
    drop_all(c);
    SSL_free(inherited->server);
    fflush(stdout);
    _exit(freed == 2 ? 5 : 6);
}

/* A child that closes everything and serves anew, as daemons do. */
static void becomes_a_daemon(void)
{
    struct connection *c = connect_one(new_epoll());
    pid_t child;

    call_once(c);
    fflush(stdout);
    child = fork_once();
    if (child == 0) {
        int fd;

        for (fd = 3; fd < 200; fd++)
            close(fd);
        serve_anew(c);
    }
    printf("child: %d\n", ended_well(child));
    complete(c);
    drop_all(c);
}

/* The runtime of a language is loaded after the first handshakes: later ones are OpenSSL's. */
static void runtime_comes_later(void)
{
    int epoll = new_epoll(), before;
    struct connection *c = connect_one(epoll);

    complete(c);
    drop_all(c);
    dlerror();
    CHECK(dlopen("./libguile-0.so", RTLD_NOW) != NULL);
    before = suspensions;
    c = connect_one(epoll);
    complete(c);
    drop_all(c);
    CHECK(suspensions == before);
    printf("message: %s\n", dlerror() == NULL ? "none" : "one");
}

/* The child of a fork waits, and says nothing to the parent's client. */
static void child_sleeps(void)
{
    struct connection *c = connect_one(new_epoll());
    pid_t child;

    call_once(c);
    child = fork_once();
    if (child == 0) {
        poll(NULL, 0, 10);
        epoll_wait(epoll_create1(0), &(struct epoll_event){ 0 }, 1, 10);
        _exit(5);
    }
    printf("child: %d\n", ended_well(child));
    complete(c);
    drop_all(c);
}

/* The descriptor's number is beyond all that is kept of descriptors, or no number at all. */
static void odd_numbers(void)
{
    struct epoll_event event = { .events = EPOLLIN };

    printf("%d", close(-1));
    printf(" %d", close(1 << 30));
    printf(" %d", epoll_ctl(-1, EPOLL_CTL_ADD, 0, &event));
    printf(" %d", epoll_ctl(1 << 30, EPOLL_CTL_ADD, 1 << 30, &event));
    printf(" %d", epoll_wait(-1, &event, 1, 0));
    printf(" %d", epoll_wait(new_epoll(), NULL, 0, 0));
    printf(" %d\n", dup2(-1, 1 << 30));
    SSL_free(NULL);
}

#include "handlers.h"

#define USE(name, suspends) { #name, name, suspends }

static const struct use {
    const char *name;
    void (*run)(void);
    /* Whether it shows anything only if a handshake is suspended. */
    int suspends;
} uses[] = {
    USE(plain, 1),
    USE(many, 1),
    USE(edge, 1),
    USE(one_shot, 0),
    USE(accept_unset, 1),
    USE(handshake_unset, 0),
    USE(blocking, 0),
    USE(read_starts, 1),
    USE(read_ex_starts, 1),
    USE(peek_starts, 1),
    USE(write_starts, 1),
    USE(write_ex_starts, 1),
    USE(early_data, 1),
    USE(renegotiate, 1),
    USE(free_in_the_middle, 1),
    USE(free_with_own_callback, 1),
    USE(callbacks_in_order, 1),
    USE(clear_in_the_middle, 1),
    USE(clear_and_read, 1),
    USE(two_references, 1),
    USE(two_references_and_a_free, 1),
    USE(duplicate, 1),
    USE(another_descriptor, 1),
    USE(shut_down, 1),
    USE(close_before_free, 1),
    USE(replaced_by_dup2, 1),
    USE(number_used_again, 1),
    USE(removed_unseen, 1),
    USE(closed_in_another_table, 1),
    USE(close_everything, 1),
    USE(fork_and_free, 1),
    USE(fork_and_serve, 1),
    USE(fork_and_exit, 1),
    USE(vfork_and_close, 1),
    USE(fork_beside_threads, 0),
    USE(two_instances, 0),
    USE(another_instance, 1),
    USE(unwatched_for_a_while, 1),
    USE(watched_for_each_event, 1),
    USE(nested_instances, 0),
    USE(polled_instance, 1),
    USE(other_waits, 1),
    USE(busy, 1),
    USE(accepted_and_called_first, 1),
    USE(watched_under_other_numbers, 0),
    USE(accepted_and_read, 1),
    USE(context_goes_first, 1),
    USE(another_context, 1),
    USE(another_state, 1),
    USE(memory, 0),
    USE(memory_in_the_middle, 1),
    USE(buffer, 0),
    USE(own_jobs, 0),
    USE(callback_frees_another, 1),
    USE(callback_waits, 1),
    USE(callback_has_a_handshake_of_its_own, 1),
    USE(exit_in_a_callback, 1),
    USE(exit_with_a_handshake, 1),
    USE(free_at_the_very_end, 1),
    USE(clear_at_exit, 0),
    USE(thread_ends, 1),
    USE(freed_after_its_thread, 1),
    USE(freed_elsewhere, 1),
    USE(reference_given_back_elsewhere, 1),
    USE(moved, 1),
    USE(cancelled_threads, 0),
    USE(unload, 1),
    USE(loops, 1),
    USE(alone_in_poll, 0),
    USE(sleeps_elsewhere, 1),
    USE(ends_unasked, 1),
    USE(fails_unasked, 1),
    USE(blocking_in_the_middle, 1),
    USE(owned_by_a_bio, 1),
    USE(freed_past_the_library, 1),
    USE(cleared_past_the_library, 1),
    USE(freed_elsewhere_past_the_library, 1),
    USE(callbacks_wait, 1),
    USE(taken_over, 1),
    USE(served_by_other_threads, 1),
    USE(threads_after_each_other, 1),
    USE(handed_over, 1),
    USE(juggled, 0),
    USE(shared_instance, 0),
    USE(becomes_a_daemon, 1),
    USE(child_sleeps, 1),
    USE(runtime_comes_later, 1),
    USE(odd_numbers, 0),
    USE(handler_waits, 1),
    USE(handlers_wait_anywhere, 1),
    USE(handlers_fork, 0),
    USE(callback_waits_with_a_lock, 1),
    USE(callback_jumps_away, 1),
    USE(leaders_take_turns, 0),
    USE(fork_beside_a_handshake, 1),
    USE(daemon_closes_everything, 1),
    USE(vfork_changes_its_own, 1),
    USE(other_names, 1),
};

/* Ways that the library tells of some uses: bits of the numbers in crates/status/src/way.rs. */
enum {
    WAY_EPOLL = 1 << 0,
    WAY_POLL = 1 << 1,
    WAY_SELECT = 1 << 2,
    WAY_BLOCKS = 1 << 5,
    WAY_NO_SOCKET = 1 << 6,
    WAY_NO_LOOP = 1 << 7,
    WAY_SHARED = 1 << 8,
    WAY_ONE = 1 << 9,
    WAY_MOVED = 1 << 11,
    WAY_RUNTIME = 1 << 12,
};

static const struct told {
    const char *name;
    unsigned ways;
} told[] = {
    { "plain", WAY_EPOLL },
    { "one_shot", WAY_NO_LOOP },
    { "blocking", WAY_BLOCKS },
    { "memory", WAY_NO_SOCKET },
    { "buffer", WAY_NO_SOCKET },
    { "served_by_other_threads", WAY_MOVED },
    { "runtime_comes_later", WAY_EPOLL | WAY_RUNTIME },
    { "loops", WAY_EPOLL | WAY_POLL | WAY_SELECT },
    { "alone_in_poll", WAY_ONE },
    { "shared_instance", WAY_SHARED },
};

static void check_ways(const char *name)
{
    size_t i;

    for (i = 0; i < sizeof told / sizeof *told; i++)
        if (library != NULL && strcmp(told[i].name, name) == 0 && (ways_told & told[i].ways) != told[i].ways)
            printf("ways: %x told, %x expected\n", ways_told, told[i].ways);
}

int main(int count, char **arguments)
{
    size_t i;
    int version;

    if (count != 4) {
        for (i = 0; i < sizeof uses / sizeof *uses; i++)
            printf("%s %d\n", uses[i].name, uses[i].suspends);
        return 0;
    }
    alarm(60);
    signal(SIGPIPE, SIG_IGN);
    points = arguments[2];
    is_suspended_everywhere = strcmp(points, "every") == 0;
    are_all = is_suspended_everywhere || strcmp(points, "all") == 0;
    full = is_suspended_everywhere ? (size_t)-1 : 4;
    version = strcmp(arguments[3], "1.2") == 0 ? TLS1_2_VERSION : TLS1_3_VERSION;
    attach();
    ex_data = SSL_get_ex_new_index(0, NULL, NULL, NULL, on_free);
    context = server_context(version);
    client_context = SSL_CTX_new(TLS_client_method());
    use_new_certificate(client_context);
    SSL_CTX_set_alpn_protos(client_context, (const unsigned char *)"\x01x", 2);
    for (i = 0; i < sizeof uses / sizeof *uses; i++) {
        if (strcmp(uses[i].name, arguments[1]) == 0) {
            uses[i].run();
            if (library != NULL && uses[i].suspends && suspensions == 0)
                puts("nothing was suspended");
            check_ways(arguments[1]);
            return 0;
        }
    }
    return 2;
}
