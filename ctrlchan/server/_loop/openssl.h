/* The part of OpenSSL (1.1.1, 3.x) that TLS listeners use, declared here and found at run time: no headers are needed
 * to build, and the system's updates of libssl count. tests/unit/server/test_openssl_header.py compiles the lists
 * below against the real headers.
 *
 * With CTRLCHAN_REAL_OPENSSL the types come from the real headers, which were included before. */
#ifndef CTRLCHAN_OPENSSL_H
#define CTRLCHAN_OPENSSL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifndef CTRLCHAN_REAL_OPENSSL
typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_method_st SSL_METHOD;
typedef struct x509_st X509;
typedef struct X509_name_st X509_NAME;
typedef struct x509_store_st X509_STORE;
typedef struct X509_VERIFY_PARAM_st X509_VERIFY_PARAM;
typedef struct x509_store_ctx_st X509_STORE_CTX;
typedef struct evp_pkey_st EVP_PKEY;
typedef struct bio_st BIO;
typedef struct asn1_string_st ASN1_TIME;
typedef struct asn1_string_st ASN1_OCTET_STRING;
typedef struct asn1_string_st ASN1_STRING;
typedef struct X509_extension_st X509_EXTENSION;
typedef struct ossl_init_settings_st OPENSSL_INIT_SETTINGS;
typedef int pem_password_cb(char *room, int size, int writes, void *data);
typedef int (*SSL_verify_cb)(int ok, X509_STORE_CTX *context);
#define SINCE_3 const
#elif OPENSSL_VERSION_NUMBER >= 0x30000000L
#define SINCE_3 const
#else
#define SINCE_3
#endif

/* What OpenSSL calls for each part of a message: whether it is sent, version, what the part is, the part, argument. */
typedef void (*MessageFunction)(int, int, int, const void *, size_t, SSL *, void *);

/* C(name, value) */
#define OPENSSL_CONSTANTS(C)                          \
    C(SSL_ERROR_SSL, 1)                               \
    C(SSL_ERROR_WANT_READ, 2)                         \
    C(SSL_ERROR_WANT_WRITE, 3)                        \
    C(SSL_ERROR_SYSCALL, 5)                           \
    C(SSL_ERROR_ZERO_RETURN, 6)                       \
    C(SSL_MODE_ENABLE_PARTIAL_WRITE, 1)               \
    C(SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, 2)         \
    C(SSL_MODE_RELEASE_BUFFERS, 16)                   \
    C(SSL_OP_NO_RENEGOTIATION, 0x40000000)            \
    C(SSL_OP_CIPHER_SERVER_PREFERENCE, 0x00400000)    \
    C(SSL_CTRL_SET_MSG_CALLBACK_ARG, 16)              \
    C(SSL_CTRL_MODE, 33)                              \
    C(SSL_CTRL_SET_READ_AHEAD, 41)                    \
    C(SSL_CTRL_SET_SESS_CACHE_MODE, 44)               \
    C(SSL_CTRL_SET_MAX_CERT_LIST, 51)                 \
    C(SSL_CTRL_CHAIN_CERT, 89)                        \
    C(SSL_CTRL_SET_DH_AUTO, 118)                      \
    C(SSL_CTRL_SET_MIN_PROTO_VERSION, 123)            \
    C(SSL_CTRL_SET_MAX_PROTO_VERSION, 124)            \
    C(SSL_SESS_CACHE_OFF, 0)                          \
    C(SSL_RECEIVED_SHUTDOWN, 2)                       \
    C(SSL3_RT_HEADER, 0x100)                          \
    C(SSL3_RT_INNER_CONTENT_TYPE, 0x101)              \
    C(SSL_VERIFY_PEER, 1)                             \
    C(SSL_VERIFY_FAIL_IF_NO_PEER_CERT, 2)             \
    C(TLS1_2_VERSION, 0x0303)                         \
    C(TLS1_3_VERSION, 0x0304)                         \
    C(NID_subject_alt_name, 85)                       \
    C(X509_V_OK, 0)                                   \
    C(X509_V_FLAG_PARTIAL_CHAIN, 0x80000)

/* Of OpenSSL 3 alone: C(name, value) */
#define OPENSSL_3_CONSTANTS(C)      \
    C(SSL_OP_ENABLE_KTLS, 0x8)      \
    C(BIO_CTRL_GET_KTLS_SEND, 73)

