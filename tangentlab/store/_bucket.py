"""A store in an object store: S3, Google Cloud Storage, Azure, or this process's memory."""

import importlib
import io
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from zarr.storage import ObjectStore

from tangentlab._errors import TangentError
from tangentlab._extras import require
from tangentlab._reading import first_line
from tangentlab.store._files import PRIVATE
from tangentlab.store._leases import FOLDER, Leases
from tangentlab.store._place import METADATA, UNLIMITED, Entry, Place, Write, local_scratch, occupied
from tangentlab.store._rates import DiskRates

SCHEMES = ("s3", "gs", "az", "memory")
_BLOCK = 16 * 1024**2
_RETRY = {
    "max_retries": 12,
    "retry_timeout": timedelta(minutes=3),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=10), "base": 2},
}
_LISTINGS = 3
"""How often a list that breaks off is requested again, from where it ended, before anything more of it arrives."""
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_NO_CREDENTIALS = ("credential", "/latest/api/token", "169.254.169.254", "metadata.google", "metadata/identity")
"""What services say; also where a machine's role is looked up if the environment has no credentials."""
_memory: dict[str, Any] = {}
_memory_lock = threading.Lock()


class BucketStore(ObjectStore[Any]):
    """Zarr's view of an object store, with the place that it belongs to."""

    place: "Bucket"


