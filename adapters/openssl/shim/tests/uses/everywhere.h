/* Functions of libcrypto that libssl calls in a handshake, each in front of the original: with the points "every", a
 * handshake is suspended in each. Among them are all in which a provider may wait for a pass; none reads or writes the
 * socket, where no provider is asked. The program's functions come before those of its libraries. */

static int is_suspended_everywhere;

/* Zero if the handshake is being ended: then the call fails, as a provider's does. */
static int wait_everywhere(void)
{
    return !is_suspended_everywhere || wait_for_pass();
}

#define EVERYWHERE(result, name, parameters, arguments, failure)                     \
    result name parameters                                                           \
    {                                                                                \
        static result(*original) parameters;                                         \
                                                                                     \
        if (original == NULL)                                                        \
            *(void **)&original = dlsym(RTLD_NEXT, #name);                           \
        return wait_everywhere() ? original arguments : failure;                     \
    }

/* Signatures. */
EVERYWHERE(int, EVP_DigestSign, (EVP_MD_CTX * context, unsigned char *to, size_t *len, const unsigned char *of, size_t of_len),
           (context, to, len, of, of_len), 0)
EVERYWHERE(int, EVP_DigestSignFinal, (EVP_MD_CTX * context, unsigned char *to, size_t *len), (context, to, len), 0)
EVERYWHERE(int, EVP_DigestVerify,
           (EVP_MD_CTX * context, const unsigned char *of, size_t len, const unsigned char *text, size_t text_len),
           (context, of, len, text, text_len), 0)
EVERYWHERE(int, EVP_PKEY_sign, (EVP_PKEY_CTX * context, unsigned char *to, size_t *len, const unsigned char *of, size_t of_len),
           (context, to, len, of, of_len), 0)

/* Key exchanges. */
EVERYWHERE(int, EVP_PKEY_keygen, (EVP_PKEY_CTX * context, EVP_PKEY **to), (context, to), 0)
EVERYWHERE(int, EVP_PKEY_generate, (EVP_PKEY_CTX * context, EVP_PKEY **to), (context, to), 0)
EVERYWHERE(int, EVP_PKEY_derive, (EVP_PKEY_CTX * context, unsigned char *to, size_t *len), (context, to, len), 0)
EVERYWHERE(int, EVP_PKEY_encapsulate,
           (EVP_PKEY_CTX * context, unsigned char *to, size_t *len, unsigned char *secret, size_t *secret_len),
           (context, to, len, secret, secret_len), 0)
EVERYWHERE(int, EVP_PKEY_decapsulate,
           (EVP_PKEY_CTX * context, unsigned char *to, size_t *len, const unsigned char *of, size_t of_len),
           (context, to, len, of, of_len), 0)
EVERYWHERE(int, EVP_PKEY_decrypt,
           (EVP_PKEY_CTX * context, unsigned char *to, size_t *len, const unsigned char *of, size_t of_len),
           (context, to, len, of, of_len), 0)

/* Keys of the connection, and random numbers. */
EVERYWHERE(int, EVP_KDF_derive, (EVP_KDF_CTX * context, unsigned char *to, size_t len, const OSSL_PARAM *how),
           (context, to, len, how), 0)
EVERYWHERE(int, RAND_bytes_ex, (OSSL_LIB_CTX * of, unsigned char *to, size_t len, unsigned strength),
           (of, to, len, strength), 0)
