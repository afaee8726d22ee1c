# OpenSSL, loaded at run time, for rooms that secure connections without the GIL.

from libc.stdint cimport int64_t, uint8_t, uint64_t

# Copies the password of an encrypted key, which ``data`` has, and returns its size; -1: there is none.
ctypedef int (*PasswordFunction)(char* room, int size, int writes, void* data) noexcept nogil

cdef extern from "server/_loop/openssl.h" nogil:
    ctypedef struct SSL:
        pass
    ctypedef void (*MessageFunction)(int, int, int, const void*, size_t, SSL*, void*) noexcept nogil
    ctypedef struct SSL_CTX:
        pass
    ctypedef struct SSL_METHOD:
        pass
    ctypedef struct X509:
        pass
    ctypedef struct X509_NAME:
        pass
    ctypedef struct X509_STORE:
        pass
    ctypedef struct X509_VERIFY_PARAM:
        pass
    ctypedef struct EVP_PKEY:
        pass
    ctypedef struct BIO:
        pass
    ctypedef struct ASN1_TIME:
        pass
    ctypedef struct ASN1_STRING:
        pass
    ctypedef struct X509_EXTENSION:
        pass
    struct tm:
        int tm_sec, tm_min, tm_hour, tm_mday, tm_mon, tm_year

    int SSL_ERROR_SSL, SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE, SSL_ERROR_SYSCALL, SSL_ERROR_ZERO_RETURN
    int SSL_MODE_ENABLE_PARTIAL_WRITE, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, SSL_MODE_RELEASE_BUFFERS
    int SSL_OP_NO_RENEGOTIATION, SSL_OP_CIPHER_SERVER_PREFERENCE, SSL_OP_ENABLE_KTLS
    int SSL_CTRL_MODE, SSL_CTRL_SET_READ_AHEAD, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_CTRL_SET_MAX_CERT_LIST
    int SSL_CTRL_CHAIN_CERT, SSL_CTRL_SET_DH_AUTO, SSL_CTRL_SET_MIN_PROTO_VERSION, SSL_CTRL_SET_MAX_PROTO_VERSION
    int SSL_CTRL_SET_MSG_CALLBACK_ARG, SSL_RECEIVED_SHUTDOWN, SSL3_RT_HEADER, SSL3_RT_INNER_CONTENT_TYPE
    int SSL_SESS_CACHE_OFF, SSL_VERIFY_PEER, SSL_VERIFY_FAIL_IF_NO_PEER_CERT
    int TLS1_2_VERSION, TLS1_3_VERSION
    int NID_subject_alt_name, X509_V_OK, X509_V_FLAG_PARTIAL_CHAIN
    int BIO_CTRL_GET_KTLS_SEND
    unsigned long OPENSSL_LEAST_VERSION

    # The result of ``look_at_bytes``: as recv
    int64_t look_at_bytes(int fd, void* data, int64_t size)
    int64_t read_file(int file, void* data, int64_t size, int64_t position)
    void set_errno(int error)

    ctypedef struct OpenSsl:
        unsigned long (*OpenSSL_version_num)() noexcept nogil
        const char* (*OpenSSL_version)(int) noexcept nogil
        int (*OPENSSL_init_ssl)(uint64_t, const void*) noexcept nogil
        void (*ERR_clear_error)() noexcept nogil
        unsigned long (*ERR_peek_error)() noexcept nogil
        unsigned long (*ERR_peek_last_error)() noexcept nogil
        const char* (*ERR_reason_error_string)(unsigned long) noexcept nogil
        BIO* (*BIO_new_mem_buf)(const void*, int) noexcept nogil
        int (*BIO_free)(BIO*) noexcept nogil
        long (*BIO_ctrl)(BIO*, int, long, void*) noexcept nogil
        EVP_PKEY* (*PEM_read_bio_PrivateKey)(BIO*, EVP_PKEY**, PasswordFunction, void*) noexcept nogil
        X509* (*PEM_read_bio_X509)(BIO*, X509**, PasswordFunction, void*) noexcept nogil
        void (*EVP_PKEY_free)(EVP_PKEY*) noexcept nogil
        void (*X509_free)(X509*) noexcept nogil
        X509_NAME* (*X509_get_subject_name)(const X509*) noexcept nogil
        int (*i2d_X509_NAME)(const X509_NAME*, uint8_t**) noexcept nogil
        const ASN1_TIME* (*X509_get0_notAfter)(const X509*) noexcept nogil
        int (*X509_get_ext_by_NID)(const X509*, int, int) noexcept nogil
        X509_EXTENSION* (*X509_get_ext)(const X509*, int) noexcept nogil
        ASN1_STRING* (*X509_EXTENSION_get_data)(X509_EXTENSION*) noexcept nogil
        const uint8_t* (*ASN1_STRING_get0_data)(const ASN1_STRING*) noexcept nogil
        int (*ASN1_STRING_length)(const ASN1_STRING*) noexcept nogil
        int (*ASN1_TIME_to_tm)(const ASN1_TIME*, tm*) noexcept nogil
        int (*X509_STORE_add_cert)(X509_STORE*, X509*) noexcept nogil
        int (*X509_VERIFY_PARAM_set_flags)(X509_VERIFY_PARAM*, unsigned long) noexcept nogil
        const char* (*X509_verify_cert_error_string)(long) noexcept nogil
        const SSL_METHOD* (*TLS_server_method)() noexcept nogil
        SSL_CTX* (*SSL_CTX_new)(const SSL_METHOD*) noexcept nogil
        void (*SSL_CTX_free)(SSL_CTX*) noexcept nogil
        int (*SSL_CTX_up_ref)(SSL_CTX*) noexcept nogil
        long (*SSL_CTX_ctrl)(SSL_CTX*, int, long, void*) noexcept nogil
        uint64_t (*SSL_CTX_set_options)(SSL_CTX*, uint64_t) noexcept nogil
        void (*SSL_CTX_set_verify)(SSL_CTX*, int, void*) noexcept nogil
        int (*SSL_CTX_set_cipher_list)(SSL_CTX*, const char*) noexcept nogil
        int (*SSL_CTX_set_ciphersuites)(SSL_CTX*, const char*) noexcept nogil
        int (*SSL_CTX_use_certificate)(SSL_CTX*, X509*) noexcept nogil
        int (*SSL_CTX_use_PrivateKey)(SSL_CTX*, EVP_PKEY*) noexcept nogil
        X509_STORE* (*SSL_CTX_get_cert_store)(const SSL_CTX*) noexcept nogil
        X509_VERIFY_PARAM* (*SSL_CTX_get0_param)(SSL_CTX*) noexcept nogil
        int (*SSL_CTX_add_client_CA)(SSL_CTX*, X509*) noexcept nogil
        int (*SSL_CTX_set_default_verify_paths)(SSL_CTX*) noexcept nogil
        int (*SSL_CTX_set_num_tickets)(SSL_CTX*, size_t) noexcept nogil
        int (*SSL_CTX_set_session_id_context)(SSL_CTX*, const uint8_t*, unsigned int) noexcept nogil
        SSL* (*SSL_new)(SSL_CTX*) noexcept nogil
        void (*SSL_free)(SSL*) noexcept nogil
        int (*SSL_set_fd)(SSL*, int) noexcept nogil
        void (*SSL_set_accept_state)(SSL*) noexcept nogil
        void (*SSL_set_msg_callback)(SSL*, MessageFunction) noexcept nogil
        long (*SSL_ctrl)(SSL*, int, long, void*) noexcept nogil
        void (*SSL_set_shutdown)(SSL*, int) noexcept nogil
        int (*SSL_do_handshake)(SSL*) noexcept nogil
        int (*SSL_read)(SSL*, void*, int) noexcept nogil
        int (*SSL_write)(SSL*, const void*, int) noexcept nogil
        int (*SSL_get_error)(const SSL*, int) noexcept nogil
        int (*SSL_has_pending)(const SSL*) noexcept nogil
        int (*SSL_shutdown)(SSL*) noexcept nogil
        long (*SSL_get_verify_result)(const SSL*) noexcept nogil
        BIO* (*SSL_get_wbio)(const SSL*) noexcept nogil
        X509* (*SSL_get1_peer_certificate)(const SSL*) noexcept nogil
        # NULL before OpenSSL 3
        int64_t (*SSL_sendfile)(SSL*, int, int64_t, size_t, int) noexcept nogil

# The functions of OpenSSL. Valid as soon as there is a TlsContext.
cdef const OpenSsl* openssl_functions() noexcept nogil


# What connections of a TLS listener begin with. They keep what OpenSSL needs of it.
cdef class TlsContext:
    cdef SSL_CTX* context
    #: When our certificate expires, in seconds since 1970.
    cdef readonly int64_t expires
    #: The name of our certificate, as DER.
    cdef readonly bytes subject
    #: Its extension subjectAltName, as DER; empty: it has none.
    cdef readonly bytes alternative_names
