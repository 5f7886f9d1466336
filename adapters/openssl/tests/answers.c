/* What OpenSSL answers about keys, agreements and signatures, line by line: with the provider as without it.
 * The first argument says about what. */

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const curves[] = {"P-256", "P-384"};

/* Tells a result, and the reason of an error. */
static void tell(const char *what, int result)
{
    unsigned long error = ERR_peek_last_error();
    const char *reason = error == 0 ? NULL : ERR_reason_error_string(error);

    printf("%s: %d %s\n", what, result, result > 0 || reason == NULL ? "" : reason);
    ERR_clear_error();
}

static EVP_PKEY *made(const char *algorithm, const char *curve)
{
    EVP_PKEY *key = curve == NULL ? EVP_PKEY_Q_keygen(NULL, NULL, algorithm)
                                  : EVP_PKEY_Q_keygen(NULL, NULL, algorithm, curve);

    if (key == NULL) {
        ERR_print_errors_fp(stderr);
        exit(1);
    }
    return key;
}

/* An agreement into a place of `room` bytes: its result, its length and whether it is the beginning of what
 * the other side agrees on. */
static void agree(const char *what, EVP_PKEY *own, EVP_PKEY *peer, size_t room)
{
    EVP_PKEY_CTX *ours = EVP_PKEY_CTX_new(own, NULL), *theirs = EVP_PKEY_CTX_new(peer, NULL);
    unsigned char one[256] = {0}, other[256] = {0};
    size_t length = room, all = sizeof other;

    EVP_PKEY_derive_init(ours);
    tell("set peer", EVP_PKEY_derive_set_peer(ours, peer));
    tell(what, EVP_PKEY_derive(ours, one, &length));
    EVP_PKEY_derive_init(theirs);
    EVP_PKEY_derive_set_peer(theirs, own);
    if (EVP_PKEY_derive(theirs, other, &all) == 1)
        printf("%zu bytes, %s\n", length, memcmp(one, other, length < room ? length : room) == 0
            ? "the same" : "others");
    ERR_clear_error();
    EVP_PKEY_CTX_free(ours);
    EVP_PKEY_CTX_free(theirs);
}

/* Shares of peers: points and what is none. */
static void shares(void)
{
    size_t i, kind;

    for (i = 0; i < 2; i++) {
        EVP_PKEY *own = made("EC", curves[i]), *other = made("EC", curves[i]);
        unsigned char *point = NULL;
        size_t length = EVP_PKEY_get1_encoded_public_key(other, &point), half = length / 2;

        for (kind = 0; kind < 11; kind++) {
            EVP_PKEY *peer = EVP_PKEY_new();
            unsigned char share[128] = {0}, odd = point[length - 1] & 1;
            size_t size = length;
            int set;

            memcpy(share, point, length);
            switch (kind) {
            case 1: share[length - 1] ^= 1; break;
            case 2: memset(share + 1, 0xff, length - 1); break;
            case 3: memset(share + 1, 0, length - 1); break;
            case 4: share[0] = 5; break;
            case 5: share[0] = 6 + odd; break;
            case 6: share[0] = 7 - odd; break;
            case 7: share[0] = 2 + odd; size = half + 1; break;
            case 8: size = length - 1; break;
            case 9: size = length + 1; break;
            case 10: share[0] = 0; size = 1; break;
            }
            EVP_PKEY_copy_parameters(peer, own);
            printf("%s, share %zu\n", curves[i], kind);
            set = EVP_PKEY_set1_encoded_public_key(peer, share, size);
            tell("set", set);
            if (set == 1)
                agree("derive", own, peer, 256);
            /* The key takes a good one afterwards. */
            tell("set a point", EVP_PKEY_set1_encoded_public_key(peer, point, length));
            agree("derive", own, peer, 256);
            EVP_PKEY_free(peer);
        }
        OPENSSL_free(point);
        EVP_PKEY_free(own);
        EVP_PKEY_free(other);
    }
}

/* Agreements into places of every size, without a peer, and with peers of other curves and of small order. */
static void agreements(void)
{
    static const char *const algorithms[] = {"EC", "EC", "X25519"};
    size_t i, room;

    for (i = 0; i < 3; i++) {
        const char *curve = i < 2 ? curves[i] : NULL;
        EVP_PKEY *own = made(algorithms[i], curve), *peer = made(algorithms[i], curve);
        EVP_PKEY *other = i < 2 ? made("EC", curves[1 - i]) : NULL;
        EVP_PKEY_CTX *alone = EVP_PKEY_CTX_new(own, NULL);
        unsigned char secret[64];
        size_t length = sizeof secret;

        for (room = 0; room < 50; room++) {
            printf("%zu, %zu bytes\n", i, room);
            agree("derive", own, peer, room);
        }
        EVP_PKEY_derive_init(alone);
        tell("derive alone", EVP_PKEY_derive(alone, secret, &length));
        if (other != NULL) {
            tell("set another curve", EVP_PKEY_derive_set_peer(alone, other));
            tell("derive", EVP_PKEY_derive(alone, secret, &length));
            tell("set a peer", EVP_PKEY_derive_set_peer(alone, peer));
            tell("set another curve", EVP_PKEY_derive_set_peer(alone, other));
            length = sizeof secret;
            tell("derive", EVP_PKEY_derive(alone, secret, &length));
        } else {
            static const unsigned char zero[32];

            other = EVP_PKEY_new_raw_public_key_ex(NULL, "X25519", NULL, zero, sizeof zero);
            agree("derive with zero", own, other, 32);
        }
        EVP_PKEY_CTX_free(alone);
        EVP_PKEY_free(own);
        EVP_PKEY_free(peer);
        EVP_PKEY_free(other);
    }
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*tell)(void);
    } all[] = {
        {"shares", shares},
        {"agreements", agreements},
    };
    size_t i;

    for (i = 0; count == 2 && i < sizeof all / sizeof *all; i++) {
        if (strcmp(arguments[1], all[i].name) == 0) {
            all[i].tell();
            return 0;
        }
    }
    fprintf(stderr, "usage: answers WHAT\n");
    return 1;
}
