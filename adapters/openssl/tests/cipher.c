/* Compares ChaCha20-Poly1305 of the provider with that of OpenSSL's own, in one process.
 *
 * cipher LIBCRYPTO ROUNDS: the library is loaded at run time, so that one program serves all versions.
 * Prints what differs and ends with status 1, or prints the number of compared messages. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct evp_cipher_st CIPHER;
typedef struct evp_cipher_ctx_st CTX;

static CIPHER *(*fetch)(void *, const char *, const char *);
static CTX *(*new_ctx)(void);
static void (*free_ctx)(CTX *);
static int (*copy_ctx)(CTX *, const CTX *);
static int (*init)(CTX *, const CIPHER *, const unsigned char *, const unsigned char *, int, const void *);
static int (*update)(CTX *, unsigned char *, int *, const unsigned char *, int);
static int (*final)(CTX *, unsigned char *, int *);
static int (*ctrl)(CTX *, int, int, void *);

/* EVP_CTRL_AEAD_GET_TAG and its kin (openssl/evp.h). */
enum { GET_TAG = 0x10, SET_TAG = 0x11, SET_IV_FIXED = 0x12, TLS1_AAD = 0x16 };
enum { MOST = 40000, TAG = 16 };

static uint64_t state = 88172645463325252ull;
static unsigned below(unsigned limit) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (unsigned)(state % limit);
}
static void fill(unsigned char *bytes, int len) {
    for (int i = 0; i < len; i++) bytes[i] = (unsigned char)below(256);
}
static void expect(int holds, const char *what, int len) {
    if (!holds) printf("differs: %s, %d bytes\n", what, len), exit(1);
}

/* Text in the pieces that `seed` says; in place, or from one buffer to another. */
static void pieces(CTX *ctx, unsigned char *out, const unsigned char *in, int len, uint64_t seed) {
    uint64_t kept = state;
    int at = 0, got;
    state = seed;
    while (at < len) {
        int most = len - at, piece = 1 + (int)below((unsigned)most);
        if (below(2) == 0) piece = most;
        expect(update(ctx, out + at, &got, in + at, piece) == 1 && got == piece, "update", piece);
        at += piece;
    }
    state = kept;
}

static void begin(CTX *ctx, CIPHER *cipher, const unsigned char *key, const unsigned char *iv, int seals) {
    switch (below(3)) {
    case 0:
        expect(init(ctx, cipher, key, iv, seals, NULL) == 1, "init", 0);
        break;
    case 1:
        expect(init(ctx, cipher, NULL, NULL, seals, NULL) == 1, "init without key", 0);
        expect(init(ctx, NULL, key, NULL, -1, NULL) == 1, "key", 0);
        expect(init(ctx, NULL, NULL, iv, -1, NULL) == 1, "nonce", 0);
        break;
    default:
        expect(init(ctx, cipher, NULL, iv, seals, NULL) == 1, "nonce first", 0);
        expect(init(ctx, NULL, key, NULL, -1, NULL) == 1, "key afterwards", 0);
    }
}

static void message(CTX *ctx[2], CIPHER *cipher[2]) {
    static unsigned char text[MOST], sealed[2][MOST], opened[MOST];
    unsigned char key[32], iv[12], aad[300], tag[2][TAG];
    static const unsigned limits[] = {200, 5000, MOST, MOST};
    int len = (int)below(limits[below(4)]), aad_len = (int)below(300), got;
    uint64_t seed = state | 1;
    fill(key, 32), fill(iv, 12), fill(aad, aad_len), fill(text, len);
    for (int which = 0; which < 2; which++) {
        CTX *own = ctx[which];
        int cut = aad_len / 3;
        begin(own, cipher[which], key, iv, 1);
        if (aad_len > 0) {
            expect(update(own, NULL, &got, aad, cut) == 1, "additional data", cut);
            expect(update(own, NULL, &got, aad + cut, aad_len - cut) == 1, "more of it", aad_len);
        }
        if (below(2)) {
            memcpy(sealed[which], text, (size_t)len);
            pieces(own, sealed[which], sealed[which], len, seed);
        } else {
            pieces(own, sealed[which], text, len, seed);
        }
        /* A copy in the middle goes on as the original does, where contexts can be copied. */
        CTX *copy = new_ctx();
        unsigned char copied[TAG];
        int is_copied = copy_ctx(copy, own) == 1;
        if (is_copied)
            expect(final(copy, opened, &got) == 1 && ctrl(copy, GET_TAG, TAG, copied) == 1, "copy", len);
        expect(final(own, opened, &got) == 1 && got == 0, "final", len);
        expect(ctrl(own, GET_TAG, TAG, tag[which]) == 1, "tag", len);
        expect(!is_copied || memcmp(copied, tag[which], TAG) == 0, "tag of the copy", len);
        free_ctx(copy);
    }
    expect(memcmp(sealed[0], sealed[1], (size_t)len) == 0, "ciphertext", len);
    expect(memcmp(tag[0], tag[1], TAG) == 0, "tags", len);
    for (int which = 0; which < 2; which++) {
        for (int damaged = 0; damaged < 2; damaged++) {
            CTX *own = ctx[which];
            begin(own, cipher[which], key, iv, 0);
            tag[0][0] ^= (unsigned char)damaged;
            expect(ctrl(own, SET_TAG, TAG, tag[0]) == 1, "set tag", len);
            tag[0][0] ^= (unsigned char)damaged;
            if (aad_len > 0) expect(update(own, NULL, &got, aad, aad_len) == 1, "additional data", aad_len);
            pieces(own, opened, sealed[0], len, seed + 2);
            expect((final(own, opened + len, &got) == 1) == !damaged, "verdict", len);
            expect(memcmp(opened, text, (size_t)len) == 0, "plaintext", len);
        }
    }
}

