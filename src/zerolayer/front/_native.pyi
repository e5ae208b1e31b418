"""What the door does for all streams of a step, compiled; implemented in src/zerolayer/native/front_module.cpp."""

def send_each(descriptors: list[int], pieces: list[bytes], /) -> list[tuple[int, int]]:
    """Offer each piece to its socket once, without waiting and without the interpreter's lock.

    Returns (place, bytes sent) of each that was not sent as a whole, whatever the reason. Raises ``ValueError`` where
    the lists are not of one length, ``TypeError`` for anything but integers and bytes.
    """
