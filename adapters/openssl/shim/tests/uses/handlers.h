/* ---- Signal handlers, which may wait, close descriptors and fork, whatever they have interrupted. */

static volatile sig_atomic_t in_handler, handled;
static int early_calls;

/* Nothing of libssl's runs in a handler. */
static void must_not_be_in_a_handler(void)
{
    early_calls += in_handler;
}

static void wait_in_handler(int signal)
{
    struct timespec time = { 0, 100000 };
    struct timeval as_long = { 0, 100 };
    struct epoll_event event;
    struct pollfd watched = { .fd = victim == NULL ? -1 : victim->ends[0], .events = POLLIN };
    int before = errno;

    (void)signal;
    in_handler++;
    poll(NULL, 0, 1);
    ppoll(NULL, 0, &time, NULL);
    select(0, NULL, NULL, NULL, &as_long);
    pselect(0, NULL, NULL, NULL, &time, NULL);
    poll(&watched, 1, 0);
    if (victim != NULL)
        epoll_wait(victim->epoll, &event, 1, 0);
    close(dup(1));
    handled++;
    in_handler--;
    errno = before;
}

static void wait_with_details(int signal, siginfo_t *details, void *place)
{
    (void)details, (void)place;
    wait_in_handler(signal);
}

static void handle(int signal, int flags)
{
    struct sigaction action = { .sa_flags = flags | SA_RESTART };

    if (flags & SA_SIGINFO)
        action.sa_sigaction = wait_with_details;
    else
        action.sa_handler = wait_in_handler;
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void on_info_outside(const SSL *ssl, int where, int result)
{
    must_not_be_in_a_handler();
    on_info(ssl, where, result);
}

static void interrupt(SSL *ssl)
{
    (void)ssl;
    raise(SIGUSR1);
}

/* A handler waits while a handshake could go on: it stays as it is until the program waits by itself. */
static void handler_waits(void)
{
    static const int flags[] = { 0, SA_SIGINFO, SA_ONSTACK, SA_NODEFER };
    stack_t stack = { .ss_size = 64 * 1024 };
    size_t i;

    stack.ss_sp = malloc(stack.ss_size);
    CHECK(sigaltstack(&stack, NULL) == 0);
    SSL_CTX_set_info_callback(context, on_info_outside);
    for (i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct connection *c = connect_one(new_epoll()), *d = connect_one(c->epoll);

        handle(SIGUSR1, flags[i]);
        victim = c;
        call_once(c);
        raise(SIGUSR1);
        in_callback = interrupt;
        call_once(d);
        raise(SIGUSR1);
        victim = NULL;
        complete(c);
        complete(d);
        raise(SIGUSR1);
        drop_all(c);
        drop_all(d);
        printf("handled: %d, calls in handlers: %d\n", handled, early_calls);
    }
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, NULL);
    free(stack.ss_sp);
}

/* Signals come at any point, and their handlers wait. */
static void handlers_wait_anywhere(void)
{
    struct itimerval often = { { 0, 700 }, { 0, 700 } }, never = { { 0, 0 }, { 0, 0 } };
    struct connection *c[6];
    int epoll = new_epoll(), i, turns, done = 0;

    SSL_CTX_set_info_callback(context, on_info_outside);
    handle(SIGPROF, 0);
    for (i = 0; i < 6; i++)
        c[i] = connect_one(epoll);
    victim = c[0];
    CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
    for (turns = 0; turns < 1000 && done < 6; turns++) {
        struct epoll_event events[8];
        int count;

        for (done = i = 0; i < 6; i++) {
            step_client(c[i]);
            done += c[i]->server_done && c[i]->client_done;
        }
        count = epoll_wait(epoll, events, 8, 1);
        CHECK(count >= 0 || errno == EINTR);
        for (i = 0; i < count; i++)
            step_server(events[i].data.ptr);
    }
    CHECK(setitimer(ITIMER_PROF, &never, NULL) == 0);
    victim = NULL;
    printf("done: %d, calls in handlers: %d\n", done, early_calls);
    for (i = 0; i < 6; i++)
        drop_all(c[i]);
}

static void fork_in_handler(int signal)
{
    int before = errno, status;
    pid_t child = fork();

    (void)signal;
    if (child == 0)
        _exit(5);
    if (waitpid(child, &status, 0) == child && WIFEXITED(status))
        handled += WEXITSTATUS(status) == 5;
    errno = before;
}

