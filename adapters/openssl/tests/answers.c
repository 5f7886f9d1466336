/* What OpenSSL answers about keys, agreements and signatures, line by line: with the provider as without it.
 * The first argument says about what. */

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rsa.h>
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

/* A key and its copy, as files and in words. */
static void show(const char *what, EVP_PKEY *key)
{
    EVP_PKEY *copy = EVP_PKEY_dup(key);
    EVP_PKEY *both[2];
    size_t i;

    both[0] = key;
    both[1] = copy;
    for (i = 0; i < 2; i++) {
        char encoding[40] = "", format[40] = "";
        unsigned char *private = NULL, *public = NULL, *parameters = NULL;
        int lengths[3] = {i2d_PrivateKey(both[i], &private), i2d_PUBKEY(both[i], &public),
            i2d_KeyParams(both[i], &parameters)};
        int cofactor = -1;

        EVP_PKEY_get_utf8_string_param(both[i], "encoding", encoding, sizeof encoding, NULL);
        EVP_PKEY_get_utf8_string_param(both[i], "point-format", format, sizeof format, NULL);
        EVP_PKEY_get_int_param(both[i], "use-cofactor-flag", &cofactor);
        printf("%s %s: private %d, public %d, parameters %d, %s, %s, cofactor %d\n", what, i ? "copy" : "key",
            lengths[0], lengths[1], lengths[2], encoding, format, cofactor);
        OPENSSL_free(private);
        OPENSSL_free(public);
        OPENSSL_free(parameters);
    }
    printf("the same: %d\n", EVP_PKEY_eq(key, copy));
    ERR_clear_error();
    EVP_PKEY_free(copy);
}

/* Keys of explicit curves, with compressed points and with a cofactor, before an agreement and after it. */
static void copies(void)
{
    static const char *const what[] = {"", "encoding", "point-format", "use-cofactor-flag"};
    size_t i, kind;

    for (i = 0; i < 2; i++) {
        for (kind = 0; kind < 4; kind++) {
            EVP_PKEY *key = made("EC", curves[i]), *peer = made("EC", curves[i]);

            if (kind == 1)
                tell("set", EVP_PKEY_set_utf8_string_param(key, what[1], "explicit"));
            if (kind == 2)
                tell("set", EVP_PKEY_set_utf8_string_param(key, what[2], "compressed"));
            if (kind == 3)
                tell("set", EVP_PKEY_set_int_param(key, what[3], 1));
            show("before", key);
            agree("derive", key, peer, 64);
            show("after", key);
            EVP_PKEY_free(key);
            EVP_PKEY_free(peer);
        }
    }
}

/* Keys and parameters that are made with an encoding, said before the group or after it. */
static void generation(void)
{
    static const struct {
        const char *name, *value;
    } values[] = {{"encoding", "explicit"}, {"encoding", "named_curve"}};
    size_t i, kind;

    for (i = 0; i < 2; i++) {
        for (kind = 0; kind < 8; kind++) {
            OSSL_PARAM group = OSSL_PARAM_construct_utf8_string("group", (char *)curves[i], 0);
            OSSL_PARAM value = OSSL_PARAM_construct_utf8_string(values[kind % 2].name,
                (char *)values[kind % 2].value, 0);
            OSSL_PARAM list[3] = {OSSL_PARAM_construct_end(), OSSL_PARAM_construct_end(),
                OSSL_PARAM_construct_end()};
            EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
            EVP_PKEY *key = NULL, *like = NULL;

            list[kind / 2 % 2] = group;
            list[1 - kind / 2 % 2] = value;
            tell("begin", kind < 4 ? EVP_PKEY_keygen_init(context) : EVP_PKEY_paramgen_init(context));
            tell("set", EVP_PKEY_CTX_set_params(context, list));
            tell("make", EVP_PKEY_generate(context, &key));
            show("made", key);
            EVP_PKEY_CTX_free(context);
            /* Another key like this one, and one of another curve. */
            context = EVP_PKEY_CTX_new(key, NULL);
            EVP_PKEY_keygen_init(context);
            tell("make", EVP_PKEY_generate(context, &like));
            show("like", like);
            EVP_PKEY_free(like);
            like = NULL;
            EVP_PKEY_keygen_init(context);
            tell("set", EVP_PKEY_CTX_set_group_name(context, "P-521"));
            tell("make", EVP_PKEY_generate(context, &like));
            show("other", like);
            EVP_PKEY_free(like);
            EVP_PKEY_free(key);
            EVP_PKEY_CTX_free(context);
        }
    }
}

static const unsigned char text[64] = "text";