class Bucket(Place):
    """A store in an object store, by its address: ``s3://bucket/name.zarr``, ``gs://``, ``az://`` or ``memory://``.

    Credentials, region and endpoint come from the environment, under the names that the vendors' own tools use
    (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_NAME`` and
    so on) or from the machine's role. They are never part of the address. Requests that fail because the service is
    busy are repeated for up to three minutes.

    Args:
        address: The address.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in SCHEMES:
            raise TangentError(
                f"The store's address has the scheme {parts.scheme!r}.",
                "",
                f"Use one of {', '.join(f'{name}://' for name in SCHEMES)}, or a folder.",
            )
        if parts.username or parts.password or parts.query:
            raise TangentError(
                f"The address of the store on {parts.scheme}:// has credentials or parameters in it.",
                "They would end up in logs.",
                "Set the environment variables of the service, for instance AWS_ACCESS_KEY_ID, and pass the address "
                "without them.",
            )
        if not parts.netloc or (not parts.path.strip("/") and parts.scheme != "memory"):
            raise TangentError(f"The store's address is {address!r}.", "", "Write it as s3://bucket/kernel.zarr.")
        self.where: str = address.rstrip("/")
        self.scheme, self.bucket = parts.scheme, parts.netloc

    def __reduce__(self) -> tuple[Any, ...]:
        return Bucket, (self.where,)

    @cached_property
    def _obstore(self) -> Any:
        return require("obstore", "The package obstore", "cloud", "Stores outside of folders need it.")

    @cached_property
    def objects(self) -> Any:
        """obstore's object store, with the address as its prefix."""
        stores = importlib.import_module(f"{self._obstore.__name__}.store")
        if self.scheme == "memory":
            with _memory_lock:
                return _memory.setdefault(self.where, stores.MemoryStore())
        plain = any(os.environ.get(name, "").startswith("http://") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
        with self._refusals():
            return stores.from_url(
                self.where,
                client_options={"timeout": "120s", "connect_timeout": "10s", **({"allow_http": True} if plain else {})},
                retry_config=_RETRY,
            )

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn errors of the service into refusals; a missing file and a failed condition are no errors."""
        errors = importlib.import_module(f"{self._obstore.__name__}.exceptions")
        try:
            yield
        except (errors.AlreadyExistsError, errors.PreconditionError):
            raise
        except FileNotFoundError as error:
            if _names(error, _NO_BUCKET):
                raise self._no_bucket() from None
            raise
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
            raise TangentError(
                f"{self.where} cannot be accessed: the service refuses the request.",
                f"The credentials of the environment do not allow it ({_reason(error)}).",
                "Set credentials that may read the bucket and, to compute, write to it; then rerun to resume.",
            ) from None
        except errors.BaseError as error:
            if _names(error, _NO_BUCKET):
                raise self._no_bucket() from None
            if _names(error, _NO_CREDENTIALS):
                raise TangentError(
                    f"There are no credentials for {self.where}.",
                    "The environment has none, and neither has this machine's role.",
                    "Set the environment variables of the service, for instance AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY.",
                ) from None
            raise TangentError(
                f"{self.where} cannot be reached: {_reason(error)}",
                "Finished tiles are complete.",
                "Check the address, the region and the network, then rerun to resume.",
            ) from error

    def _no_bucket(self) -> TangentError:
        return TangentError(
            f"There is no bucket {self.bucket!r}.", "", f"Create it, or check the address {self.where}."
        )

    def array_store(self, writable: bool) -> BucketStore:
        store = BucketStore(self.objects, read_only=not writable)
        store.place = self
        return store

    def found(self, files: Mapping[str, Write]) -> bool:
        if self.stat(METADATA) is not None:
            return False
        if any(not name.startswith((f"{PRIVATE}/", "weights-")) for name in self.names("")):
            if self.stat(METADATA) is not None:  # another process was faster
                return False
            raise occupied(self)
        for name, write in files.items():
            if name != METADATA:
                self.upload(name, write)
        metadata = io.BytesIO()
        files[METADATA](metadata)
        if self.create(METADATA, metadata.getvalue()) or bytes(self.read(METADATA)) == metadata.getvalue():
            return True  # the second: the answer to the first attempt was lost, and it was repeated
        for name in files.keys() - {METADATA}:
            self.remove(name)
        return False

    def stat(self, name: str) -> Entry | None:
        with self._refusals():
            try:
                return _entry(self._obstore.head(self.objects, name))
            except FileNotFoundError as error:
                if _names(error, _NO_BUCKET):
                    raise
                return None

    def names(self, folder: str) -> Iterator[str]:
        return (name for name, _ in self.entries(folder))

    def entries(self, folder: str) -> Iterator[tuple[str, Entry]]:
        last, failures = None, 0
        with self._refusals():
            while True:
                try:
                    for part in self._obstore.list(self.objects, prefix=folder or None, offset=last):
                        for found in part:
                            yield found["path"], _entry(found)
                            last, failures = found["path"], 0
                    return
                except self._obstore.exceptions.GenericError:  # obstore does not repeat a list that is cut off
                    failures += 1
                    if failures > _LISTINGS:
                        raise

    def read(self, name: str) -> Any:
        with self._refusals():
            return self._obstore.get(self.objects, name).bytes()

    def write(self, name: str, *parts: bytes | memoryview) -> None:
        with self._refusals():
            self._obstore.put(self.objects, name, b"".join(parts), use_multipart=False)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file if there is none; return False if there is one."""
        with self._refusals():
            try:
                self._obstore.put(self.objects, name, content, mode="create", use_multipart=False)
            except self._obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def replace(self, name: str, content: bytes, version: Any) -> bool:
        """Replace a file if its version is still this one; return False if it has changed or is gone."""
        with self._refusals():
            try:
                self._obstore.put(self.objects, name, content, mode={"e_tag": version}, use_multipart=False)
            except (self._obstore.exceptions.PreconditionError, FileNotFoundError):
                return False
        return True

    def upload(self, name: str, write: Write) -> None:
        """Write a file that may be large, by way of one on this machine's disk."""
        with tempfile.TemporaryFile() as file:
            write(file)
            file.seek(0)
            with self._refusals():
                self._obstore.put(self.objects, name, file)

    def remove(self, name: str) -> None:
        with self._refusals(), suppress(FileNotFoundError):
            self._obstore.delete(self.objects, name)

    def clear(self, folder: str) -> None:
        for name in list(self.names(folder)):
            self.remove(name)

    def leases(self) -> Leases:
        from tangentlab.store._object_leases import ObjectLeases

        return ObjectLeases(self, f"{PRIVATE}/{FOLDER}")

    def scratch(self) -> Path:
        return local_scratch(self.where)

    @contextmanager
    def errors(self) -> Iterator[None]:
        yield  # every request turns its errors into refusals

    def rates(self) -> tuple[DiskRates, int]:
        name, data = f"{PRIVATE}/{os.getpid()}.rate", os.urandom(_BLOCK)
        start = time.perf_counter()
        self.write(name, data)
        written = time.perf_counter() - start
        start = time.perf_counter()
        self.read(name)
        read = time.perf_counter() - start
        self.remove(name)
        return DiskRates(_BLOCK / written, _BLOCK / read), UNLIMITED

    def require(self) -> None:
        next(iter(self.names("")), None)

    def weights_name(self, key: str) -> str:
        return f"weights-{key}.pt"  # written before the metadata, by every process that tries to create the store


def _entry(found: Any) -> Entry:
    return Entry(found["size"], found["last_modified"].timestamp(), found["e_tag"])


def _names(error: BaseException, words: tuple[str, ...]) -> bool:
    """Return whether an error contains one of some words."""
    return any(word.lower() in str(error).lower() for word in words)


def _reason(error: BaseException) -> str:
    """Return what a service said in one line."""
    return first_line(error).split("<?xml")[0].rstrip(" :.")
