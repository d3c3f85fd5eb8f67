"""Where tables are: folders of this machine, or prefixes of an object storage, and the files in them. Every path of a table goes
through here. Knows file systems; knows no table.
"""

from __future__ import annotations

import os
import re
from typing import Any

from penstock.errors import Invalid, SystemFailure
from penstock.util.files import storage
from penstock.util.files.storage import reached

# What delta-rs mistakes in a path: it takes `%20` for a space, and so opens another folder's table; with `[` it panics.
LOG = "_delta_log"
COMMIT = re.compile(r"\d{20}\..*(json|parquet)$")
REFUSED = re.compile(r"%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f\[\\\]^|]")


class Place(storage.Place):
    """A folder: of tables, of one table, or inside a table. `place / "name"` is a folder in it."""

    @classmethod
    def of(cls, given: str | os.PathLike[str] | Place) -> Place:
        """The place that a user named: a path, or a URI. `Invalid` if no Delta table can be there."""
        if isinstance(given, Place):
            return given
        found = storage.where(given, "the folder of tables", to_write=True)
        for path in (found.path, os.path.realpath(found.path)) if found.is_local else ():
            if odd := REFUSED.search(path):
                raise Invalid(
                    f"the folder of tables is {path!r}: no Delta table can be in a folder with {odd[0]!r} in its path"
                )
        return cls(found.uri, found.path)

    def __truediv__(self, name: str) -> Place:
        found = super().__truediv__(name)
        return Place(found.uri, found.path)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """Options that `deltalake` needs to open a table here."""
        return storage.delta_options(self) or None

    def file(self, name: str) -> str:
        """A file in it, as `fs` takes it."""
        return f"{self.path}/{name}"

    def location(self, name: str) -> str:
        """A file in it, as other readers take it."""
        return f"{self.uri}/{name}"

    @reached
    def make(self) -> None:
        """Creates the folder, if there is none. An object storage needs none."""
        if self.is_local:
            self.fs.create_dir(self.path, recursive=True)

    @reached
    def read(self, name: str) -> bytes:
        """A file's content. FileNotFoundError if there is none."""
        with self.fs.open_input_stream(self.file(name)) as stream:
            content: bytes = stream.read()
        return content

    @reached
    def write(self, name: str, content: bytes) -> None:
        """A file's new content. Not atomic: nothing may refer to the file yet."""
        self.make()
        try:
            with self.fs.open_output_stream(self.file(name)) as stream:
                stream.write(content)
        except OSError as error:
            if not error.errno:
                raise
            why = os.strerror(error.errno)
            raise SystemFailure(error.errno, f"{self.location(name)} cannot be written: {why}") from error

    def replace(self, name: str, content: bytes) -> None:
        """A file's new content, or the one that it had."""
        if not self.is_local:  # an object is put whole
            self.write(name, content)
            return
        try:
            self.write(f"{name}.new", content)
            os.replace(self.file(f"{name}.new"), self.file(name))
        except OSError:
            self.delete(f"{name}.new")
            raise

    @reached
    def delete(self, name: str) -> bool:
        """Deletes a file; whether there was one."""
        try:
            self.fs.delete_file(self.file(name))
        except FileNotFoundError:
            return False
        return True

    @reached
    def list(self) -> list[Any]:
        """Its content (`pyarrow.fs.FileInfo`), by name; nothing if there is no such folder."""
        import pyarrow.fs as pafs

        found = self.fs.get_file_info(pafs.FileSelector(self.path, allow_not_found=True))
        return sorted(found, key=lambda info: str(info.base_name))


def has_log(place: Place) -> bool:
    """Whether a folder has a table: a commit, or a checkpoint."""
    return any(COMMIT.match(str(info.base_name)) for info in (place / LOG).list())


def clear(*folders: Place) -> None:
    """Deletes the files of folders."""
    for folder in folders:
        for info in folder.list():
            folder.delete(info.base_name)
