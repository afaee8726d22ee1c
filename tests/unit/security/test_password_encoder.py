"""Passwords of dynamic configs: what is encoded is decoded, by Kafka's form and with its settings."""

from __future__ import annotations

import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.security.password_encoder import PasswordEncoder

#: Written by ``EncryptingPasswordEncoder`` of Kafka 3.9.1 for "käse-𝄞", with "password-encoder-secret".
KAFKAS = {
    "cbc": (
        "initializationVector:03n3Vj60bPp0SlGRjZS+VA==,keyLength:128,salt:Jtq0SL/cFqfcEHgnCF9ZCS58SMNf6QT"
        "pQqKFhaCFkFJwy2Hc9oYtJHzCT6XxU8kAn5tzuHO0sw3/uDjgiJINCkEbAomufAQd/TaMnXSFzW9OTJsi8OnLphS+p3n7j8Z"
        "29zAlhCeLZBSTHRy3KnAiakwGqLlZuELsU7D1Vzb19jNnXOfCMurU9bVQavwewyS9k5SAkQMtyVhHmV2Un/04VIAMXkvPgDu"
        "8oPoew2VXbwVe3ZDjlXsaVBPD785Sq6/z48/AdP+Ij6KuFCkonF3r3GLEFmAyegsU4ZWqj+L2UA0lJEgNvF7Y6RfxgPkbU2/"
        "VRhSVPS0G16pfCWaR3CSOMg==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5"
        "Padding,iterations:4096,passwordLength:7,encryptedPassword:3NaFPTPfz29QI0a2Bjq9Qw=="
    ),
    "gcm": (
        "initializationVector:WY5ay+rxMoS0CuJA,keyLength:128,salt:feQg4a9T1zCE3WuA8UvVdYHB6ZuKdQ4a3DBCMKS"
        "PPkc88N8qKT2xNtWwHn8sF4go5UhmBqoHCH/HttEbrq3DqoZ0qq/7aizTfmbQXkR4WIlKrhUeUcMnou1jEf7PDgSusaYL0hJ"
        "g2nTdN0Fu8Lu4amXXMcJR9cfzzKwRlOA3vvBdGnhR4SSYzGj/eINBCuTP63dTphkt4mubhRRlcOUzxMaH0ULRokvV/7rokT8"
        "4BG6CXKAk5yK0/UzocDqV0nI8puOG3bnvbN89TpirCz+5Leg00AAIKy493oNSFeOxZ+B/PD0ADDQ0oXOZoxgw1kU86Yr7i48"
        "UPScyr2RVNJYISQ==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/GCM/NoPadding,aut"
        "henticationTagLength:128,iterations:4096,passwordLength:7,encryptedPassword:qXMqayWg9CCFT3rMhccD"
        "RkuCn9FIpo1YeZw="
    ),
}


@pytest.mark.parametrize("password", ["", "secret", "sixteen bytes...", "käse-𝄞", "x" * 5000, "a,b:c"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"key_factory": "PBKDF2WithHmacSHA1", "iterations": 1024, "key_bits": 192},
        {"cipher": "AES/GCM/NoPadding", "key_bits": 256},
    ],
)
def test_any_encoder_of_the_secret_decodes(password: str, settings: dict[str, object]) -> None:
    encoder = PasswordEncoder("the secret", **settings)  # type: ignore[arg-type]
    text = encoder.encode(password)
    assert PasswordEncoder("the secret").decode(text) == password
    assert encoder.encode(password) != text
    if password:
        assert password not in text


@pytest.mark.parametrize("cipher", KAFKAS)
def test_what_kafka_has_encoded_is_decoded(cipher: str) -> None:
    assert PasswordEncoder("password-encoder-secret").decode(KAFKAS[cipher]) == "käse-𝄞"


@pytest.mark.parametrize(
    ("found", "replaced"),
    [
        ("", ""),
        ("iterations:4096", "iterations:4097"),
        ("iterations:4096", "iterations:999999999"),
        ("iterations:4096", "iterations:0"),
        ("iterations:4096", "iterations:" + "9" * 5000),
        ("keyLength:128", "keyLength:64"),
        ("passwordLength:6", "passwordLength:7"),
        ("cipherAlgorithm:AES/CBC/PKCS5Padding", "cipherAlgorithm:DES/CBC/PKCS5Padding"),
        ("PBKDF2WithHmacSHA512", "PBKDF2WithHmacMD5"),
        ("salt:", "salt:*"),
        ("initializationVector:", "initializationVector:AAAA"),
        ("encryptedPassword:", "unknown:"),
    ],
)
def test_what_is_damaged_is_refused_and_not_shown(found: str, replaced: str) -> None:
    text = PasswordEncoder("the secret").encode("hidden").replace(found, replaced) if found else "hidden"
    with pytest.raises(ConfigError, match="Password could not be decoded") as raised:
        PasswordEncoder("the secret").decode(text)
    assert "hidden" not in str(raised.value)
    assert len(str(raised.value)) < 300


def test_another_secret_does_not_decode() -> None:
    text = PasswordEncoder("the secret", cipher="AES/GCM/NoPadding").encode("hidden")
    with pytest.raises(ConfigError, match="of another secret"):
        PasswordEncoder("no secret").decode(text)


@pytest.mark.parametrize(
    "settings",
    [{"cipher": "DES/CBC/PKCS5Padding"}, {"key_factory": "PBKDF2"}, {"key_bits": 8}],
)
def test_unknown_algorithms_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"must be|is none of"):
        PasswordEncoder("the secret", **settings)  # type: ignore[arg-type]
