from collections.abc import Iterable, Mapping

def serve(
    listeners: Iterable[int], input_fd: int, output_fd: int, answers: Mapping[tuple[int, int], bytes]
) -> None: ...
