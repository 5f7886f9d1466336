/* Library contexts that come and go, a provider that is loaded again and again, and damaged keys. The
 * first argument says what is done; status 0 if everything ended as it must. */

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *configuration;

static void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static OSSL_LIB_CTX *context(void)
{
    OSSL_LIB_CTX *made = OSSL_LIB_CTX_new();

    if (made == NULL || !OSSL_LIB_CTX_load_config(made, configuration))
        die("no library context");
    return made;
}

/* A signature of the key, in the context; 1 if it verifies by OpenSSL's own code, 0 if there is none, -1 if
 * it is wrong. */
static int sign_by(OSSL_LIB_CTX *in, EVP_PKEY *key, const char *digest, const char *properties)
{
    unsigned char signature[2048];
    size_t length = sizeof signature;
    EVP_MD_CTX *made = EVP_MD_CTX_new();
    int result = 0;

    if (EVP_DigestSignInit_ex(made, NULL, digest, in, properties, key, NULL)
        && EVP_DigestSign(made, signature, &length, (const unsigned char *)"text", 4)) {
        EVP_MD_CTX *checked = EVP_MD_CTX_new();

        result = EVP_DigestVerifyInit_ex(checked, NULL, digest, in, "provider=default", key, NULL)
            && EVP_DigestVerify(checked, signature, length, (const unsigned char *)"text", 4) == 1
            ? 1 : -1;
        EVP_MD_CTX_free(checked);
    }
    EVP_MD_CTX_free(made);
    ERR_clear_error();
    return result;
}


/* The third signature: the provider prepares a key when it signs for the second time. */
static int sign(OSSL_LIB_CTX *in, EVP_PKEY *key, const char *digest)
{
    int first = sign_by(in, key, digest, NULL), second = sign_by(in, key, digest, NULL);
    int third = sign_by(in, key, digest, NULL);

    return second < first ? second : third;
}

static void use(OSSL_LIB_CTX *in)
{
    EVP_PKEY *ec = EVP_PKEY_Q_keygen(in, NULL, "EC", "P-256");
    EVP_PKEY *share = EVP_PKEY_Q_keygen(in, NULL, "X25519");
    EVP_PKEY *edwards = EVP_PKEY_Q_keygen(in, NULL, "ED25519");

    if (ec == NULL || share == NULL || edwards == NULL)
        die("no keys");
    if (sign(in, ec, "SHA256") != 1 || sign(in, edwards, NULL) != 1)
        die("a wrong signature");
    EVP_PKEY_free(ec);
    EVP_PKEY_free(share);
    EVP_PKEY_free(edwards);
}

/* Two contexts at the same time; one ends, the other goes on. */
static void *contexts(void *argument)
{
    int i;

    (void)argument;
    for (i = 0; i < 5; i++) {
        OSSL_LIB_CTX *one = context(), *other = context();

        use(one);
        use(other);
        OSSL_LIB_CTX_free(one);
        use(other);
        OSSL_LIB_CTX_free(other);
    }
    OPENSSL_thread_stop();
    return NULL;
}

/* The provider is unloaded and loaded again; a key that it made lives longer than it. */
static void reload(const char *module)
{
    int i;

    for (i = 0; i < 10; i++) {
        OSSL_LIB_CTX *in = OSSL_LIB_CTX_new();
        OSSL_PROVIDER *own = OSSL_PROVIDER_load(in, "default");
        OSSL_PROVIDER *ours, *again;
        EVP_PKEY *key, *kept;

        if (own == NULL || !OSSL_PROVIDER_set_default_search_path(in, module))
            die("no default provider");
        ours = OSSL_PROVIDER_load(in, "libwidelane_openssl");
        again = OSSL_PROVIDER_load(in, "libwidelane_openssl");
        if (ours == NULL || again == NULL)
            die("the provider does not load twice");
        EVP_set_default_properties(in, "?widelane.batch=yes");
        key = EVP_PKEY_Q_keygen(in, NULL, "EC", "P-256");
        if (key == NULL || sign(in, key, "SHA256") != 1)
            die("no signature");
        OSSL_PROVIDER_unload(again);
        if (sign(in, key, "SHA256") != 1)
            die("no signature after one of two was unloaded");
        kept = EVP_PKEY_Q_keygen(in, NULL, "X25519");
        OSSL_PROVIDER_unload(ours);
        EVP_PKEY_free(key);
        key = EVP_PKEY_Q_keygen(in, NULL, "EC", "P-256");
        if (key == NULL || sign(in, key, "SHA256") != 1)
            die("no signature by OpenSSL alone");
        ours = OSSL_PROVIDER_load(in, "libwidelane_openssl");
        if (ours == NULL || sign(in, key, "SHA256") != 1)
            die("no signature after it was loaded again");
        EVP_PKEY_free(kept);
        EVP_PKEY_free(key);
        OSSL_PROVIDER_unload(ours);
        OSSL_PROVIDER_unload(own);
        OSSL_LIB_CTX_free(in);
    }
}