/* A handler forks while the thread is anywhere, as those do that report a crash. */
static void handlers_fork(void)
{
    struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
    struct sigaction action = { .sa_handler = fork_in_handler, .sa_flags = SA_RESTART };
    SSL *ssl = SSL_new(context);

    CHECK(sigaction(SIGPROF, &action, NULL) == 0 && setitimer(ITIMER_PROF, &often, NULL) == 0);
    while (handled < 100) {
        SSL_up_ref(ssl);
        SSL_free(ssl);
    }
    CHECK(setitimer(ITIMER_PROF, &never, NULL) == 0);
    SSL_free(ssl);
    puts("all forks ended");
}

/* ---- Callbacks that wait and hold a lock meanwhile. */

static pthread_mutex_t own_lock;
static int locked_twice;

static void with_own_lock(int wait)
{
    if (pthread_mutex_lock(&own_lock) != 0) {
        locked_twice++;
        return;
    }
    if (wait) {
        wait_in_each_way();
        poll(NULL, 0, 2);
    }
    pthread_mutex_unlock(&own_lock);
}

static void on_info_locks(const SSL *ssl, int where, int result)
{
    (void)ssl, (void)where, (void)result;
    with_own_lock(0);
}

static void wait_with_lock(SSL *ssl)
{
    (void)ssl;
    with_own_lock(1);
}

static int on_name_locks(SSL *ssl, int *alert, void *unused)
{
    (void)ssl, (void)alert, (void)unused;
    with_own_lock(1);
    return SSL_TLSEXT_ERR_OK;
}

/* No other handshake goes on inside the callback: its own callbacks would want the same lock. */
static void callback_waits_with_a_lock(void)
{
    pthread_mutexattr_t checked;
    struct connection *c, *d;
    int way;

    pthread_mutexattr_init(&checked);
    pthread_mutexattr_settype(&checked, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&own_lock, &checked);
    SSL_CTX_set_info_callback(context, on_info_locks);
    SSL_CTX_set_tlsext_servername_callback(context, on_name_locks);
    /* In a handshake that may be suspended, and in one that is not, because its socket is watched nowhere. */
    for (way = 0; way < 2; way++) {
        c = connect_one(new_epoll());
        d = way == 0 ? connect_one(new_epoll()) : connect_unwatched();
        call_once(c);
        SSL_set_accept_state(d->server);
        in_callback = wait_with_lock;
        call_once(d);
        if (way == 1)
            watch(d, new_epoll(), EPOLL_CTL_ADD, EPOLLIN);
        complete(c);
        complete(d);
        drop_all(c);
        drop_all(d);
    }
    printf("locked twice: %d\n", locked_twice);
}

/* A callback that leaves libssl by a jump has not ended its call; the thread goes on all the same. */
static jmp_buf out_of_callback;

static void jump(SSL *ssl)
{
    (void)ssl;
    longjmp(out_of_callback, 1);
}

static void callback_jumps_away(void)
{
    struct connection *c, *d = connect_unwatched();

    SSL_set_accept_state(d->server);
    in_callback = jump;
    step_client(d);
    if (setjmp(out_of_callback) == 0)
        SSL_do_handshake(d->server);
    in_callback = NULL;
    c = connect_one(new_epoll());
    call_once(c);
    CHECK(poll(NULL, 0, 5) == 0);
    step_client(c);
    printf("client done: %d\n", c->client_done);
    complete(c);
    drop_all(c);
}

/* ---- Threads that take turns, and forks beside them. */

static pthread_mutex_t turns_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_came = PTHREAD_COND_INITIALIZER;
static int turn_of, leading;

static void await_turn(int thread)
{
    pthread_mutex_lock(&turns_lock);
    while (turn_of != thread)
        pthread_cond_wait(&turn_came, &turns_lock);
    pthread_mutex_unlock(&turns_lock);
}

static void give_turn(int thread)
{
    pthread_mutex_lock(&turns_lock);
    turn_of = thread;
    pthread_cond_broadcast(&turn_came);
    pthread_mutex_unlock(&turns_lock);
}

/* It waits in the instance, and does what comes first. Then it sleeps until the end. */
static void *leads_once(void *of)
{
    struct connection *c = of;
    struct epoll_event event;

    await_turn(1);
    CHECK(epoll_wait(leading, &event, 1, 1000) == 1);
    step_server(c);
    give_turn(2);
    await_turn(3);
    return NULL;
}

