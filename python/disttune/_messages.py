"""Where the session's messages go in Python: ``warnings`` (done by the core) and ``logging``."""

from __future__ import annotations

import logging
import sys

__all__ = ["log", "logger"]

logger = logging.getLogger("disttune")
# What is to be seen was decided before (LOG_LEVEL, autotune_verbose); handlers may still filter.
logger.setLevel(logging.DEBUG)
logger.addHandler(logging.NullHandler())
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def log(level: str, text: str) -> None:
    """Hand a message to ``logging``; without handlers there, print it to the standard error.

    Warnings are given to ``warnings`` besides, which prints them.
    """
    if logging.getLogger().handlers or len(logger.handlers) > 1:
        logger.log(_LEVELS[level], "%s", text)
    elif level != "warning" and sys.stderr is not None:
        print(text, file=sys.stderr)
