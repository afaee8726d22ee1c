"""OpenSSL for TLS listeners: the library, found at run time, and the contexts of listeners.

The library is the one that Python's ``_ssl`` uses, so that a process has one libssl; else that of the system. It is
loaded with the first ``TlsContext``. Nothing of it is linked: ``_loop/openssl.h`` has the declarations.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

import calendar
import importlib
import sys

cdef extern from "server/_loop/openssl.h" nogil:
    const char* find_openssl_functions(OpenSsl* functions, void* library)
    void* open_loaded_library(const char* name)
    void* open_library(const char* name)
    const char* file_of_function(const void* function)
    int dlclose(void*)

cdef enum:
    # The largest message of a handshake with a client's certificates (Java: jdk.tls.maxHandshakeMessageSize).
    MAX_CERTIFICATES_BYTES = 32768
    # Sessions that a TLS 1.3 client may resume, for each connection.
    TICKETS = 1
    SWITCH_ON = 1
    # With SSL_CTRL_CHAIN_CERT: the caller keeps his own reference to the certificate.
    ADD_A_REFERENCE = 1

# Names of the libraries in the order in which they are tried.
library_names = ("libssl.3.dylib", "libssl.1.1.dylib") if sys.platform == "darwin" else ("libssl.so.3", "libssl.so.1.1")

cdef OpenSsl FUNCTIONS
cdef bint is_loaded = False


class OpenSslError(Exception):
    """No libssl can be used. The text says why, for each that was tried."""


class TlsContextError(ValueError):
    """A part of a context cannot be used. ``part``: ``chain``, ``key``, ``trusted``, ``suites``, or empty."""

    def __init__(self, part, reason):
        super().__init__(reason)
        self.part = part


cdef const OpenSsl* openssl_functions() noexcept nogil:
    return &FUNCTIONS


cdef const OpenSsl* loaded_openssl() except NULL:
    """Return the functions of OpenSSL; find them when they are first needed. Raises OpenSslError."""
    global is_loaded
    if not is_loaded:
        reasons = []
        if not any(_load(name, is_new, reasons) for name, is_new in _candidates()):
            raise OpenSslError("; ".join(reasons))
        FUNCTIONS.OPENSSL_init_ssl(0, NULL)
        is_loaded = True
    return &FUNCTIONS


def _candidates():
    """Return files (None: the program) with libssl in them or below them, and whether they may be new to the process."""
    found = []
    try:
        _ssl = importlib.import_module("_ssl")
    except ImportError:
        pass
    else:
        found.append((getattr(_ssl, "__file__", None), False))
    return found + [(name, True) for name in library_names]


def _load(name, is_new, reasons):
    """Find the functions in a library. Return whether it has all of them; else add why it is of no use."""
    cdef bytes file = None if name is None else name.encode()
    cdef const char* path = NULL if file is None else <const char*>file
    cdef const char* missing
    cdef void* library = open_library(path) if is_new else open_loaded_library(path)
    if library == NULL:
        reasons.append(f"{name or 'the program'} cannot be loaded")
        return False
    missing = find_openssl_functions(&FUNCTIONS, library)
    if missing == NULL and FUNCTIONS.OpenSSL_version_num() >= OPENSSL_LEAST_VERSION:
        # The library stays open as long as the process lives.
        return True
    if missing == NULL:
        reasons.append(f"{name or 'the program'} has {FUNCTIONS.OpenSSL_version(0).decode()}")
    else:
        reasons.append(f"{name or 'the program'} has no function {missing.decode()}")
    dlclose(library)
    return False


def openssl_version():
    """Return the version of the loaded OpenSSL. Raises OpenSslError."""
    return loaded_openssl().OpenSSL_version(0).decode()


def openssl_file():
    """Return the file of the loaded OpenSSL, or None if that is not known. Raises OpenSslError."""
    cdef const char* file = file_of_function(<const void*>loaded_openssl().SSL_new)
    return None if file == NULL else file.decode()


cdef str reason_of(unsigned long error):
    cdef const char* reason = FUNCTIONS.ERR_reason_error_string(error)
    return "no reason given" if reason == NULL else reason.decode()


def why_tls_failed(int64_t number):
    """Return the reason of a failure of TLS as text. ``number``: as ``failure_number`` of ``tls.pxi`` makes it."""
    cdef long verified = number >> 32
    cdef unsigned long error = number & 0xFFFFFFFF
    if not is_loaded or not error:
        return "the peer closed the connection"
    if verified != X509_V_OK:
        return f"{reason_of(error)} ({FUNCTIONS.X509_verify_cert_error_string(verified).decode()})"
    return reason_of(error)


cdef struct Password:
    const char* text
    int size


cdef int copy_password(char* room, int size, int writes, void* data) noexcept nogil:
    cdef Password* password = <Password*>data
    if password.text == NULL or password.size > size:
        return -1
    memcpy(room, password.text, password.size)
    return password.size


cdef class TlsContext:
    """A certificate with its key, and what clients must show and may use.

    ``chain``, ``key``, ``trusted``: PEM; ``chain`` begins with our certificate; without ``trusted`` the authorities of the
    system count. ``password``: of the key. ``client_auth``: none, requested or required. ``suites``, ``suites13``: OpenSSL's
    names of the cipher suites of TLS 1.2 and 1.3, in the order of preference; both empty: OpenSSL's own choice. Raises
    TlsContextError, and OpenSslError where there is no OpenSSL.
    """

    def __cinit__(self, *, bytes chain, bytes key, bytes password=None, bytes trusted=None, client_auth="none",
                  versions=("TLSv1.2", "TLSv1.3"), tuple suites=(), tuple suites13=()):
        cdef const OpenSsl* ssl = loaded_openssl()
        ssl.ERR_clear_error()
        self.context = ssl.SSL_CTX_new(ssl.TLS_server_method())
        if self.context == NULL:
            raise TlsContextError("", reason_of(ssl.ERR_peek_error()))
        set_modes(self, ssl)
        choose_versions(self, ssl, versions, suites, suites13)
        take_certificates(self, ssl, "chain", chain, take_own)
        use_key(self, ssl, key, password)
        if client_auth != "none":
            ask_clients(self, ssl, trusted, client_auth == "required")

    def __dealloc__(self):
        if self.context != NULL:
            FUNCTIONS.SSL_CTX_free(self.context)


cdef int set_modes(TlsContext made, const OpenSsl* ssl) except -1:
    cdef long modes = (
        SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS
    )
    cdef uint64_t options = SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE
    if ssl.SSL_sendfile != NULL:
        options |= SSL_OP_ENABLE_KTLS
    ssl.SSL_CTX_set_options(made.context, options)
    ssl.SSL_CTX_ctrl(made.context, SSL_CTRL_MODE, modes, NULL)
    # One system call reads the header of a record and its bytes.
    ssl.SSL_CTX_ctrl(made.context, SSL_CTRL_SET_READ_AHEAD, SWITCH_ON, NULL)
    # Sessions are resumed by tickets, which cost no memory here.
    ssl.SSL_CTX_ctrl(made.context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL)
    ssl.SSL_CTX_ctrl(made.context, SSL_CTRL_SET_MAX_CERT_LIST, MAX_CERTIFICATES_BYTES, NULL)
    ssl.SSL_CTX_ctrl(made.context, SSL_CTRL_SET_DH_AUTO, SWITCH_ON, NULL)
    ssl.SSL_CTX_set_num_tickets(made.context, TICKETS)
    ssl.SSL_CTX_set_session_id_context(made.context, b"ctrlchan", 8)
    return 0


cdef int choose_versions(TlsContext made, const OpenSsl* ssl, versions, tuple suites, tuple suites13) except -1:
    has12, has13 = "TLSv1.2" in versions, "TLSv1.3" in versions
    if suites or suites13:
        has12, has13 = has12 and bool(suites), has13 and bool(suites13)
    if not has12 and not has13:
        raise TlsContextError("suites", f"none of the cipher suites is for {' or '.join(versions)}")
    ssl.SSL_CTX_ctrl(
        made.context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION if has12 else TLS1_3_VERSION, NULL
    )
    ssl.SSL_CTX_ctrl(
        made.context, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION if has13 else TLS1_2_VERSION, NULL
    )
    if suites and not ssl.SSL_CTX_set_cipher_list(made.context, ":".join(suites).encode()):
        raise TlsContextError("suites", "this OpenSSL has none of the cipher suites of TLS 1.2")
    if suites13 and not ssl.SSL_CTX_set_ciphersuites(made.context, ":".join(suites13).encode()):
        raise TlsContextError("suites", "this OpenSSL does not have all of the cipher suites of TLS 1.3")
    return 0


# Gives a certificate to a context; ``number``: how many came before. Returns whether OpenSSL takes it.
ctypedef bint (*TakeCertificate)(TlsContext made, const OpenSsl* ssl, X509* certificate, int number) except -1


cdef int take_certificates(TlsContext made, const OpenSsl* ssl, part, bytes pem, TakeCertificate take) except -1:
    """Give all certificates of a text to the context. Raises TlsContextError."""
    cdef X509* certificate
    cdef BIO* source = ssl.BIO_new_mem_buf(<const char*>pem, <int>len(pem))
    cdef int count = 0
    cdef bint is_taken
    cdef Password none = [NULL, 0]
    if source == NULL:
        raise MemoryError()
    try:
        while True:
            certificate = ssl.PEM_read_bio_X509(source, NULL, copy_password, &none)
            if certificate == NULL:
                break
            try:
                is_taken = take(made, ssl, certificate, count)
            finally:
                ssl.X509_free(certificate)
            if not is_taken:
                raise TlsContextError(part, f"certificate {count + 1}: {reason_of(ssl.ERR_peek_last_error())}")
            count += 1
        check_end(ssl, part, count)
    finally:
        ssl.BIO_free(source)
    return 0


cdef bint take_own(TlsContext made, const OpenSsl* ssl, X509* certificate, int number) except -1:
    """Take our certificate, or one of those that have signed it."""
    if number == 0:
        note(made, ssl, certificate)
        return ssl.SSL_CTX_use_certificate(made.context, certificate) == 1
    return ssl.SSL_CTX_ctrl(made.context, SSL_CTRL_CHAIN_CERT, ADD_A_REFERENCE, certificate) == 1


cdef bint take_trusted(TlsContext made, const OpenSsl* ssl, X509* certificate, int number) except -1:
    return (
        ssl.X509_STORE_add_cert(ssl.SSL_CTX_get_cert_store(made.context), certificate) == 1
        and ssl.SSL_CTX_add_client_CA(made.context, certificate) == 1
    )


cdef int note(TlsContext made, const OpenSsl* ssl, X509* certificate) except -1:
    """Keep the names of our certificate, and when it expires."""
    cdef tm end
    cdef ASN1_STRING* names
    cdef int place_of_names = ssl.X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1)
    cdef uint8_t* place
    cdef X509_NAME* name = ssl.X509_get_subject_name(certificate)
    cdef int size = ssl.i2d_X509_NAME(name, NULL)
    if size > 0:
        der = bytearray(size)
        place = der
        ssl.i2d_X509_NAME(name, &place)
        made.subject = bytes(der)
    made.alternative_names = b""
    if place_of_names >= 0:
        names = ssl.X509_EXTENSION_get_data(ssl.X509_get_ext(certificate, place_of_names))
        made.alternative_names = ssl.ASN1_STRING_get0_data(names)[: ssl.ASN1_STRING_length(names)]
    if ssl.ASN1_TIME_to_tm(ssl.X509_get0_notAfter(certificate), &end):
        made.expires = calendar.timegm(
            (1900 + end.tm_year, 1 + end.tm_mon, end.tm_mday, end.tm_hour, end.tm_min, end.tm_sec)
        )
    return 0


cdef int use_key(TlsContext made, const OpenSsl* ssl, bytes pem, bytes text) except -1:
    cdef EVP_PKEY* key
    cdef Password password = [NULL, 0]
    cdef BIO* source = ssl.BIO_new_mem_buf(<const char*>pem, <int>len(pem))
    cdef bint fits
    if source == NULL:
        raise MemoryError()
    if text is not None:
        password.text, password.size = text, <int>len(text)
    key = ssl.PEM_read_bio_PrivateKey(source, NULL, copy_password, &password)
    ssl.BIO_free(source)
    if key == NULL:
        if b"ENCRYPTED" in pem:
            given = "has no password here" if text is None else "has another password"
            raise TlsContextError("key", f"the private key is encrypted and {given}")
        raise TlsContextError("key", "no private key in PEM that can be read")
    fits = ssl.SSL_CTX_use_PrivateKey(made.context, key) == 1
    ssl.EVP_PKEY_free(key)
    if not fits:
        reason = reason_of(ssl.ERR_peek_last_error())
        if "mismatch" in reason:
            reason = "the private key is not that of the certificate"
        raise TlsContextError("key", reason)
    return 0


cdef int ask_clients(TlsContext made, const OpenSsl* ssl, bytes pem, bint must_show) except -1:
    """Ask clients for certificates; trust those of ``pem``, each as an authority of its own, as Java does.

    Without ``pem`` those of OpenSSL count (Kafka: those of JSSE).
    """
    cdef int mode = SSL_VERIFY_PEER | (SSL_VERIFY_FAIL_IF_NO_PEER_CERT if must_show else 0)
    ssl.SSL_CTX_set_verify(made.context, mode, NULL)
    if pem is None:
        ssl.SSL_CTX_set_default_verify_paths(made.context)
        return 0
    ssl.X509_VERIFY_PARAM_set_flags(ssl.SSL_CTX_get0_param(made.context), X509_V_FLAG_PARTIAL_CHAIN)
    return take_certificates(made, ssl, "trusted", pem, take_trusted)


cdef int check_end(const OpenSsl* ssl, part, int count) except -1:
    """Raise TlsContextError unless certificates were read up to the end of the text."""
    reason = reason_of(ssl.ERR_peek_last_error())
    if reason != "no start line":
        raise TlsContextError(part, f"certificate {count + 1} cannot be read: {reason}")
    ssl.ERR_clear_error()
    if count == 0:
        raise TlsContextError(part, "no certificate in PEM is in it")
    return 0
