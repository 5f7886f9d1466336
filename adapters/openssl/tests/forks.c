/* A process that forks while its threads sign with an RSA key. Each child signs with the same key; status 0
 * if every signature is right and no child is ended by a signal. */

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The threads only sign, and not with the key that checks: OpenSSL's own verification has a lock, which a
 * fork may leave locked. */
static EVP_PKEY *key, *copy;

static int sign(int check)
{
    unsigned char signature[1024];
    size_t length = sizeof signature;
    EVP_MD_CTX *made = EVP_MD_CTX_new(), *checked = EVP_MD_CTX_new();
    const unsigned char *text = (const unsigned char *)"text";
    int right = EVP_DigestSignInit(made, NULL, EVP_sha256(), NULL, key) == 1
        && EVP_DigestSign(made, signature, &length, text, 4) == 1;

    if (check)
        right = right && EVP_DigestVerifyInit(checked, NULL, EVP_sha256(), NULL, copy) == 1
            && EVP_DigestVerify(checked, signature, length, text, 4) == 1;
    EVP_MD_CTX_free(made);
    EVP_MD_CTX_free(checked);
    return right;
}

static void *sign_on(void *argument)
{
    for (;;)
        sign(0);
    return argument;
}

int main(int count, char **arguments)
{
    FILE *file = count == 3 ? fopen(arguments[1], "r") : NULL;
    int children = count == 3 ? atoi(arguments[2]) : 0, ended = 0, i;

    if (file != NULL) {
        key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
        rewind(file);
        copy = PEM_read_PrivateKey(file, NULL, NULL, NULL);
    }
    /* OpenSSL makes the first signature. */
    if (key == NULL || copy == NULL || !sign(1) || !sign(1)) {
        fprintf(stderr, "usage: forks KEY CHILDREN\n");
        return 1;
    }
    for (i = 0; i < 2; i++) {
        pthread_t thread;

        pthread_create(&thread, NULL, sign_on, NULL);
    }
    for (i = 0; i < children; i++) {
        pid_t child;
        int status;

        usleep(3000);
        child = fork();
        if (child == 0) {
            alarm(20);
            _exit(!(sign(1) && sign(1)));
        }
        if (waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "child %d: status %x\n", i, status);
            ended++;
        }
    }
    fprintf(stderr, "%d of %d children did not sign\n", ended, children);
    _exit(ended != 0);
}