/* Salts of PSS that are said as a number, before the hash function changes. */
static void salts(void)
{
    static const int lengths[] = {-1, -2, 0, 20, 32, 48, 64};
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    size_t i, round;

    for (round = 0; round < 3; round++) {
        for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            EVP_PKEY_CTX *context = EVP_PKEY_CTX_new(key, NULL), *verify = EVP_PKEY_CTX_new(key, NULL);
            EVP_PKEY_CTX *stream;
            EVP_MD_CTX *message = EVP_MD_CTX_new();
            unsigned char signature[256];
            size_t length = sizeof signature;
            int said = -9;

            EVP_PKEY_sign_init(context);
            EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_PSS_PADDING);
            EVP_PKEY_CTX_set_signature_md(context, EVP_sha256());
            tell("salt", EVP_PKEY_CTX_set_rsa_pss_saltlen(context, lengths[i]));
            if (round == 1) {
                tell("get", EVP_PKEY_CTX_get_rsa_pss_saltlen(context, &said));
                printf("%d\n", said);
            }
            if (round > 0)
                tell("another hash", EVP_PKEY_CTX_set_signature_md(context, EVP_sha512()));
            tell("sign", EVP_PKEY_sign(context, signature, &length, text, round > 0 ? 64 : 32));
            EVP_PKEY_verify_init(verify);
            EVP_PKEY_CTX_set_rsa_padding(verify, RSA_PKCS1_PSS_PADDING);
            EVP_PKEY_CTX_set_signature_md(verify, round > 0 ? EVP_sha512() : EVP_sha256());
            EVP_PKEY_CTX_set_rsa_pss_saltlen(verify, lengths[i]);
            tell("verify", EVP_PKEY_verify(verify, signature, length, text, round > 0 ? 64 : 32));
            EVP_DigestSignInit(message, &stream, EVP_sha256(), NULL, key);
            EVP_PKEY_CTX_set_rsa_padding(stream, RSA_PKCS1_PSS_PADDING);
            tell("salt", EVP_PKEY_CTX_set_rsa_pss_saltlen(stream, lengths[i]));
            tell("get", EVP_PKEY_CTX_get_rsa_pss_saltlen(stream, &said));
            printf("%d\n", said);
            EVP_MD_CTX_free(message);
            EVP_PKEY_CTX_free(context);
            EVP_PKEY_CTX_free(verify);
        }
    }
    EVP_PKEY_free(key);
}

/* Signatures of messages and of hash values for places of every size near the longest one, by a key that has
 * signed before. */
static void places(void)
{
    static const char *const digests[] = {"SHA256", "SHA256", "SHA384", NULL};
    EVP_PKEY *keys[4];
    size_t i, less;

    keys[0] = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    keys[1] = made("EC", curves[0]);
    keys[2] = made("EC", curves[1]);
    keys[3] = made("ED25519", NULL);
    for (i = 0; i < 4; i++) {
        for (less = 0; less < 20; less++) {
            EVP_MD_CTX *message = EVP_MD_CTX_new(), *stream = EVP_MD_CTX_new();
            unsigned char signature[256];
            size_t wanted = (size_t)EVP_PKEY_get_size(keys[i]), room = wanted - less % 10;

            printf("key %zu, %zu bytes\n", i, room);
            EVP_DigestSignInit_ex(message, NULL, digests[i], NULL, NULL, keys[i], NULL);
            tell("sign", EVP_DigestSign(message, signature, &room, text, sizeof text));
            /* Ed25519 has no streams. */
            if (digests[i] != NULL) {
                EVP_DigestSignInit_ex(stream, NULL, digests[i], NULL, NULL, keys[i], NULL);
                EVP_DigestSignUpdate(stream, text, sizeof text);
                room = wanted - less % 10;
                tell("sign a stream", EVP_DigestSignFinal(stream, signature, &room));
            }
            EVP_MD_CTX_free(message);
            EVP_MD_CTX_free(stream);
        }
        EVP_PKEY_free(keys[i]);
    }
}

/* Which part of `all` a signature is of, as `first-last`. */
static void tell_signed(EVP_PKEY *key, const char *digest, const unsigned char *signature, size_t length,
    const char *all)
{
    size_t count = strlen(all), first, last;

    for (first = 0; first < count; first++) {
        for (last = first; last < count; last++) {
            EVP_MD_CTX *verify = EVP_MD_CTX_new();

            EVP_DigestVerifyInit_ex(verify, NULL, digest, NULL, NULL, key, NULL);
            if (EVP_DigestVerify(verify, signature, length, (const unsigned char *)all + first, last - first + 1)
                == 1)
                printf("signs %zu-%zu\n", first, last);
            EVP_MD_CTX_free(verify);
        }
    }
    ERR_clear_error();
}

/* Calls on one context in every order: whole messages, pieces of streams, ends of streams, copies; then whole
 * messages that are verified one after another. */
