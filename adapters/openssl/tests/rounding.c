/* Signs with the key of a file on several threads at once, which round upwards and want a signal at each
 * floating-point exception, inexact results included. Afterwards all of that is as it was, and OpenSSL's own
 * provider takes every signature. */

#define _GNU_SOURCE
#include <fenv.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

#define THREADS 8
#define SIGNATURES 100
#define MOST 1024

static EVP_PKEY *key;
static pthread_barrier_t together;

static void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

/* A signature of the bytes of a number, by the provider that the configuration prefers. */
static size_t sign(unsigned number, unsigned char *signature)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    size_t size = MOST;

    if (EVP_DigestSignInit_ex(context, NULL, "SHA256", NULL, NULL, key, NULL) != 1
        || EVP_DigestSign(context, signature, &size, (unsigned char *)&number, sizeof number) != 1)
        die("no signature");
    EVP_MD_CTX_free(context);
    return size;
}

static int verifies(unsigned number, const unsigned char *signature, size_t size)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    int right;

    if (EVP_DigestVerifyInit_ex(context, NULL, "SHA256", NULL, "provider=default", key, NULL) != 1)
        die("no verification");
    right = EVP_DigestVerify(context, signature, size, (unsigned char *)&number, sizeof number);
    EVP_MD_CTX_free(context);
    return right == 1;
}

static void *work(void *argument)
{
    unsigned char signature[MOST];
    unsigned first = *(unsigned *)argument, i, before;
    size_t size;

    /* A sticky flag that nothing raises here: who resets all of them is found. */
    _mm_setcsr(_mm_getcsr() | FE_UNDERFLOW);
    before = _mm_getcsr();
    if (fegetround() != FE_UPWARD || (before >> 7 & FE_ALL_EXCEPT) != 0)
        die("a thread has not what its creator has set");
    pthread_barrier_wait(&together);
    for (i = first; i < first + SIGNATURES; i++) {
        size = sign(i, signature);
        if (_mm_getcsr() != before || fegetround() != FE_UPWARD)
            die("rounding, masks or flags have changed");
        if (!verifies(i, signature, size))
            die("a wrong signature");
    }
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    unsigned firsts[THREADS], i;
    FILE *file = count == 2 ? fopen(arguments[1], "r") : NULL;

    key = file ? PEM_read_PrivateKey(file, NULL, NULL, NULL) : NULL;
    if (key == NULL)
        die("usage: rounding KEY");
    fclose(file);
    pthread_barrier_init(&together, NULL, THREADS);
    /* The flag before the masks: it would be a signal at the next instruction. */
    feclearexcept(FE_ALL_EXCEPT);
    fesetround(FE_UPWARD);
    feenableexcept(FE_ALL_EXCEPT);
    for (i = 0; i < THREADS; i++) {
        firsts[i] = i * SIGNATURES;
        if (pthread_create(&threads[i], NULL, work, &firsts[i]) != 0)
            die("no thread");
    }
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    /* The test reads the provider's counts before it ends the input. */
    puts("all well");
    fflush(stdout);
    getchar();
    return 0;
}
