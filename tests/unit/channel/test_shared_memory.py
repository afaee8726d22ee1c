"""Shared memory for frames: where they are stored, when they move, when they are freed."""

from __future__ import annotations

import mmap
import os
import random
import resource
from itertools import pairwise

import psutil
import pytest

from ctrlchan.channel.outcome import Sent
from ctrlchan.channel.queues._entries import RequestQueue
from ctrlchan.channel.queues.shared_memory import UNFENCED, Frame, SharedMemory
from ctrlchan.channel.wire.records import COMMAND, SEND
from tests.fault.channels import linux_only
from tests.fault.requests import update
from tests.unit.channel.recording import RecordingSender

PAGE = mmap.PAGESIZE
MIB = 2**20


@pytest.fixture(params=["memfd", "file"])
def nameless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Use both ways to make a file without a name."""
    kind: str = request.param
    if kind == "file":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    return kind


def put(memory: SharedMemory, content: bytes, users: int = 1) -> Frame:
    frame = Frame(len(content), 8, 0, 7)
    buffer, offset = memory.make_room(frame, users)
    buffer[offset : offset + len(content)] = content
    return frame


def pin(memory: SharedMemory, frame: Frame) -> None:
    """Pin a frame as a queue does when it hands it over."""
    assert memory.admit(frame)
    frame.pins += 1


def content_of(memory: SharedMemory, frame: Frame) -> bytes:
    if frame.private is not None:
        return bytes(frame.private)
    return bytes(memory.view[frame.offset : frame.offset + frame.size])


def test_frames_keep_their_bytes_until_their_last_user_is_gone(nameless: str) -> None:
    memory = SharedMemory(64 * MIB)
    chance = random.Random(5)
    alive: list[tuple[Frame, bytes]] = []
    for round_ in range(2000):
        if alive and chance.random() < 0.5:
            frame, content = alive.pop(chance.randrange(len(alive)))
            assert content_of(memory, frame) == content
            memory.release(frame)
            assert frame.users == 1
            memory.release(frame)
        else:
            size = chance.choice([16, 200, 257, 4096, 4097, 70_000])
            content = round_.to_bytes(8, "big") + chance.randbytes(size - 8)
            alive.append((put(memory, content, users=2), content))
    ranges = sorted((frame.offset, frame.offset + frame.size) for frame, _ in alive)
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
    assert ranges[0][0] >= PAGE
    for frame, content in alive:
        assert content_of(memory, frame) == content
        memory.release(frame, 2)
    assert memory.used == 0
    memory.close()


def test_large_frames_begin_on_a_page_and_use_low_addresses_again() -> None:
    memory = SharedMemory(64 * MIB)
    frames = [put(memory, bytes(100_000)) for _ in range(3)]
    assert all(frame.offset % PAGE == 0 for frame in frames)
    middle = frames[1].offset
    memory.release(frames[1])
    assert put(memory, bytes(90_000)).offset == middle
    memory.close()


def test_the_whole_memory_is_one_range_again_when_all_frames_are_gone() -> None:
    memory = SharedMemory(4 * MIB)
    for _ in range(3):
        frames = [put(memory, bytes(300_000)) for _ in range(10)]
        random.Random(1).shuffle(frames)
        for frame in frames:
            assert frame.offset >= 0
            memory.release(frame)
        whole = put(memory, bytes(3 * MIB))
        assert whole.offset >= 0
        memory.release(whole)
    memory.close()


def test_a_frame_that_finds_no_room_waits_in_private_memory_and_moves_in_when_there_is(
    nameless: str,
) -> None:
    memory = SharedMemory(MIB)
    first = put(memory, b"a" * 600_000)
    pin(memory, first)
    second = put(memory, b"b" * 600_000)
    assert second.private is not None
    assert not memory.admit(second)
    memory.release(first)
    assert memory.admit(second)
    assert second.private is None
    assert content_of(memory, second) == b"b" * 600_000
    memory.release(second)
    assert memory.used == 0
    memory.close()


def test_frames_that_no_sender_has_make_room_for_one_that_is_needed_now() -> None:
    memory = SharedMemory(MIB)
    idle = [put(memory, bytes([at]) * 300_000) for at in range(3)]
    wanted = put(memory, b"w" * 300_000)
    assert wanted.private is not None
    pin(memory, wanted)
    assert sum(frame.private is not None for frame in idle) == 1
    # The newest frame moved out; when it is needed it moves back in, with its bytes.
    assert idle[2].private is not None
    memory.release(wanted)
    assert memory.admit(idle[2])
    for at, frame in enumerate(idle):
        assert content_of(memory, frame) == bytes([at]) * 300_000
    memory.close()


def test_a_pinned_frame_does_not_move() -> None:
    memory = SharedMemory(MIB)
    pinned = [put(memory, bytes(300_000)) for _ in range(3)]
    for frame in pinned:
        pin(memory, frame)
    wanted = put(memory, bytes(300_000))
    assert not memory.admit(wanted)
    pinned[0].pins -= 1
    assert memory.admit(wanted)
    memory.close()


def test_the_send_command_says_where_the_frame_is_now() -> None:
    memory = SharedMemory(MIB)
    first = put(memory, bytes(600_000))
    second = Frame(600_000, 44, 17, 9, b"\0\0\0")
    memory.make_room(second, 1)
    memory.release(first)
    pin(memory, second)
    request = update()
    request.frame = second
    sender = RecordingSender()
    queue = RequestQueue(5, sender, None)
    queue.append(Sent(1, request, None, 0))
    [command] = COMMAND.iter_unpack(sender.written)
    assert command == (SEND, 3, 17, 5, 1, second.offset, 600_000, 44, 9, b"\0\0\0".ljust(8, b"\0"), 0)
    memory.close()


def resident(memory: SharedMemory) -> int:
    return os.fstat(memory.fd).st_blocks * 512


def test_freed_memory_is_kept_up_to_a_limit_and_then_given_back(nameless: str) -> None:
    memory = SharedMemory(512 * MIB)
    for _ in range(4):
        memory.release(put(memory, b"x" * (30 * MIB)))
    assert resident(memory) <= 64 * MIB
    many = [put(memory, b"x" * (30 * MIB)) for _ in range(5)]
    assert resident(memory) >= 150 * MIB
    for frame in many:
        memory.release(frame)
    assert resident(memory) <= 100 * MIB
    memory.close()


def test_memory_is_one_range_again_after_a_burst_of_small_frames() -> None:
    memory = SharedMemory(512 * MIB)
    small = [put(memory, b"x" * 4096) for _ in range(20_000)]
    for frame in small:
        memory.release(frame)
    assert resident(memory) <= 2 * MIB
    assert put(memory, bytes(400 * MIB)).offset >= 0
    memory.close()


def test_unused_shared_memory_has_no_pages(nameless: str) -> None:
    memory = SharedMemory(64 * 2**30)
    assert memory.size == 64 * 2**30
    assert resident(memory) <= 16 * PAGE
    memory.close()


@linux_only
def test_less_address_space_gives_less_memory() -> None:
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * PAGE
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + 300 * MIB, hard))
    try:
        memory = SharedMemory(64 * 2**30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert 64 * MIB <= memory.size <= 300 * MIB
    memory.close()


def test_the_fence_is_the_first_eight_bytes() -> None:
    memory = SharedMemory(MIB)
    assert memory.fence == UNFENCED
    memory.fence = 12
    other = mmap.mmap(memory.fd, PAGE, mmap.MAP_SHARED, mmap.PROT_READ)
    assert memoryview(other)[:8].cast("q")[0] == 12
    memory.close()


def test_closing_gives_back_descriptor_and_mapping(nameless: str) -> None:
    before = psutil.Process().num_fds()
    memory = SharedMemory(MIB)
    buffer, _ = memory.make_room(Frame(5000, 8, 0, 7), 1)
    memory.close()
    # A caller that is writing still can.
    buffer[:4] = b"last"
    del buffer
    assert psutil.Process().num_fds() == before
