"""Names in certificates as Java prints them, and the rules that make users of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from ctrlchan.errors import ConfigError
from ctrlchan.security.alternative_names import alternative_names, shown_name
from ctrlchan.security.der import MalformedName
from ctrlchan.security.distinguished_names import is_same_name, java_name
from ctrlchan.security.principal_rules import PrincipalRules

UNNAMED = ObjectIdentifier("1.2.840.113549.1.9.1")


def der(*parts: tuple[ObjectIdentifier, str] | list[tuple[ObjectIdentifier, str]]) -> bytes:
    """Return a name; a list is a part with several attributes."""
    return x509.Name(
        [
            x509.RelativeDistinguishedName(
                [x509.NameAttribute(*one) for one in (part if isinstance(part, list) else [part])]
            )
            for part in parts
        ]
    ).public_bytes()


CN, OU, O, C = (  # noqa: E741  (as in names)
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.COUNTRY_NAME,
)
#: Name -> as Java 17 prints it.
NAMES = {
    "parts in reverse": (
        der((C, "DE"), (O, "Firm"), (OU, "Unit"), (CN, "alice")),
        "CN=alice,OU=Unit,O=Firm,C=DE",
    ),
    "empty": (der(), ""),
    "several attributes": (der([(CN, "a"), (OU, "b")], (O, "c")), "O=c,CN=a+OU=b"),
    "escaped": (der((CN, 'a,b=c+d<e>f#g;h"i\\j')), 'CN=a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j'),
    "blanks": (der((CN, "  a b  ")), "CN=\\ \\ a b\\ \\ "),
    "not ASCII": (der((CN, "Zoë 中")), "CN=Zoë 中"),
    "nul": (der((CN, "a\0b")), "CN=a\\00b"),
    "no keyword": (der((UNNAMED, "a@b"), (CN, "x")), "CN=x,1.2.840.113549.1.9.1=#1603614062"),
    "serial number": (der((NameOID.SERIAL_NUMBER, "7")), "2.5.4.5=#130137"),
    "all keywords": (
        der(
            (NameOID.DOMAIN_COMPONENT, "d"),
            (NameOID.USER_ID, "u"),
            (NameOID.STREET_ADDRESS, "s"),
            (NameOID.LOCALITY_NAME, "l"),
            (NameOID.STATE_OR_PROVINCE_NAME, "st"),
        ),
        "ST=st,L=l,STREET=s,UID=u,DC=d",
    ),
}
PRINTER = """
public class PrintNames {
    public static void main(String[] names) throws Exception {
        var out = new java.io.PrintStream(System.out, true, "UTF-8");
        for (String name : names) {
            byte[] der = java.util.HexFormat.of().parseHex(name);
            out.println(new javax.security.auth.x500.X500Principal(der).getName());
        }
    }
}
"""


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    data, printed = NAMES[name]
    assert java_name(data) == printed


def test_names_are_those_of_java(tmp_path: Path) -> None:
    java = shutil.which("java")
    if java is None:
        pytest.skip("no Java is installed")
    program = tmp_path / "PrintNames.java"
    program.write_text(PRINTER)
    command = [java, str(program), *(data.hex() for data, _ in NAMES.values())]
    ran = subprocess.run(command, capture_output=True, timeout=120)
    if b"ClassNotFoundException" in ran.stderr or b"compiler" in ran.stderr:
        pytest.skip("this Java runs no source files")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.decode().split("\n")[:-1] == [printed for _, printed in NAMES.values()]


def test_damaged_names_are_refused() -> None:
    whole = der((CN, "alice"), (O, "Firm"))
    for end in range(1, len(whole)):
        with pytest.raises(MalformedName):
            java_name(whole[:end])
    for place in range(len(whole)):
        for byte in (0, 0x30, 0x80, 0xFF):
            try:
                java_name(whole[:place] + bytes([byte]) + whole[place + 1 :])
            except MalformedName:
                continue
    for _ in range(200):
        try:
            java_name(b"\x30\x20" + os.urandom(32))
        except MalformedName:
            continue


def typed(kind: _ASN1Type, *values: tuple[ObjectIdentifier, str]) -> bytes:
    """Return a name whose values are texts of this ASN.1 type."""
    return x509.Name([x509.NameAttribute(*one, _type=kind) for one in values]).public_bytes()


FIRM = ((CN, "*.example.com"), (O, "Kafka"))


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (typed(_ASN1Type.UTF8String, *FIRM), True),
        (typed(_ASN1Type.UTF8String, (CN, " *.example.com"), (O, " Kafka ")), True),
        (typed(_ASN1Type.UTF8String, (CN, "*.EXAMPLE.COM"), (O, "KAFKA")), True),
        # A text of another type is the same one, and its blanks count.
        (typed(_ASN1Type.T61String, *FIRM), True),
        (typed(_ASN1Type.T61String, (CN, "*.EXAMPLE.COM"), (O, "kafka")), True),
        (typed(_ASN1Type.T61String, (CN, " *.example.com"), (O, " Kafka ")), False),
        (typed(_ASN1Type.UTF8String, (CN, "*.another.com"), (O, "Kafka")), False),
        (typed(_ASN1Type.UTF8String, *reversed(FIRM)), False),
        (typed(_ASN1Type.UTF8String, FIRM[0]), False),
    ],
)
def test_which_names_are_the_same(other: bytes, is_same: bool) -> None:
    """Source: ``SslFactoryTest.testDynamicUpdateCompatibility``."""
    name = typed(_ASN1Type.UTF8String, *FIRM)
    assert is_same_name(name, other) is is_same
    assert is_same_name(other, name) is is_same


def test_names_of_hosts() -> None:
    names = x509.SubjectAlternativeName(
        [
            x509.DNSName("a.example"),
            x509.IPAddress(ip_address("10.0.0.1")),
            x509.IPAddress(ip_address("::1")),
            x509.RFC822Name("a@b"),
            x509.UniformResourceIdentifier("spiffe://x/y"),
            x509.RegisteredID(ObjectIdentifier("1.2.3")),
        ]
    )
    found = alternative_names(names.public_bytes())
    shown = ["#88:2a03", "DNS:a.example", "IP:10.0.0.1", "IP:::1", "URI:spiffe://x/y", "email:a@b"]
    assert sorted(map(shown_name, found)) == shown
    assert alternative_names(b"") == frozenset()
    for size in range(1, len(names.public_bytes())):
        with pytest.raises(MalformedName):
            alternative_names(names.public_bytes()[:size])


NAME = "CN=kafka-1,OU=SomeUnit,O=Firm,C=DE"


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", NAME),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L", "kafka-1@someunit"),
        ("RULE:^CN=(.*?),.*$/$1/U", "KAFKA-1"),
        ("RULE:^CN=(.*?),.*$/$1/", "kafka-1"),
        ("RULE:^OU=.*$/no/, RULE:^CN=([^,]*),.*$/$1/, DEFAULT", "kafka-1"),
        ("RULE:^OU=.*$/no/, DEFAULT", NAME),
        # A number without a group is text; as many digits count as there are groups for.
        ("RULE:^CN=([^,]*),.*$/$1$2/", "kafka-1$2"),
        ("RULE:^CN=([^,]*),.*$/$12/", "kafka-12"),
        ("RULE:^CN=(?<host>[^,]*),.*$/${host}/", "kafka-1"),
        ("RULE:^CN=([^,]*),.*$/a\\/$1\\$/", "a/kafka-1$"),
        ("RULE:^CN=[^,]*,OU=S\\w+.*$/$0/", NAME),
        ("", None),
        ("RULE:^OU=.*$/no/", None),
        # The whole name must match.
        ("RULE:CN=kafka/no/", None),
        # As Java's replaceAll, which finds an empty match at the end.
        ("RULE:.*/x/", "xx"),
    ],
)
def test_rules(rules: str, user: str | None) -> None:
    assert PrincipalRules(rules).user_of(NAME) == user


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        # Lists: blanks around rules and empty rules do not count; a rule may have commas and words of rules.
        (" RULE:([A-Z]*)/$1/L   ,RULE:([a-z]+)/$1!/,   DEFAULT  ", "ABC", "abc"),
        (" RULE:([A-Z]*)/$1/L   ,RULE:([a-z]+)/$1!/,   DEFAULT  ", "abc", "abc!"),
        (" RULE:([A-Z]*)/$1/L   ,RULE:([a-z]+)/$1!/,   DEFAULT  ", "aBc", "aBc"),
        (",,RULE:x/y/,,,DEFAULT,,", "x", "y"),
        (",  , , ", "x", None),
        ("RULE:RULE:,/DEFAULT, /,DEFAULT", "RULE:,", "DEFAULT, "),
        ("RULE:a\\/b/c\\/d/U,DEFAULT", "a/b", "C/D"),
        # A comma in a name is escaped.
        ("RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT", "CN=Tkac\\, Adam,OU=ITZ", "Tkac\\, Adam"),
        ("RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/", "CN=b,OU=x", "b"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U", "cN=duke,OU=JavaSoft", "DUKE"),
    ],
)
def test_lists_of_rules(rules: str, name: str, user: str | None) -> None:
    assert PrincipalRules(rules).user_of(name) == user


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("default", "'default' is neither DEFAULT nor RULE"),
        ("DEFAULT/L", "neither DEFAULT nor RULE"),
        ("RULE:CN=(.*?),OU=ServiceUsers.*", "neither DEFAULT nor RULE"),
        ("RULE:^CN=(.*/$1/", "cannot be used"),
        ("RULE:^CN=(.*)$/${host}/", "has no group host"),
        ("RULE:^CN=(.*)$/$1/L,Sales", "'Sales' is neither"),
        ("rule:^CN=(.*)$/$1/", "neither DEFAULT nor RULE"),
        ("RULE:^CN=(.*)$/$1/L/U", "neither DEFAULT nor RULE"),
        ("RULE:^CN=(.*)$/L", "neither DEFAULT nor RULE"),
        ("RULE:^CN=(.*)$/LU", "neither DEFAULT nor RULE"),
    ],
)
def test_rules_that_cannot_be(rules: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        PrincipalRules(rules)
