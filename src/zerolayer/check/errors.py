"""What can go wrong for somebody who measures a service, one class a cause."""

from __future__ import annotations

from zerolayer.errors import UsageError, ZerolayerError


class CheckError(ZerolayerError):
    """Base of everything that the commands of this room raise."""

    code = "check_error"


class InputFileError(UsageError):
    """A result, trace, cost table or capture is damaged, of another format, or of a newer version."""

    code = "input_file_error"


class TargetError(CheckError):
    """The service cannot be reached, or does not answer in a form that can be measured."""

    code = "target_error"
