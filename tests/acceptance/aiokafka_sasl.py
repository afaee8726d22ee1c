"""A client that uses aiokafka with SASL: ``python aiokafka_sasl.py BOOTSTRAP TOPIC MECHANISM TOKEN``.

Standard input is the password of alice. It produces a record, and reads it again.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


async def main(bootstrap: str, topic: str, mechanism: str, token: str, password: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens(token)
    value = f"a {mechanism}".encode()
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, value, partition=0)
    async with AIOKafkaConsumer(**settings, auto_offset_reset="earliest", group_id=None) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        async with asyncio.timeout(60):
            async for record in consumer:
                if record.value == value:
                    return


if __name__ == "__main__":
    bootstrap, topic, mechanism, token = sys.argv[1:]
    asyncio.run(main(bootstrap, topic, mechanism, token, sys.stdin.read()))
