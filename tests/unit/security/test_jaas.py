"""JAAS: values of ``sasl.jaas.config`` and files of Java, and errors that repeat no secret."""

from __future__ import annotations

import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.security.jaas import LoginModule, parse_jaas_config, parse_jaas_file

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

OPTIONS = {
    'username="alice" password="a b"': {"username": "alice", "password": "a b"},
    "username='alice'\n  password=c2VjcmV0==": {"username": "alice", "password": "c2VjcmV0=="},
    'a = "1" // not b="2"\n/* c="3" */ d="4"': {"a": "1", "d": "4"},
    r'password="quote \" backslash \\ tab \t octal \101"': {
        "password": 'quote " backslash \\ tab \t octal A'
    },
    'user_alice="x" user_alice="y"': {"user_alice": "y"},
    'url="https://host/token" other=https://host/token': {
        "url": "https://host/token",
        "other": "https://host/token",
    },
    'empty=""': {"empty": ""},
    '"a name"=value': {"a name": "value"},
    'a="value1 = 1, value2 = 2"': {"a": "value1 = 1, value2 = 2"},
    'number="3"': {"number": "3"},
    'password="a;b{c}"': {"password": "a;b{c}"},
    "": {},
}


@pytest.mark.parametrize("text", OPTIONS)
def test_options(text: str) -> None:
    assert parse_jaas_config(f"{PLAIN} required {text};") == [LoginModule(PLAIN, "required", OPTIONS[text])]


def test_a_flag_in_capital_letters_and_the_simple_name() -> None:
    (module,) = parse_jaas_config(f"  {PLAIN}\n REQUIRED ;\n")
    assert (module.flag, module.simple_name) == ("required", "PlainLoginModule")


@pytest.mark.parametrize("flag", ["required", "requisite", "sufficient", "optional"])
def test_each_flag(flag: str) -> None:
    assert parse_jaas_config(f'{PLAIN} {flag} a="b";') == [LoginModule(PLAIN, flag, {"a": "b"})]


def test_several_login_modules() -> None:
    assert [one.name for one in parse_jaas_config("a.B required; c.D optional x=1;")] == ["a.B", "c.D"]


def test_a_file() -> None:
    text = f"""
        // For brokers.
        KafkaServer {{
          {PLAIN} required
            username="admin"
            user_admin="one";
          x.ScramLoginModule optional;
        }};
        inside.KafkaServer {{ }};
        Client {{ x.DigestLoginModule required username="zk" password="p"; }};
    """
    entries = parse_jaas_file(text)
    assert {name: [one.simple_name for one in modules] for name, modules in entries.items()} == {
        "KafkaServer": ["PlainLoginModule", "ScramLoginModule"],
        "inside.KafkaServer": [],
        "Client": ["DigestLoginModule"],
    }
    assert entries["Client"][0].options == {"username": "zk", "password": "p"}


BAD = {
    PLAIN: "the flag of .* is missing",
    f"{PLAIN} needed;": "the flag of .* is none of",
    f'{PLAIN} required password="s3cret"': "';' is missing",
    f"{PLAIN} required password;": "'=' is missing",
    f"{PLAIN} required password=;": "has no value",
    f'{PLAIN} required password="s3cret;': "a quotation mark has no other one",
    f'{PLAIN} required password="s3cret\n";': "a quotation mark has no other one",
    f"{PLAIN} required password=s3cret }}": "';' is missing",
    "; required;": "a login module is missing",
    "  required option=s3cret;": "the flag of required is none of",
    f"{PLAIN} option=s3cret;": "the flag of .* is none of",
    f"{PLAIN} {{ option=s3cret;": "the flag of .* is missing",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_value_is_refused_without_its_secret(text: str) -> None:
    with pytest.raises(ConfigError, match=BAD[text]) as raised:
        parse_jaas_config(text)
    assert "s3cret" not in str(raised.value)


BAD_FILES = {
    "Client": "'{' is missing after entry Client",
    "Client { x.M required; }": "';' is missing after entry Client",
    "Client {\n x.M required;\n": "line 3: '}' is missing after entry Client",
    "Client { };\nClient { };": "line 2: there are two entries named Client",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_bad_file_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=BAD_FILES[text]):
        parse_jaas_file(text)


def test_no_option_is_shown() -> None:
    assert "s3cret" not in repr(parse_jaas_config(f"{PLAIN} required password=s3cret;"))
