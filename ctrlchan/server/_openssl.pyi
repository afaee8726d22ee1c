library_names: tuple[str, ...]

class OpenSslError(Exception): ...

class TlsContextError(ValueError):
    part: str

class TlsContext:
    @property
    def expires(self) -> int: ...
    @property
    def subject(self) -> bytes: ...
    @property
    def alternative_names(self) -> bytes: ...
    def __init__(
        self,
        *,
        chain: bytes,
        key: bytes,
        password: bytes | None = None,
        trusted: bytes | None = None,
        client_auth: str = "none",
        versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3"),
        suites: tuple[str, ...] = (),
        suites13: tuple[str, ...] = (),
    ) -> None: ...

def openssl_version() -> str: ...
def openssl_file() -> str | None: ...
def why_tls_failed(number: int) -> str: ...
