/* Signs hash values with the key of a file by the provider and by OpenSSL's default one, in every form
 * that a program can ask for, and compares: answers, lengths, reasons of errors, and signatures, where a
 * key has one for each value. Others must verify by the default provider. */

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 1024

struct form {
    const char *digest;
    /* 0 for what OpenSSL chooses. */
    int padding, salt;
    const char *mask;
    /* The hash function is named before the padding. */
    int digest_first;
};

static const char *const digests[] = {NULL, "SHA256", "SHA384", "SHA512", "SHA1", "SHA3-256"};
static const int paddings[] = {0, RSA_PKCS1_PADDING, RSA_PKCS1_PSS_PADDING, RSA_NO_PADDING,
    RSA_X931_PADDING};
static const int salts[] = {0, RSA_PSS_SALTLEN_DIGEST, RSA_PSS_SALTLEN_MAX, 32, 20};
static const char *const masks[] = {NULL, "SHA256", "SHA1"};
static const size_t lengths[] = {0, 1, 20, 31, 32, 33, 36, 48, 64, 128, 245, 246, 256, 257, 384};

#define COUNT(list) (sizeof list / sizeof *list)

static EVP_PKEY *key;
static unsigned char value[MOST];
static size_t compared, right;

static void die(const struct form *form, size_t length, const char *what)
{
    fprintf(stderr, "%s: digest %s, padding %d, salt %d, mask %s, %zu bytes\n", what,
        form->digest ? form->digest : "none", form->padding, form->salt,
        form->mask ? form->mask : "none", length);
    ERR_print_errors_fp(stderr);
    exit(1);
}

/* The library and the reason of the first error, and none stays. */
static unsigned long reason(void)
{
    unsigned long code = ERR_peek_error();

    ERR_clear_error();
    return code;
}

/* Says what the form says; the sum of all answers. */
static int say(EVP_PKEY_CTX *context, const struct form *form)
{
    int said = 0;

    if (form->digest && form->digest_first)
        said = said * 3 + EVP_PKEY_CTX_ctrl_str(context, "digest", form->digest);
    if (form->padding)
        said = said * 3 + EVP_PKEY_CTX_set_rsa_padding(context, form->padding);
    if (form->digest && !form->digest_first)
        said = said * 3 + EVP_PKEY_CTX_ctrl_str(context, "digest", form->digest);
    if (form->salt)
        said = said * 3 + EVP_PKEY_CTX_set_rsa_pss_saltlen(context, form->salt);
    if (form->mask)
        said = said * 3 + EVP_PKEY_CTX_set_rsa_mgf1_md_name(context, form->mask, NULL);
    return said;
}

static EVP_PKEY_CTX *begin(const char *properties, const struct form *form, int *said)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, key, properties);

    if (context == NULL || EVP_PKEY_sign_init(context) != 1)
        die(form, 0, "no context");
    *said = say(context, form);
    return context;
}

/* Whether the default provider takes the signature. */
static int verifies(const struct form *form, size_t length, const unsigned char *signature, size_t size)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, key, "provider=default");
    int result = context != NULL && EVP_PKEY_verify_init(context) == 1;

    if (result) {
        say(context, form);
        result = EVP_PKEY_verify(context, signature, size, value, length) == 1;
    }
    EVP_PKEY_CTX_free(context);
    ERR_clear_error();
    return result;
}

/* One value in a place of `room` bytes, or a question for the length, by both. */
static void compare(EVP_PKEY_CTX *const both[2], const struct form *form, size_t length, size_t room,
    int asks)
{
    unsigned char signatures[2][MOST];
    size_t sizes[2] = {room, room};
    int results[2], i, repeats = EVP_PKEY_is_a(key, "RSA") && form->padding != RSA_PKCS1_PSS_PADDING;
    unsigned long reasons[2];

    memset(signatures, 0, sizeof signatures);
    for (i = 0; i < 2; i++) {
        ERR_clear_error();
        results[i] = EVP_PKEY_sign(both[i], asks ? NULL : signatures[i], &sizes[i], value, length);
        reasons[i] = reason();
    }
    if (results[0] != results[1])
        die(form, length, "other answers");
    if (reasons[0] != reasons[1])
        die(form, length, "other errors");
    compared++;
    if (results[0] != 1)
        return;
    if ((asks || repeats) && sizes[0] != sizes[1])
        die(form, length, "other lengths");
    if (asks)
        return;
    if (repeats && memcmp(signatures[0], signatures[1], sizes[0]) != 0)
        die(form, length, "other signatures");
    /* What cannot be verified is at least the same. */
    if (!repeats || verifies(form, length, signatures[1], sizes[1])) {
        if (!verifies(form, length, signatures[0], sizes[0]))
            die(form, length, "a wrong signature");
        right++;
    }
}

