"""Progress bars for commands that take a while: on standard error, and only for people."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, total: int, *, is_quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar while the block runs; gives a function that is told how far it has come.

    Args:
        what: is being done.
        total: where the end is, in whatever is counted.
        is_quiet: show nothing; nothing is shown where standard error is no terminal, either.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=is_quiet or not console.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=max(total, 1))

        def reached(done: int) -> None:
            bar.update(task, completed=done)

        yield reached
