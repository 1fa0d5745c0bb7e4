"""An S3 server in this process, moto's, whose answers a test may spoil."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

SECRET = "a-secret-of-a-test"
Spoil = Callable[[str, str], str]


def sound(method: str, key: str) -> str:
    """Spoils nothing. Others return refuse, forbid, lose, cut, flip or slow."""
    return ""


class Server:
    """moto's application behind one that spoils answers. `requests` are those that arrived, as (method, key)."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self.spoil: Spoil = sound
        self.requests: list[tuple[str, str]] = []
        self.address = ""
        self.buckets = 0

    def __call__(self, environ: Any, start: Any) -> Any:
        method, key = environ["REQUEST_METHOD"], environ["PATH_INFO"].lstrip("/").partition("/")[2]
        self.requests.append((method, key))
        how = self.spoil(method, key)
        if how in ("refuse", "forbid"):
            start("403 Forbidden" if how == "forbid" else "500 Internal Server Error", [("Content-Length", "0")])
            return [b""]
        answer: list[Any] = []
        body = b"".join(self._application(environ, lambda *words: answer.append(words)))
        if how == "lose":
            start("500 Internal Server Error", [("Content-Length", "0")])
            return [b""]
        if how == "slow":
            time.sleep(3)
        start(*answer[0])
        if body and how in ("cut", "flip"):
            half = len(body) // 2
            body = body[:half] if how == "cut" else body[:half] + bytes([body[half] ^ 1]) + body[half + 1 :]
        return [body]

    def bucket(self) -> str:
        """A new, empty bucket."""
        import boto3

        self.buckets += 1
        name = f"lab{self.buckets}"
        boto3.client("s3", endpoint_url=self.address).create_bucket(Bucket=name)
        return name

    def objects(self, address: str) -> dict[str, bytes]:
        """Every object below an address, by name."""
        import boto3

        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        client = boto3.client("s3", endpoint_url=self.address)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
        keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
        return {
            key.removeprefix(f"{prefix}/"): client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys
        }

    def put(self, address: str, data: bytes | None) -> None:
        """Put an object as anybody may, or remove it."""
        import boto3

        bucket, _, key = address.removeprefix("s3://").partition("/")
        client = boto3.client("s3", endpoint_url=self.address)
        if data is None:
            client.delete_object(Bucket=bucket, Key=key)
        else:
            client.put_object(Bucket=bucket, Key=key, Body=data)


def variables(address: str) -> dict[str, str]:
    """The environment of a person with credentials."""
    known = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    return known | {"AWS_ENDPOINT_URL": address, "AWS_DEFAULT_REGION": "us-east-1"}


@contextmanager
def serve() -> Iterator[Server]:
    """A server at a free port."""
    pytest.importorskip("moto", reason="moto[server] is not installed; `make test-extras` runs it")
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):
        def log(self, *_: Any) -> None:
            pass

    server = Server(DomainDispatcherApplication(create_backend_app))
    http = make_server("127.0.0.1", 0, server, threaded=True, request_handler=Silent)
    server.address = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        with mock.patch.dict(os.environ, variables(server.address)):
            yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def python_path(root: Path) -> str:
    """PYTHONPATH of a process that finds the packages that this one finds."""
    return os.pathsep.join([str(root), *sys.path])