static void try(const struct form *form)
{
    EVP_PKEY_CTX *both[2], *copies[2];
    int said[2];
    size_t i, size = (size_t)EVP_PKEY_get_size(key);

    both[0] = begin(NULL, form, &said[0]);
    both[1] = begin("provider=default", form, &said[1]);
    if (said[0] != said[1])
        die(form, 0, "other settings");
    /* One context signs them all, and then its copy. */
    for (i = 0; i < COUNT(lengths); i++) {
        compare(both, form, lengths[i], MOST, 1);
        compare(both, form, lengths[i], MOST, 0);
        compare(both, form, lengths[i], size, 0);
        compare(both, form, lengths[i], size - 1, 0);
    }
    copies[0] = EVP_PKEY_CTX_dup(both[0]);
    copies[1] = EVP_PKEY_CTX_dup(both[1]);
    if (copies[0] == NULL || copies[1] == NULL)
        die(form, 0, "no copy");
    for (i = 0; i < 2; i++)
        EVP_PKEY_CTX_free(both[i]);
    for (i = 0; i < COUNT(lengths); i++)
        compare(copies, form, lengths[i], MOST, 0);
    for (i = 0; i < 2; i++)
        EVP_PKEY_CTX_free(copies[i]);
}

/* What is said between two signatures holds for the second, and what is asked for changes nothing. */
static void change(void)
{
    static const struct form first = {NULL, 0, 0, NULL, 0};
    static const struct form steps[] = {
        {"SHA256", 0, 0, NULL, 0}, {"SHA1", 0, 0, NULL, 0}, {"SHA512", 0, 0, NULL, 0},
    };
    static const struct form paddings_[] = {
        {"SHA256", RSA_PKCS1_PSS_PADDING, RSA_PSS_SALTLEN_DIGEST, NULL, 0},
        {"SHA256", RSA_PKCS1_PADDING, 0, NULL, 0},
    };
    EVP_PKEY_CTX *both[2];
    size_t i;
    int said[2], j;

    both[0] = begin(NULL, &first, &said[0]);
    both[1] = begin("provider=default", &first, &said[1]);
    compare(both, &first, 20, MOST, 0);
    for (i = 0; i < COUNT(steps) + (EVP_PKEY_is_a(key, "RSA") ? COUNT(paddings_) : 0); i++) {
        const struct form *form = i < COUNT(steps) ? &steps[i] : &paddings_[i - COUNT(steps)];
        const EVP_MD *asked[2] = {NULL, NULL};

        for (j = 0; j < 2; j++) {
            said[j] = say(both[j], form) * 3 + EVP_PKEY_CTX_get_signature_md(both[j], &asked[j]);
            ERR_clear_error();
        }
        if (said[0] != said[1] || asked[0] != asked[1])
            die(form, 0, "other settings between two signatures");
        compare(both, form, 20, MOST, 0);
        compare(both, form, 32, MOST, 0);
        compare(both, form, 64, MOST, 0);
    }
    for (j = 0; j < 2; j++)
        EVP_PKEY_CTX_free(both[j]);
}

int main(int count, char **arguments)
{
    FILE *file = count == 2 ? fopen(arguments[1], "r") : NULL;
    struct form form = {NULL, 0, 0, NULL, 0};
    size_t d, p, s, m;

    if (file == NULL || (key = PEM_read_PrivateKey(file, NULL, NULL, NULL)) == NULL) {
        fprintf(stderr, "usage: hash_values KEY.pem\n");
        return 1;
    }
    fclose(file);
    for (d = 0; d < sizeof value; d++)
        value[d] = (unsigned char)(d * 37 + 1);
    for (d = 0; d < COUNT(digests); d++)
        for (p = 0; p < (EVP_PKEY_is_a(key, "RSA") ? COUNT(paddings) : 1); p++)
            for (s = 0; s < (p ? COUNT(salts) : 1); s++)
                for (m = 0; m < (p && s < 2 ? COUNT(masks) : 1); m++) {
                    form.digest = digests[d];
                    form.padding = paddings[p];
                    form.salt = salts[s];
                    form.mask = masks[m];
                    for (form.digest_first = 0; form.digest_first < 2; form.digest_first++)
                        try(&form);
                }
    change();
    printf("%zu compared, %zu right signatures\n", compared, right);
    fflush(stdout);
    EVP_PKEY_free(key);
    /* The test reads the provider's counts before it ends the input. */
    getchar();
    return right == 0;
}