static void *leads_to_the_end(void *of)
{
    struct connection *c = of;
    int turns;

    await_turn(2);
    for (turns = 0; turns < 100 && !(c->server_done && c->client_done); turns++) {
        step_client(c);
        serve(leading, 2);
    }
    give_turn(3);
    return NULL;
}

/* A pool in which one thread waits and the others sleep: the first has its turn once. */
static void leaders_take_turns(void)
{
    pthread_t threads[2];
    struct connection *c;

    leading = epoll_create1(0);
    c = connect_one(leading);
    step_client(c);
    pthread_create(&threads[0], NULL, leads_once, c);
    pthread_create(&threads[1], NULL, leads_to_the_end, c);
    give_turn(1);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    printf("done: %d %d\n", c->server_done, c->client_done);
    drop_all(c);
}

static void *has_a_handshake(void *of)
{
    struct connection **c = of;
    int epoll = new_epoll();

    warm_up(epoll);
    *c = connect_one(epoll);
    call_once(*c);
    give_turn(1);
    await_turn(2);
    return NULL;
}

/* The child of a process with threads serves, and frees what another thread's call was for. */
static void fork_beside_a_handshake(void)
{
    struct connection *c = connect_one(new_epoll()), *d;
    pthread_t thread;
    pid_t child;
    int before;

    call_once(c);
    pthread_create(&thread, NULL, has_a_handshake, &d);
    await_turn(1);
    fflush(stdout);
    child = fork_once();
    if (child == 0) {
        before = freed;
        complete(c);
        drop(c);
        d->is_alive = 0;
        SSL_free(d->server);
        printf("freed: %d\n", freed - before);
        fflush(stdout);
        _exit(5);
    }
    printf("child: %d\n", ended_well(child));
    give_turn(2);
    pthread_join(thread, NULL);
    drop_all(c);
}

/* As `daemon` does, with the C library's function that closes the rest. */
static void daemon_closes_everything(void)
{
    struct connection *c = connect_one(new_epoll());
    int null = open("/dev/null", O_RDWR);
    pid_t child;

    call_once(c);
    CHECK(close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0);
    fflush(stdout);
    child = fork_once();
    if (child == 0) {
        setsid();
        dup2(null, 0);
        CHECK(close_range(3, ~0U, CLOSE_RANGE_UNSHARE) == 0);
        serve_anew(c);
    }
    printf("child: %d\n", ended_well(child));
    complete(c);
    drop_all(c);
    close(null);
}

/* The child of vfork changes what it has of descriptors and handlers; the parent's stay. */
static void vfork_changes_its_own(void)
{
    struct connection *c = connect_one(new_epoll());
    pid_t child;

    call_once(c);
    child = vfork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        dup2(1, c->ends[0]);
        dup2(1, c->epoll);
        close_range(3, ~0U, 0);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    printf("child: %d\n", ended_well(child));
    complete(c);
    drop_all(c);
}

/* The names that the C library has for the same functions, as programs of other compilers import them. */
int __poll(struct pollfd *, nfds_t, int);
int __select(int, fd_set *, fd_set *, fd_set *, struct timeval *);
int __close(int);
int __dup2(int, int);
extern int __poll_chk(struct pollfd *, nfds_t, int, size_t);
extern int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);

static void other_names(void)
{
    int way;

    for (way = 0; way < 4; way++) {
        struct connection *c = connect_one(new_epoll());
        struct timespec time = { 0, 5000000 };
        struct timeval as_long = { 0, 5000 };

        call_once(c);
        if (way == 0)
            CHECK(__poll(NULL, 0, 5) == 0);
        else if (way == 1)
            CHECK(__select(0, NULL, NULL, NULL, &as_long) == 0);
        else if (way == 2)
            CHECK(__poll_chk(NULL, 0, 5, 0) == 0);
        else
            CHECK(__ppoll_chk(NULL, 0, &time, NULL, 0) == 0);
        step_client(c);
        printf("client done: %d\n", c->client_done);
        complete(c);
        if (way == 0)
            CHECK(__dup2(1, c->ends[0]) == c->ends[0] && __close(c->epoll) == 0);
        drop_all(c);
    }
}
