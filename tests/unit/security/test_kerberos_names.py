"""Names of Kerberos principals and their rules: Kafka's KerberosNameTest and KerberosRuleTest, and more."""

from __future__ import annotations

import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.security.kerberos_names import (
    DEFAULT_KERBEROS_RULES,
    KerberosName,
    KerberosRules,
    NoKerberosRule,
    parse_kerberos_name,
)

REALM = "REALM.COM"


def user_of(name: str, *rules: str, realm: str = REALM) -> str:
    return KerberosRules(rules).user_of(parse_kerberos_name(name), realm)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "App.service-name/example.com@REALM.COM",
            KerberosName("App.service-name", "example.com", "REALM.COM"),
        ),
        ("App.service-name@REALM.COM", KerberosName("App.service-name", None, "REALM.COM")),
        ("user/host@REALM.COM", KerberosName("user", "host", "REALM.COM")),
        ("user/@", KerberosName("user", "", "")),
        ("user", KerberosName("user", None, None)),
    ],
)
def test_parts_of_a_name(text: str, name: KerberosName) -> None:
    assert parse_kerberos_name(text) == name
    assert str(name) == text


@pytest.mark.parametrize("text", ["a/b/c@R", "a@b@R", "a@R/b", r"a\/b@R", r"a\@b@R", "a\\"])
def test_a_name_that_no_user_has(text: str) -> None:
    with pytest.raises(ValueError, match=r"it is not <name>@<realm>"):
        parse_kerberos_name(text)


RULES = (r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g", r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT")


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("App.service-name/example.com@REALM.COM", "service-name"),
        ("App.service-name@REALM.COM", "service-name"),
        ("user/host@REALM.COM", "user"),
    ],
)
def test_rules(name: str, user: str) -> None:
    assert user_of(name, *RULES) == user


CASES = [
    ("User@REALM.COM", "user"),
    ("TestABC/host@FOO.COM", "test"),
    ("ABC_User_ABC/host@FOO.COM", "xyz_user_xyz"),
    ("App.SERVICE-name/example.com@REALM.COM", "service-name"),
    ("User/root@REALM.COM", "user"),
]


@pytest.mark.parametrize("case", ["L", "U"])
@pytest.mark.parametrize(("name", "user"), CASES)
def test_small_and_capital_letters(name: str, user: str, case: str) -> None:
    rules = [
        f"RULE:[1:$1]/{case}",
        f"RULE:[2:$1](Test.*)s/ABC///{case}",
        f"RULE:[2:$1](ABC.*)s/ABC/XYZ/g/{case}",
        rf"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/{case}",
        f"RULE:[2:$1]/{case}",
        "DEFAULT",
    ]
    assert user_of(name, *rules) == (user if case == "L" else user.upper())


@pytest.mark.parametrize(
    ("rule", "name", "user"),
    [
        ("RULE:[1:$1@$0](.*@OTHER)s/@.*//", "alice@OTHER", "alice"),
        ("RULE:[2:$1-$2-$0]", "a/b@R", "a-b-R"),
        ("RULE:[2:$2]", "a/$1@R", "$1"),
        ("RULE:[1:hello]", "a@R", "hello"),
        ("RULE:[1:$1]s/a/b/", "aaa@R", "baa"),
        ("RULE:[1:$1]s/a/b/g", "aaa@R", "bbb"),
        (r"RULE:[1:$1]s/(?<one>a)/${one}\$/", "a@R", "a$"),
        ("RULE:[1:$1]s/x/y/", "a@R", "a"),
    ],
)
def test_what_a_rule_makes(rule: str, name: str, user: str) -> None:
    assert user_of(name, rule) == user


@pytest.mark.parametrize(
    ("rules", "name", "problem"),
    [
        (("DEFAULT",), "alice@OTHER.COM", "none of DEFAULT counts; the default realm is 'REALM.COM'"),
        (("RULE:[2:$1]", "RULE:[1:$1](b.*)"), "alice@REALM.COM", "none of RULE"),
        # The rules behind one that counts are not asked any more.
        (("RULE:[1:$1@$0]", "DEFAULT"), "alice@REALM.COM", r"makes 'alice@REALM.COM' of it"),
        (("RULE:[2:$1/$2]", "DEFAULT"), "a/b@REALM.COM", r"makes 'a/b' of it"),
        (("RULE:[1:$1]s/.*//",), "alice@REALM.COM", "makes '' of it"),
        (("DEFAULT",), "@REALM.COM", "DEFAULT makes '' of it"),
    ],
)
def test_a_principal_who_is_no_user(rules: tuple[str, ...], name: str, problem: str) -> None:
    with pytest.raises(NoKerberosRule, match=problem):
        user_of(name, *rules)


def test_without_a_default_realm_the_default_rule_counts_for_nobody() -> None:
    with pytest.raises(NoKerberosRule):
        user_of("alice@", "DEFAULT", realm="")


def test_a_name_without_a_realm_is_a_users() -> None:
    assert user_of("alice", "RULE:[1:other]") == "alice"


@pytest.mark.parametrize(
    "rule",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/g",
        "rule:[1:$1]",
        "rule:[1:$1]/L/U",
        "rule:[1:$1]/U/L",
        "rule:[1:$1]/LU",
        "RULE:[1:$1/L",
        "RULE:[1:$1]/l",
        "RULE:[2:$1](ABC.*)s/ABC/XYZ/L/g",
        "RULE:[:$1]",
        "RULE:[1:$2]",
        "RULE:[1:$a]",
        "RULE:[1:$]",
        "RULE:[1:$1]((.*)",
        "RULE:[1:$1]s/a(/b/",
        "RULE:[1:$1]s/a/${b}/",
        "",
    ],
)
def test_a_text_that_is_no_rule(rule: str) -> None:
    with pytest.raises(ConfigError):
        KerberosRules([rule])


def test_rules_are_values() -> None:
    assert KerberosRules(["DEFAULT"]) == DEFAULT_KERBEROS_RULES != KerberosRules(["RULE:[1:$1]"])
    assert hash(KerberosRules(["DEFAULT"])) == hash(DEFAULT_KERBEROS_RULES)
    assert repr(DEFAULT_KERBEROS_RULES) == "KerberosRules(('DEFAULT',))"