static void orders(void)
{
    static const char *const digests[] = {"SHA256", "SHA384", "SHA1", NULL};
    EVP_PKEY *keys[4];
    size_t i, j, order, step;

    keys[0] = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    keys[1] = made("EC", curves[0]);
    keys[2] = made("EC", curves[1]);
    keys[3] = made("ED25519", NULL);
    for (i = 0; i < 4; i++) {
        for (j = 0; j < 4; j++) {
            EVP_MD_CTX *verify = EVP_MD_CTX_new();
            unsigned char signatures[3][512];
            size_t lengths[3];

            /* Ed25519 has no hash function, the others have one. */
            if ((i == 3) != (digests[j] == NULL))
                continue;
            for (order = 0; order < 64; order++) {
                EVP_MD_CTX *context = EVP_MD_CTX_new();
                char all[8] = "";

                printf("key %zu, %s, order %zu\n", i, digests[j] == NULL ? "none" : digests[j], order);
                EVP_DigestSignInit_ex(context, NULL, digests[j], NULL, NULL, keys[i], NULL);
                for (step = 0; step < 3; step++) {
                    unsigned char signature[512];
                    size_t length = sizeof signature;
                    const char letter = (char)('a' + step);
                    size_t kind = order >> (2 * step) & 3;
                    int result;

                    /* Ed25519 has no streams: OpenSSL 3.0 crashes at their end. */
                    if (i == 3 && kind < 3)
                        kind = 0;
                    switch (kind) {
                    case 0:
                        all[strlen(all)] = letter;
                        result = EVP_DigestSign(context, signature, &length, (const unsigned char *)&letter, 1);
                        tell("sign", result);
                        if (result == 1)
                            tell_signed(keys[i], digests[j], signature, length, all);
                        break;
                    case 1:
                        all[strlen(all)] = letter;
                        tell("update", EVP_DigestSignUpdate(context, &letter, 1));
                        break;
                    case 2:
                        result = EVP_DigestSignFinal(context, signature, &length);
                        tell("final", result);
                        if (result == 1)
                            tell_signed(keys[i], digests[j], signature, length, all);
                        break;
                    default: {
                        EVP_MD_CTX *copy = EVP_MD_CTX_new();

                        tell("copy", EVP_MD_CTX_copy_ex(copy, context));
                        EVP_MD_CTX_free(context);
                        context = copy;
                        break;
                    }
                    }
                }
                EVP_MD_CTX_free(context);
            }
            for (step = 0; step < 3; step++) {
                EVP_MD_CTX *context = EVP_MD_CTX_new();

                lengths[step] = sizeof signatures[step];
                EVP_DigestSignInit_ex(context, NULL, digests[j], NULL, NULL, keys[i], NULL);
                EVP_DigestSign(context, signatures[step], &lengths[step], (const unsigned char *)"abc", step + 1);
                EVP_MD_CTX_free(context);
            }
            EVP_DigestVerifyInit_ex(verify, NULL, digests[j], NULL, NULL, keys[i], NULL);
            for (step = 0; step < 3; step++)
                tell("verify", EVP_DigestVerify(verify, signatures[step], lengths[step],
                    (const unsigned char *)"abc" + step, 1));
            EVP_MD_CTX_free(verify);
        }
        EVP_PKEY_free(keys[i]);
    }
}

/* Public keys that are said to be pairs, after a signature of the kind: a fetch of keys for no provider in
 * particular finds those that the signature has fetched. */
static void imports(void)
{
    static const char *const kinds[] = {"RSA", "ED25519"};
    size_t i, round;

    for (i = 0; i < 2; i++) {
        OSSL_LIB_CTX *elsewhere = OSSL_LIB_CTX_new();
        EVP_PKEY *key = i == 0 ? EVP_PKEY_Q_keygen(elsewhere, NULL, "RSA", (size_t)2048)
                               : EVP_PKEY_Q_keygen(elsewhere, NULL, "ED25519");
        OSSL_PARAM *values = NULL;
        unsigned char *der = NULL;
        const unsigned char *read;
        int size = i2d_PrivateKey(key, &der);

        /* As from a file: no key of the kind has been fetched in this library context. */
        EVP_PKEY_free(key);
        OSSL_LIB_CTX_free(elsewhere);
        read = der;
        key = d2i_AutoPrivateKey(NULL, &read, size);
        OPENSSL_free(der);

        EVP_PKEY_todata(key, EVP_PKEY_PUBLIC_KEY, &values);
        for (round = 0; round < 3; round++) {
            EVP_PKEY_CTX *context;
            EVP_MD_CTX *sign = EVP_MD_CTX_new(), *verify = EVP_MD_CTX_new();
            unsigned char signature[256];
            size_t length = sizeof signature;
            EVP_PKEY *pair = NULL;

            EVP_DigestSignInit_ex(sign, NULL, i == 0 ? "SHA256" : NULL, NULL, NULL, key, NULL);
            tell("sign", EVP_DigestSign(sign, signature, &length, text, sizeof text));
            context = EVP_PKEY_CTX_new_from_name(NULL, kinds[i], NULL);
            EVP_PKEY_fromdata_init(context);
            tell("import", EVP_PKEY_fromdata(context, &pair, EVP_PKEY_KEYPAIR, values));
            if (pair != NULL) {
                EVP_DigestVerifyInit_ex(verify, NULL, i == 0 ? "SHA256" : NULL, NULL, NULL, pair, NULL);
                tell("verify", EVP_DigestVerify(verify, signature, length, text, sizeof text));
                EVP_MD_CTX_reset(sign);
                tell("begin without a private half",
                    EVP_DigestSignInit_ex(sign, NULL, i == 0 ? "SHA256" : NULL, NULL, NULL, pair, NULL));
                length = sizeof signature;
                tell("sign without it", EVP_DigestSign(sign, signature, &length, text, sizeof text) == 1);
            }
            EVP_PKEY_free(pair);
            EVP_MD_CTX_free(sign);
            EVP_MD_CTX_free(verify);
            EVP_PKEY_CTX_free(context);
        }
        OSSL_PARAM_free(values);
        EVP_PKEY_free(key);
    }
}

