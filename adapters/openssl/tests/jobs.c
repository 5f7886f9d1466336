/* Jobs of OpenSSL's own, by an application that wants callbacks (ASYNC_WAIT_CTX_set_callback) and does
 * not look at descriptors. Signs with a key, and ends with status 0 if every signature is right and
 * the application was woken for every paused job. The first argument is the key's file, the second what is done, the
 * third whether messages are signed or their hash values. */

#include <openssl/async.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOBS 16
#define ROUNDS 20

static EVP_PKEY *key;
static int hash_values;

struct task {
    ASYNC_JOB *job;
    ASYNC_WAIT_CTX *context;
    int told, gone, ended, right;
    size_t number;
};

/* Tasks that were woken and have not gone on, in order. */
static struct task *ready[JOBS * 64];
static size_t first, last;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static int on_event(void *argument)
{
    struct task *task = argument;

    if (task->gone)
        die("a callback for a wait context that is gone");
    pthread_mutex_lock(&lock);
    task->told++;
    ready[last++ % (JOBS * 64)] = task;
    pthread_mutex_unlock(&lock);
    return 1;
}

static int sign_message(unsigned char *message, size_t size, unsigned char *signature, size_t *length)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    int made = EVP_DigestSignInit_ex(context, NULL, "SHA256", NULL, NULL, key, NULL)
        && EVP_DigestSign(context, signature, length, message, size);

    EVP_MD_CTX_free(context);
    return made;
}

static int sign_value(unsigned char *message, size_t size, unsigned char *signature, size_t *length)
{
    unsigned char value[EVP_MAX_MD_SIZE];
    unsigned int bytes = 0;
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    int made = EVP_Digest(message, size, value, &bytes, EVP_sha256(), NULL)
        && EVP_PKEY_sign_init(context) == 1
        && EVP_PKEY_CTX_set_signature_md(context, EVP_sha256()) == 1
        && EVP_PKEY_sign(context, signature, length, value, bytes) == 1;

    EVP_PKEY_CTX_free(context);
    return made;
}

/* Runs in a job. */
static int sign(void *argument)
{
    struct task *task = *(struct task **)argument;
    unsigned char message[64], signature[1024];
    size_t length = sizeof signature;
    EVP_MD_CTX *context;

    memset(message, (int)task->number, sizeof message);
    if (!(hash_values ? sign_value : sign_message)(message, sizeof message, signature, &length))
        return 0;
    context = EVP_MD_CTX_new();
    task->right = EVP_DigestVerifyInit_ex(context, NULL, "SHA256", NULL, "provider=default", key, NULL)
        && EVP_DigestVerify(context, signature, length, message, sizeof message) == 1;
    EVP_MD_CTX_free(context);
    return 1;
}

/* Starts the task's job, or goes on with it. Returns whether it is paused. */
static int go_on(struct task *task)
{
    int result = 0;

    switch (ASYNC_start_job(&task->job, task->context, &result, sign, &task, sizeof task)) {
    case ASYNC_PAUSE:
        return 1;
    case ASYNC_FINISH:
        if (result != 1 || !task->right)
            die("a signature is wrong");
        task->ended = 1;
        return 0;
    default:
        die("a job could not be started");
        return 0;
    }
}

static void begin(struct task *task, size_t number)
{
    memset(task, 0, sizeof *task);
    task->number = number;
    task->context = ASYNC_WAIT_CTX_new();
    if (!ASYNC_WAIT_CTX_set_callback(task->context, on_event, task))
        die("no callback");
}

static void end(struct task *task)
{
    ASYNC_WAIT_CTX_free(task->context);
    task->gone = 1;
}

static void *end_here(void *task)
{
    end(task);
    return NULL;
}

/* The same by another thread. */
static void end_elsewhere(struct task *task)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, end_here, task) != 0)
        die("no thread");
    pthread_join(thread, NULL);
}

/* Goes on with tasks that are woken until all of these have ended. */
static void finish(struct task *tasks, size_t count)
{
    for (;;) {
        size_t i, under_way = 0;

        for (i = 0; i < count; i++)
            under_way += !tasks[i].ended && !tasks[i].gone;
        if (under_way == 0)
            return;
        if (first == last)
            die("jobs wait, and the application was not told of any");
        struct task *task = ready[first++ % (JOBS * 64)];
        if (!task->ended && !task->gone)
            go_on(task);
    }
}

/* Many jobs at a time; with `drop`, it ends each third one's wait context while the job waits. */
static size_t run(void (*drop)(struct task *))
{
    static struct task tasks[JOBS];
    size_t round, i, paused = 0;

    for (round = 0; round < ROUNDS; round++) {
        first = last = 0;
        for (i = 0; i < JOBS; i++) {
            begin(&tasks[i], round * JOBS + i);
            paused += go_on(&tasks[i]);
        }
        for (i = 0; drop != NULL && i < JOBS; i += 3)
            if (!tasks[i].ended)
                drop(&tasks[i]);
        finish(tasks, JOBS);
        for (i = 0; i < JOBS; i++)
            if (!tasks[i].gone)
                end(&tasks[i]);
    }
    return paused;
}

static void *run_in_thread(void *argument)
{
    (void)argument;
    /* One after another, each with a queue of its own in the provider. */
    return (void *)run(NULL);
}

int main(int count, char **arguments)
{
    FILE *file = count == 4 ? fopen(arguments[1], "r") : NULL;
    size_t paused;

    if (file == NULL || (key = PEM_read_PrivateKey(file, NULL, NULL, NULL)) == NULL)
        die("usage: jobs KEY.pem all|drop|elsewhere|threads messages|values");
    fclose(file);
    hash_values = strcmp(arguments[3], "values") == 0;
    if (!ASYNC_is_capable())
        die("this OpenSSL has no jobs");
    if (strcmp(arguments[2], "threads") == 0) {
        int i;

        for (i = 0, paused = 0; i < 3; i++) {
            pthread_t thread;
            void *of_thread;

            pthread_create(&thread, NULL, run_in_thread, NULL);
            pthread_join(thread, &of_thread);
            paused += (size_t)of_thread;
        }
    } else {
        paused = run(strcmp(arguments[2], "drop") == 0 ? end
            : strcmp(arguments[2], "elsewhere") == 0 ? end_elsewhere : NULL);
    }
    printf("paused %zu\n", paused);
    EVP_PKEY_free(key);
    return 0;
}
