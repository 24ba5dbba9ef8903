"""Coverage-guided fuzzing of the codec: ``make fuzz``, or ``python -m tests.fuzz.codec_frames``.

Options are those of libFuzzer, as ``-max_total_time=60``; a folder of frames may follow.
Any exception but the two documented ones, or a message that does not survive encoding, is a find.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["protocol"]):
    from protocol import codec
    from protocol.errors import FrameError, MessageError

MAX_PAYLOAD = 512


def one_frame(data: bytes) -> None:
    """What comes from a peer."""
    try:
        message = codec.decode(data, MAX_PAYLOAD)
    except (FrameError, MessageError):
        return
    again = codec.decode(codec.encode(message), MAX_PAYLOAD)
    if again != message:
        raise AssertionError(f"{message} became {again}")


def main() -> None:
    """Fuzz until told to stop."""
    atheris.Setup(sys.argv, one_frame)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
