"""PasswordEncoder: passwords of dynamic configs as Kafka keeps them in ZooKeeper.

::

    keyFactoryAlgorithm:…,cipherAlgorithm:…,keyLength:…,salt:…,iterations:…,encryptedPassword:…,
    passwordLength:…,initializationVector:…[,authenticationTagLength:…]

The key is made of the secret (PBKDF2). What a text was encoded with stands in the text, so that it can be
decoded after the settings have changed. Errors never repeat a value.
Source: ``org.apache.kafka.security.EncryptingPasswordEncoder`` of Kafka 3.9.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from typing import Any, Final

from ctrlchan.errors import ConfigError

__all__ = ["PasswordEncoder"]

#: Java's key factories: PBKDF2 with one of these hashes.
_HASHES: Final = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA224": "sha224",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384",
    "PBKDF2WithHmacSHA512": "sha512",
}
_CBC: Final = "AES/CBC/PKCS5Padding"
_GCM: Final = "AES/GCM/NoPadding"
_KEY_BITS: Final = (128, 192, 256)
_SALT_BYTES: Final = 256
_BLOCK_BYTES: Final = 16
_GCM_VECTOR_BYTES: Final = 12
_GCM_TAG_BITS: Final = 128
#: Of a text in ZooKeeper: more would keep the broker busy for minutes.
_MOST_ITERATIONS: Final = 10_000_000
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class PasswordEncoder:
    """Encodes with these settings; decodes what any settings have encoded with the same secret.

    Raises ConfigError for an algorithm or a key length that is not known, and without ``cryptography``.
    """

    def __init__(
        self,
        secret: str,
        key_factory: str | None = None,
        cipher: str = _CBC,
        key_bits: int = 128,
        iterations: int = 4096,
    ) -> None:
        self._secret = secret.encode()
        self._key_factory = key_factory or "PBKDF2WithHmacSHA512"
        self._cipher = cipher
        self._key_bits = key_bits
        self._iterations = iterations
        _check(self._key_factory, cipher, key_bits)
        _primitives()

    def encode(self, password: str) -> str:
        """Return the text that ZooKeeper gets."""
        salt = os.urandom(_SALT_BYTES)
        key = self._key(self._key_factory, salt, self._iterations, self._key_bits)
        data = password.encode()
        fields = {
            "keyFactoryAlgorithm": self._key_factory,
            "cipherAlgorithm": self._cipher,
            "keyLength": str(self._key_bits),
            "salt": _to_base64(salt),
            "iterations": str(self._iterations),
            "passwordLength": str(_java_length(password)),
        }
        primitives = _primitives()
        if self._cipher == _GCM:
            vector = os.urandom(_GCM_VECTOR_BYTES)
            encrypted = primitives.aead.AESGCM(key).encrypt(vector, data, None)
            fields["authenticationTagLength"] = str(_GCM_TAG_BITS)
        else:
            vector = os.urandom(_BLOCK_BYTES)
            encryptor = primitives.cipher(key, vector).encryptor()
            missing = _BLOCK_BYTES - len(data) % _BLOCK_BYTES
            encrypted = encryptor.update(data + bytes([missing]) * missing) + encryptor.finalize()
        fields["initializationVector"] = _to_base64(vector)
        fields["encryptedPassword"] = _to_base64(encrypted)
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Return the password of a text from ZooKeeper. Raises ConfigError."""
        fields = dict(part.rpartition(":")[::2] for part in text.split(","))
        try:
            return self._decode(fields)
        except (KeyError, ValueError, ConfigError) as error:
            # Neither the text nor what was found in it is shown.
            reason = str(error) if isinstance(error, ConfigError) else "it is damaged, or of another secret"
            raise ConfigError(f"Password could not be decoded: {reason}") from None

    def _decode(self, fields: Mapping[str, str]) -> str:
        key_factory, cipher = fields["keyFactoryAlgorithm"], fields["cipherAlgorithm"]
        key_bits, iterations = _number(fields["keyLength"]), _number(fields["iterations"])
        _check(key_factory, cipher, key_bits)
        if not 1 <= iterations <= _MOST_ITERATIONS:
            raise ConfigError(f"{iterations:,} iterations")
        key = self._key(key_factory, _from_base64(fields["salt"]), iterations, key_bits)
        vector = _from_base64(fields["initializationVector"])
        encrypted = _from_base64(fields["encryptedPassword"])
        primitives = _primitives()
        if cipher == _GCM:
            if _number(fields["authenticationTagLength"]) != _GCM_TAG_BITS:
                raise ValueError
            try:
                data = primitives.aead.AESGCM(key).decrypt(vector, encrypted, None)
            except primitives.invalid_tag:
                raise ValueError from None
        else:
            decryptor = primitives.cipher(key, vector).decryptor()
            padded = decryptor.update(encrypted) + decryptor.finalize()
            missing = padded[-1] if padded else 0
            end = bytes([missing]) * missing
            if not 1 <= missing <= _BLOCK_BYTES or not hmac.compare_digest(padded[-missing:], end):
                raise ValueError
            data = padded[:-missing]
        password = str(data, "utf-8")
        if _java_length(password) != _number(fields["passwordLength"]):
            raise ValueError
        return password

    def _key(self, key_factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
        return hashlib.pbkdf2_hmac(_HASHES[key_factory], self._secret, salt, iterations, bits // 8)


def _check(key_factory: str, cipher: str, key_bits: int) -> None:
    if key_factory not in _HASHES:
        raise ConfigError(f"the key factory must be one of {', '.join(_HASHES)}")
    if cipher not in (_CBC, _GCM):
        raise ConfigError(f"the cipher must be {_CBC} or {_GCM}")
    if key_bits not in _KEY_BITS:
        raise ConfigError(f"the key length {key_bits} is none of {', '.join(map(str, _KEY_BITS))}")


class _Primitives:
    """What is needed of ``cryptography``, which only brokers with encoded passwords load."""

    def __init__(self) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes

        self.aead = aead
        self.invalid_tag = InvalidTag
        self._parts = Cipher, algorithms.AES, modes.CBC

    def cipher(self, key: bytes, vector: bytes) -> Any:
        cipher, aes, cbc = self._parts
        return cipher(aes(key), cbc(vector))


def _primitives() -> _Primitives:
    try:
        return _Primitives()
    except ImportError:
        raise ConfigError(
            "passwords of dynamic configs need cryptography: pip install 'ctrlchan[pkcs12]'"
        ) from None


def _number(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError
    return int(text)


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
