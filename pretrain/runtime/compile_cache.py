"""Keeps compiled programs on disk, for restarts of a run and for other runs of its recipe."""

import contextlib
import hashlib
import os
import pathlib
import sys
import types
from collections.abc import Iterator

import jax
from etils import epath
from jax.experimental.compilation_cache import compilation_cache

from pretrain.runtime.files import write_file

CPU = pathlib.Path("/proc/cpuinfo")
SCHEME = "sealed://"
DIGEST = hashlib.sha256().digest_size


def keep(folder: str | os.PathLike) -> None:
    """Makes JAX keep in `folder` the programs that take it a second or more to compile.

    If JAX_COMPILATION_CACHE_DIR is set, that folder is used instead.
    JAX_ENABLE_COMPILATION_CACHE=false keeps nothing.
    """
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    # JAX's keys do not tell CPUs apart; an unknown instruction would end the process.
    kind = jax.default_backend()
    path = pathlib.Path(folder) / (f"cpu-{_abilities()}" if kind == "cpu" else kind)
    # Machine code is run from there: it is not to be another user's.
    if why := _refuse(path):
        print(
            f"{path} is not used, programs are compiled anew: {why}; delete it, or chmod go-w",
            file=sys.stderr,
        )
        return
    jax.config.update("jax_compilation_cache_dir", f"{SCHEME}{path.absolute()}")
    compilation_cache.reset_cache()  # a program compiled before has opened another folder


@epath.register_path_cls(SCHEME)
class SealedPath(pathlib.PurePosixPath):
    """A folder or file of the cache, which JAX opens through etils as sealed:///a/b."""

    def __fspath__(self) -> str:
        return str(self._real)

    def __str__(self) -> str:  # XLA has files of its own in the folder, and no schemes
        return str(self._real)

    @property
    def _real(self) -> pathlib.Path:
        return pathlib.Path("/", *self.parts[1:])

    def exists(self) -> bool:
        return self._content() is not None

    def read_bytes(self) -> bytes:
        if (content := self._content()) is None:
            raise FileNotFoundError(os.fspath(self))
        return content

    def write_bytes(self, content: bytes) -> None:
        # A file begins with the digest of its content.
        write_file(self._real, hashlib.sha256(content).digest() + content, private=True)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        self._real.mkdir(mode=0o700, parents=parents, exist_ok=exist_ok)

    def glob(self, pattern: str) -> Iterator["SealedPath"]:
        return (self / path.name for path in self._real.glob(pattern))

    def stat(self) -> types.SimpleNamespace:
        return types.SimpleNamespace(length=self._real.stat().st_size)

    def unlink(self) -> None:
        self._real.unlink()

    def _content(self) -> bytes | None:
        try:
            with open(self._real, "rb") as file:
                # Asked of the open file: its name may lead elsewhere a moment later.
                why, sealed = _distrust(os.fstat(file.fileno())), file.read()
        except FileNotFoundError:
            return None
        digest, content = sealed[:DIGEST], sealed[DIGEST:]
        if not why and hashlib.sha256(content).digest() == digest:
            return content
        # JAX would run what is damaged, and the process would end by a signal.
        with contextlib.suppress(OSError):
            self._real.unlink()
        print(f"{self} is compiled anew: {why or 'the file is damaged'}", file=sys.stderr)
        return None


def _refuse(folder: pathlib.Path) -> str:
    """Says why a folder is not used; "" if it is, or does not exist yet."""
    try:
        return _distrust(folder.stat())
    except PermissionError:
        return "it cannot be opened"
    except OSError:  # the workdir beside it has the same fault, and is named for it
        return ""


def _distrust(status: os.stat_result) -> str:
    """Says why this user does not run machine code from there; "" if it is safe."""
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    return "others can write to it" if status.st_mode & 0o022 else ""


def _abilities() -> str:
    """Hashes the instructions that this machine's CPU knows."""
    try:
        lines = CPU.read_text().splitlines()
    except OSError:  # not Linux
        lines = [" ".join(os.uname()) if hasattr(os, "uname") else os.name]
    flags = sorted({line for line in lines if line.startswith(("flags", "Features"))}) or lines
    return hashlib.sha256("\n".join(flags).encode()).hexdigest()[:12]
