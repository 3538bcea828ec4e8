"""Progress of long operations, in a terminal, a notebook or the log."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator

LOG = logging.getLogger("frostline")
_INTERVAL = 0.5
"""Seconds between two updates of the time."""


def is_shown(progress: bool | None) -> bool:
    """Return whether progress bars are shown. `None` shows them in terminals and notebooks."""
    if progress is not None:
        return progress
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


class Stages:
    """Progress bar over the stages of an operation. Each stage is logged as well."""

    def __init__(self, shown: bool, count: int) -> None:
        self._shown = shown
        self._count = count
        self._done = 0

    @contextlib.contextmanager
    def stage(self, what: str, part: Callable[[], str] = str) -> Iterator[None]:
        """Context manager for a stage.

        :param part: Returns how much of the stage is done, as text.
        """
        LOG.info("%s", what)
        if not self._shown:
            yield
            return
        # Loaded here because it is needed in terminals and notebooks only.
        from tqdm.auto import tqdm

        ended = threading.Event()
        with tqdm(total=self._count, initial=self._done, leave=False, bar_format="frostline: {desc} {bar:20} {n_fmt}/{total_fmt} [{elapsed}]") as bar:

            def show() -> None:
                while True:
                    bar.set_description_str(f"{what} {part()}".strip())
                    if ended.wait(_INTERVAL):
                        return

            shower = threading.Thread(target=show, daemon=True)
            shower.start()
            try:
                yield
                self._done += 1
            finally:
                ended.set()
                shower.join()


@contextlib.contextmanager
def samples_bar(shown: bool, what: str, count: int) -> Iterator[Callable[[int], object]]:
    """Context manager that yields a function, which is called with the number of further samples."""
    if not shown:
        yield lambda _: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=count, desc=f"frostline: {what}", unit=" samples", leave=False) as bar:
        yield bar.update