static unsigned long long seed = 88172645463325252ULL;

static size_t below(size_t limit)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (size_t)(seed >> 16) % limit;
}

/* Private keys with one to four wrong bytes: whatever is loaded signs or fails, and nothing else. What
 * OpenSSL signs rightly or not at all, the provider does not sign wrongly. */
static void damage(OSSL_LIB_CTX *in)
{
    EVP_PKEY *keys[4];
    size_t i, round, loaded = 0, signed_ = 0, wrong = 0;

    keys[0] = EVP_PKEY_Q_keygen(in, NULL, "RSA", (size_t)2048);
    keys[1] = EVP_PKEY_Q_keygen(in, NULL, "EC", "P-256");
    keys[2] = EVP_PKEY_Q_keygen(in, NULL, "ED25519");
    keys[3] = EVP_PKEY_Q_keygen(in, NULL, "X25519");
    for (i = 0; i < 4; i++) {
        unsigned char *whole = NULL;
        int length = i2d_PrivateKey(keys[i], &whole);

        if (length <= 0)
            die("no file of a key");
        /* A damaged RSA key is looked at for long: its primes are tried. */
        for (round = 0; round < (i == 0 ? 60 : 300); round++) {
            unsigned char damaged[4096];
            const unsigned char *from = damaged;
            size_t times = 1 + below(4), cut = round % 10 == 0 ? below((size_t)length) : 0;
            EVP_PKEY *key;

            memcpy(damaged, whole, (size_t)length);
            while (times-- > 0)
                damaged[below((size_t)length)] ^= (unsigned char)(1 + below(255));
            key = d2i_AutoPrivateKey_ex(NULL, &from, length - (long)cut, in, NULL);
            ERR_clear_error();
            if (key == NULL)
                continue;
            loaded++;
            if (EVP_PKEY_is_a(key, "X25519")) {
                EVP_PKEY_CTX *derive = EVP_PKEY_CTX_new_from_pkey(in, key, NULL);
                unsigned char secret[32];
                size_t size = sizeof secret;

                if (EVP_PKEY_derive_init(derive) == 1 && EVP_PKEY_derive_set_peer(derive, keys[3]) == 1)
                    EVP_PKEY_derive(derive, secret, &size);
                EVP_PKEY_CTX_free(derive);
            } else {
                const char *digest = EVP_PKEY_is_a(key, "ED25519") ? NULL : "SHA256";
                int result = sign(in, key, digest);

                signed_ += result != 0;
                wrong += result < 0;
                if (result < 0 && sign_by(in, key, digest, "provider=default") >= 0)
                    die("a wrong signature has left, which OpenSSL by itself does not make");
            }
            EVP_PKEY_free(key);
            ERR_clear_error();
        }
        OPENSSL_free(whole);
        EVP_PKEY_free(keys[i]);
    }
    printf("%zu loaded, %zu signed, %zu of them not what their public half says\n", loaded, signed_,
        wrong);
}

