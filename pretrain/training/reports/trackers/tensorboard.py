"""A run's numbers as TensorBoard reads them."""

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Tracker:
    """One life's file of events in the folder `tensorboard`."""

    is_remote = False

    def __init__(self, workdir: Path, step: int, config: Mapping[str, Any]):
        """Opens the file; hides what earlier lives wrote of `step`, the first to come, and later.

        Raises:
            OSError: the file cannot be written; so do the methods.
        """
        from tensorboardX import record_writer, summary  # slow, and only one process writes
        from tensorboardX.proto import event_pb2

        self.event, self.scalar = event_pb2.Event, summary.scalar
        folder = workdir / "tensorboard"
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time_ns()  # readers take the files in the order of their names
        name = f"events.out.tfevents.{now // 10**9}.{socket.gethostname()}.{now}"
        # Written by the caller's own thread: a `SummaryWriter` keeps events in a queue, which its
        # `flush` leaves alone, and waits for ever once its thread has met a full disk.
        self.record = record_writer.RecordWriter(str(folder / name))
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(file_version="brain.Event:2")
        self._write(step=step, session_log=start)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._write(step=step, summary=self.scalar(name, value))

    def flush(self) -> None:
        self.record.flush()

    def close(self) -> None:
        # Closed even where the flush fails.
        try:
            self.record.flush()
        finally:
            self.record.close()

    def _write(self, **fields: Any) -> None:
        self.record.write(self.event(wall_time=time.time(), **fields).SerializeToString())