/* Records as TLS 1.2 protects them, in one call each. */
static void records(CTX *ctx[2], CIPHER *cipher[2]) {
    static unsigned char text[MOST], sealed[2][MOST], opened[MOST], zeros[MOST];
    unsigned char key[32], iv[12], header[13];
    fill(key, 32), fill(iv, 12);
    for (int seals = 1; seals >= 0; seals--)
        for (int which = 0; which < 2; which++) {
            CTX *own = ctx[2 * seals + which];
            expect(init(own, cipher[which], key, NULL, seals, NULL) == 1, "init", 0);
            expect(ctrl(own, SET_IV_FIXED, 12, iv) == 1, "fixed nonce", 0);
        }
    for (int number = 0; number < 12; number++) {
        int len = number % 2 ? 16368 + (int)below(17) : (int)below(16385), got;
        fill(text, len);
        memset(header, 0, 13);
        header[7] = (unsigned char)number, header[8] = 23, header[9] = 3, header[10] = 3;
        header[11] = (unsigned char)(len >> 8), header[12] = (unsigned char)len;
        for (int which = 0; which < 2; which++) {
            memcpy(sealed[which], text, (size_t)len);
            expect(ctrl(ctx[2 + which], TLS1_AAD, 13, header) == TAG, "header", len);
            expect(update(ctx[2 + which], sealed[which], &got, sealed[which], len + TAG) == 1
                && got == len + TAG, "record", len);
        }
        expect(memcmp(sealed[0], sealed[1], (size_t)len + TAG) == 0, "records", len);
        header[11] = (unsigned char)((len + TAG) >> 8), header[12] = (unsigned char)(len + TAG);
        for (int which = 0; which < 2; which++) {
            expect(ctrl(ctx[which], TLS1_AAD, 13, header) == TAG, "header", len);
            expect(update(ctx[which], opened, &got, sealed[0], len + TAG) == 1 && got == len,
                "opening", len);
            expect(memcmp(opened, text, (size_t)len) == 0, "opened record", len);
            sealed[1][len / 2] ^= 1;
            expect(ctrl(ctx[which], TLS1_AAD, 13, header) == TAG, "header", len);
            expect(update(ctx[which], opened, &got, sealed[1], len + TAG) != 1, "damaged record", len);
            expect(memcmp(opened, zeros, (size_t)len) == 0, "nothing of it is left", len);
            sealed[1][len / 2] ^= 1;
        }
    }
}

int main(int count, char **arguments) {
    void *library = count == 3 ? dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (library == NULL) return fprintf(stderr, "no library: %s\n", dlerror()), 2;
#define FIND(name, symbol) if ((*(void **)&name = dlsym(library, symbol)) == NULL) return 3
    FIND(fetch, "EVP_CIPHER_fetch");
    FIND(new_ctx, "EVP_CIPHER_CTX_new");
    FIND(free_ctx, "EVP_CIPHER_CTX_free");
    FIND(copy_ctx, "EVP_CIPHER_CTX_copy");
    FIND(init, "EVP_CipherInit_ex2");
    FIND(update, "EVP_CipherUpdate");
    FIND(final, "EVP_CipherFinal_ex");
    FIND(ctrl, "EVP_CIPHER_CTX_ctrl");
    CIPHER *cipher[2];
    cipher[0] = fetch(NULL, "ChaCha20-Poly1305", "provider=widelane");
    cipher[1] = fetch(NULL, "ChaCha20-Poly1305", "provider=default");
    if (cipher[0] == NULL || cipher[1] == NULL) return puts("a provider lacks the cipher"), 4;
    int rounds = atoi(arguments[2]);
    for (int i = 0; i < rounds; i++) {
        CTX *ctx[4];
        for (int j = 0; j < 4; j++) ctx[j] = new_ctx();
        /* Contexts are used again, also after a message that was refused. */
        for (int j = 0; j < 3; j++) message(ctx, cipher);
        for (int j = 0; j < 4; j++) free_ctx(ctx[j]), ctx[j] = new_ctx();
        records(ctx, cipher);
        for (int j = 0; j < 4; j++) free_ctx(ctx[j]);
    }
    printf("%d messages are the same\n", rounds * 3);
    return 0;
}