/* F(result, name, arguments): what every supported release has */
#define OPENSSL_FUNCTIONS(F)                                                                      \
    F(unsigned long, OpenSSL_version_num, (void))                                                 \
    F(const char *, OpenSSL_version, (int))                                                       \
    F(int, OPENSSL_init_ssl, (uint64_t, const OPENSSL_INIT_SETTINGS *))                           \
    F(void, ERR_clear_error, (void))                                                              \
    F(unsigned long, ERR_peek_error, (void))                                                      \
    F(unsigned long, ERR_peek_last_error, (void))                                                 \
    F(const char *, ERR_reason_error_string, (unsigned long))                                     \
    F(BIO *, BIO_new_mem_buf, (const void *, int))                                                \
    F(int, BIO_free, (BIO *))                                                                     \
    F(long, BIO_ctrl, (BIO *, int, long, void *))                                                 \
    F(EVP_PKEY *, PEM_read_bio_PrivateKey, (BIO *, EVP_PKEY **, pem_password_cb *, void *))       \
    F(X509 *, PEM_read_bio_X509, (BIO *, X509 **, pem_password_cb *, void *))                     \
    F(void, EVP_PKEY_free, (EVP_PKEY *))                                                          \
    F(void, X509_free, (X509 *))                                                                  \
    F(X509_NAME *, X509_get_subject_name, (const X509 *))                                         \
    F(int, i2d_X509_NAME, (SINCE_3 X509_NAME *, unsigned char **))                                \
    F(const ASN1_TIME *, X509_get0_notAfter, (const X509 *))                                      \
    F(int, X509_get_ext_by_NID, (const X509 *, int, int))                                         \
    F(X509_EXTENSION *, X509_get_ext, (const X509 *, int))                                        \
    F(ASN1_OCTET_STRING *, X509_EXTENSION_get_data, (X509_EXTENSION *))                           \
    F(const unsigned char *, ASN1_STRING_get0_data, (const ASN1_STRING *))                        \
    F(int, ASN1_STRING_length, (const ASN1_STRING *))                                             \
    F(int, ASN1_TIME_to_tm, (const ASN1_TIME *, struct tm *))                                     \
    F(int, X509_STORE_add_cert, (X509_STORE *, X509 *))                                           \
    F(int, X509_VERIFY_PARAM_set_flags, (X509_VERIFY_PARAM *, unsigned long))                     \
    F(const char *, X509_verify_cert_error_string, (long))                                        \
    F(const SSL_METHOD *, TLS_server_method, (void))                                              \
    F(SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *))                                               \
    F(void, SSL_CTX_free, (SSL_CTX *))                                                            \
    F(int, SSL_CTX_up_ref, (SSL_CTX *))                                                           \
    F(long, SSL_CTX_ctrl, (SSL_CTX *, int, long, void *))                                         \
    F(uint64_t, SSL_CTX_set_options, (SSL_CTX *, uint64_t))                                       \
    F(void, SSL_CTX_set_verify, (SSL_CTX *, int, SSL_verify_cb))                                  \
    F(int, SSL_CTX_set_cipher_list, (SSL_CTX *, const char *))                                    \
    F(int, SSL_CTX_set_ciphersuites, (SSL_CTX *, const char *))                                   \
    F(int, SSL_CTX_use_certificate, (SSL_CTX *, X509 *))                                          \
    F(int, SSL_CTX_use_PrivateKey, (SSL_CTX *, EVP_PKEY *))                                       \
    F(X509_STORE *, SSL_CTX_get_cert_store, (const SSL_CTX *))                                    \
    F(X509_VERIFY_PARAM *, SSL_CTX_get0_param, (SSL_CTX *))                                       \
    F(int, SSL_CTX_add_client_CA, (SSL_CTX *, X509 *))                                            \
    F(int, SSL_CTX_set_default_verify_paths, (SSL_CTX *))                                         \
    F(int, SSL_CTX_set_num_tickets, (SSL_CTX *, size_t))                                          \
    F(int, SSL_CTX_set_session_id_context, (SSL_CTX *, const unsigned char *, unsigned int))      \
    F(SSL *, SSL_new, (SSL_CTX *))                                                                \
    F(void, SSL_free, (SSL *))                                                                    \
    F(int, SSL_set_fd, (SSL *, int))                                                              \
    F(void, SSL_set_accept_state, (SSL *))                                                        \
    F(void, SSL_set_msg_callback, (SSL *, MessageFunction))                                       \
    F(long, SSL_ctrl, (SSL *, int, long, void *))                                                 \
    F(void, SSL_set_shutdown, (SSL *, int))                                                       \
    F(int, SSL_do_handshake, (SSL *))                                                             \
    F(int, SSL_read, (SSL *, void *, int))                                                        \
    F(int, SSL_write, (SSL *, const void *, int))                                                 \
    F(int, SSL_get_error, (const SSL *, int))                                                     \
    F(int, SSL_has_pending, (const SSL *))                                                        \
    F(int, SSL_shutdown, (SSL *))                                                                 \
    F(long, SSL_get_verify_result, (const SSL *))                                                 \
    F(BIO *, SSL_get_wbio, (const SSL *))