/* RSA keys of sizes and exponents that few have. */
static void odd(OSSL_LIB_CTX *in)
{
    static const struct {
        unsigned int bits, primes;
        const char *exponent;
    } kinds[] = {
        {1023, 2, "65537"}, {2047, 2, "65537"}, {2048, 2, "3"}, {2049, 2, "3"}, {2050, 2, "65537"},
        {2048, 2, "340282366920938463463374607431768211507"}, {3071, 2, "17"}, {3072, 2, "5"},
        {2048, 3, "65537"},
    };
    size_t i;

    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        EVP_PKEY_CTX *made = EVP_PKEY_CTX_new_from_name(in, "RSA", NULL);
        EVP_PKEY *key = NULL;

        if (EVP_PKEY_keygen_init(made) != 1
            || EVP_PKEY_CTX_set_rsa_keygen_bits(made, (int)kinds[i].bits) != 1
            || EVP_PKEY_CTX_set_rsa_keygen_primes(made, (int)kinds[i].primes) != 1
            || EVP_PKEY_CTX_ctrl_str(made, "rsa_keygen_pubexp", kinds[i].exponent) != 1
            || EVP_PKEY_generate(made, &key) != 1)
            die("no key");
        if (sign(in, key, "SHA256") != 1 || sign(in, key, "SHA512") != 1 || sign(in, key, "SHA1") != 1)
            die("no right signature");
        EVP_PKEY_free(key);
        EVP_PKEY_CTX_free(made);
    }
}

/* The lists by which a provider announces its groups, in the order in which they come. */
struct lists {
    const OSSL_PARAM *lists[128];
    size_t count;
};

static int collect(const OSSL_PARAM list[], void *to)
{
    struct lists *lists = to;

    if (lists->count == sizeof lists->lists / sizeof *lists->lists)
        die("more groups than there is room for");
    lists->lists[lists->count++] = list;
    return 1;
}

static int stop(const OSSL_PARAM list[], void *to)
{
    collect(list, to);
    return 0;
}

/* OpenSSL asks for groups for each context of TLS, which clients make for each connection: the lists are made once. */
static int groups(OSSL_PROVIDER *provider, void *found)
{
    struct lists once = {{NULL}, 0}, again = {{NULL}, 0}, first = {{NULL}, 0};
    size_t i, j;

    if (strcmp(OSSL_PROVIDER_get0_name(provider), "default") == 0)
        return 1;
    if (!OSSL_PROVIDER_get_capabilities(provider, "TLS-GROUP", collect, &once)
        || !OSSL_PROVIDER_get_capabilities(provider, "TLS-GROUP", collect, &again))
        die("no groups");
    if (once.count != again.count || once.count == 0)
        die("another number of groups");
    for (i = 0; i < once.count; i++) {
        if (once.lists[i] != again.lists[i])
            die("a list was made again");
        for (j = 0; j < i; j++)
            if (once.lists[i] == once.lists[j])
                die("a list did not stay");
    }
    if (OSSL_PROVIDER_get_capabilities(provider, "TLS-GROUP", stop, &first) || first.count != 1)
        die("it went on after the caller had enough");
    *(size_t *)found += once.count;
    return 1;
}

int main(int count, char **arguments)
{
    if (count != 4)
        die("usage: contexts contexts|groups|reload|damage|odd CONFIGURATION FOLDER-OF-THE-PROVIDER");
    configuration = arguments[2];
    if (strcmp(arguments[1], "reload") == 0) {
        reload(arguments[3]);
    } else if (strcmp(arguments[1], "damage") == 0 || strcmp(arguments[1], "odd") == 0) {
        OSSL_LIB_CTX *in = context();

        (arguments[1][0] == 'o' ? odd : damage)(in);
        OSSL_LIB_CTX_free(in);
    } else if (strcmp(arguments[1], "groups") == 0) {
        OSSL_LIB_CTX *in = context();
        size_t found = 0;

        if (!OSSL_PROVIDER_do_all(in, groups, &found) || found == 0)
            die("no provider with groups");
        printf("%zu groups\n", found);
        OSSL_LIB_CTX_free(in);
    } else {
        pthread_t threads[4];
        size_t i;

        for (i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, contexts, NULL);
        for (i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    return 0;
}
