"""The command `archive-classes`: writes the archive of Java's classes with which Spark starts faster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from iceberg_maint.cli.context import Session, command
from iceberg_maint.cli.signals import Terminated, terminated_by_signals
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@command
def archive_classes(session: Session, path: Path | None) -> int:
    """Write the archive of Java's classes, with which Spark starts faster.

    By default to the file that spark.class_archive names, which each start of Spark then uses. It starts Spark with the
    configured Java options and jars on a small lake of its own, in a temporary folder. Run it again after an upgrade of
    Java, of this program or of its jars: Java ignores an archive that does not match.
    """
    from iceberg_maint.config.locations import local_file
    from iceberg_maint.engines.spark.session.session import kill_jvm
    from iceberg_maint.wiring.adapters import end_process
    from iceberg_maint.wiring.training_run import write_class_archive

    config = session.config()
    setting = config.spark.class_archive
    target = setting if path is None else local_file(str(path.absolute()), "PATH", "Java")
    if target is None:
        raise ConfigurationError(
            "ICM-100",
            "spark.class_archive is not set, and no PATH is given. One of them must name the archive.",
            "set spark.class_archive to the absolute path of a file.",
        )
    try:
        with terminated_by_signals(kill_jvm, end_process):
            size = write_class_archive(config, target)
    except Terminated as signal:
        session.say(f"terminated by {signal}; no archive was written")
        return EXIT_FAILED
    following = [] if target == setting else [f"Set spark.class_archive to {target}."]

    def draw(console: Console) -> None:
        lines = [f"{target}: {size:,} bytes", *following]
        console.print("\n".join(lines), markup=False, soft_wrap=True)

    session.emit({"archive": str(target), "bytes": size, "next": following}, draw)
    return EXIT_DONE