/* Of OpenSSL 3, or of 1.1.1: NULL where the loaded library does not have them. */
#define OPENSSL_3_FUNCTIONS(F)                                      \
    F(X509 *, SSL_get1_peer_certificate, (const SSL *))             \
    F(ssize_t, SSL_sendfile, (SSL *, int, off_t, size_t, int))
#define OPENSSL_1_FUNCTIONS(F) F(X509 *, SSL_get_peer_certificate, (const SSL *))

#ifndef CTRLCHAN_REAL_OPENSSL

#define CONSTANT(name, value) name = value,
enum { OPENSSL_CONSTANTS(CONSTANT) OPENSSL_3_CONSTANTS(CONSTANT) };
#undef CONSTANT

#define FIELD(result, name, arguments) result(*name) arguments;
typedef struct {
    OPENSSL_FUNCTIONS(FIELD)
    OPENSSL_3_FUNCTIONS(FIELD)
    OPENSSL_1_FUNCTIONS(FIELD)
} OpenSsl;
#undef FIELD

/* The first release that is used. */
#define OPENSSL_LEAST_VERSION 0x10101000UL

/* Fills `functions` from a library and those that it needs. Returns NULL, or the name of a function that is missing. */
static inline const char *find_openssl_functions(OpenSsl *functions, void *library) {
#define FIND(result, name, arguments)                              \
    *(void **)&functions->name = dlsym(library, #name);
#define REQUIRE(result, name, arguments)                           \
    FIND(result, name, arguments)                                  \
    if (functions->name == NULL) return #name;
    OPENSSL_FUNCTIONS(REQUIRE)
    OPENSSL_3_FUNCTIONS(FIND)
    OPENSSL_1_FUNCTIONS(FIND)
#undef REQUIRE
#undef FIND
    if (functions->SSL_get1_peer_certificate == NULL) {
        functions->SSL_get1_peer_certificate = functions->SSL_get_peer_certificate;
        if (functions->SSL_get1_peer_certificate == NULL) return "SSL_get1_peer_certificate";
    }
    return NULL;
}

/* RTLD_DEEPBIND: libssl finds its own libcrypto also where the program exports another one. Sanitizers do not allow it. */
#if defined(__SANITIZE_ADDRESS__)
#define OWN_SYMBOLS_FIRST 0
#elif defined(RTLD_DEEPBIND)
#define OWN_SYMBOLS_FIRST RTLD_DEEPBIND
#else
#define OWN_SYMBOLS_FIRST 0
#endif

/* Opens the library that is loaded already as `name` (NULL: the program itself), or returns NULL. */
static inline void *open_loaded_library(const char *name) {
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | (name == NULL ? 0 : RTLD_NOLOAD));
}

static inline void *open_library(const char *name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL | OWN_SYMBOLS_FIRST); }

/* The file of the library that has a function; NULL: unknown. */
static inline const char *file_of_function(const void *function) {
    Dl_info found;
    return dladdr(function, &found) ? found.dli_fname : NULL;
}

static inline void set_errno(int error) { errno = error; }

/* As pread */
static inline int64_t read_file(int file, void *data, int64_t size, int64_t position) {
    return pread(file, data, size, position);
}

/* The first bytes of a connection, which stay to be read: how many there are, or as recv. */
static inline int64_t look_at_bytes(int fd, void *data, int64_t size) { return recv(fd, data, size, MSG_PEEK); }

#endif
#endif