/* Values of keys and of operations under way: which can be read and set, and into which places. */
static void values(void)
{
    static const char *const kinds[] = {"X25519", "EC"};
    EVP_PKEY *rsa = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    size_t i;

    for (i = 0; i < 2; i++) {
        EVP_PKEY *own = made(kinds[i], i == 0 ? NULL : curves[0]), *other = made(kinds[i], i == 0 ? NULL : curves[0]);
        EVP_PKEY_CTX *context = EVP_PKEY_CTX_new(own, NULL);
        OSSL_PARAM list[] = {OSSL_PARAM_END, OSSL_PARAM_END};
        unsigned char *point = NULL, small[4];
        char name[30] = "none";
        size_t length = 0;
        int bits = 0;

        EVP_PKEY_derive_init(context);
        list[0] = OSSL_PARAM_construct_utf8_string("kdf-type", name, 0);
        tell("set", EVP_PKEY_CTX_set_params(context, list));
        list[0] = OSSL_PARAM_construct_utf8_string("kdf-type", name, sizeof name);
        tell("get", EVP_PKEY_CTX_get_params(context, list));
        list[0] = OSSL_PARAM_construct_octet_string("encoded-pub-key", small, sizeof small);
        tell("a small place", EVP_PKEY_get_params(own, list));
        printf("%d\n", OSSL_PARAM_modified(list));
        list[0] = OSSL_PARAM_construct_utf8_string("bits", name, sizeof name);
        tell("another type", EVP_PKEY_get_params(own, list));
        list[0] = OSSL_PARAM_construct_int("bits", &bits);
        tell("bits", EVP_PKEY_get_params(own, list));
        printf("%d\n", bits);
        length = EVP_PKEY_get1_encoded_public_key(other, &point);
        tell("another's public half", EVP_PKEY_set1_encoded_public_key(own, point, length));
        printf("with a private half: %d\n", i2d_PrivateKey(own, NULL) > 0);
        ERR_clear_error();
        OPENSSL_free(point);
        EVP_PKEY_CTX_free(context);
        EVP_PKEY_free(own);
        EVP_PKEY_free(other);
    }
    for (i = 0; i < 12; i++) {
        static const char *const digests[] = {"SHA256", "SHA384", "SHA1"};
        EVP_MD_CTX *message = EVP_MD_CTX_new();
        EVP_PKEY_CTX *context = NULL;
        char name[] = "SHA384", same[] = "SHA256";
        OSSL_PARAM list[] = {OSSL_PARAM_END, OSSL_PARAM_END};

        if (i % 2 == 0)
            EVP_DigestSignInit_ex(message, &context, digests[i / 4], NULL, NULL, rsa, NULL);
        else
            EVP_DigestVerifyInit_ex(message, &context, digests[i / 4], NULL, NULL, rsa, NULL);
        list[0] = OSSL_PARAM_construct_utf8_string("digest", i / 2 % 2 == 0 ? name : same, 0);
        tell("another hash function", EVP_PKEY_CTX_set_params(context, list));
        tell("by its name", EVP_PKEY_CTX_ctrl_str(context, "digest", name));
        tell("padding", EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_PSS_PADDING));
        EVP_MD_CTX_free(message);
    }
    EVP_PKEY_free(rsa);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*tell)(void);
    } all[] = {
        {"shares", shares},
        {"agreements", agreements},
        {"copies", copies},
        {"generation", generation},
        {"salts", salts},
        {"places", places},
        {"orders", orders},
        {"imports", imports},
        {"values", values},
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
