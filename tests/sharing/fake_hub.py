"""The part of the Hugging Face Hub's HTTP interface that a model's repository needs, in this process.

Files that git LFS would keep are uploaded in two steps and served by another host, as there.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlparse

TOKEN = "hf_of_a_test"
LFS = (".safetensors", ".npy")


class FakeHub:
    """Repositories by name: their commits, oldest first, each with its digest and files. `requests` are those that
    arrived, `leaked` whether the host of large files was sent the token."""

    def __init__(self) -> None:
        self.repositories: dict[str, list[tuple[str, dict[str, bytes]]]] = {}
        self.private: set[str] = set()
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.validated: list[str] = []
        self.large_files = ""  # the address of their host
        self.leaked = False
        self.status = 0  # that every answer has instead, if it is not 0

    def commit(self, name: str, files: dict[str, bytes]) -> str:
        """A commit with exactly these files."""
        commits = self.repositories.setdefault(name, [])
        oid = hashlib.sha1(f"{name} {len(commits)}".encode()).hexdigest()
        commits.append((oid, files))
        return oid

    def files(self, name: str, revision: str = "main") -> dict[str, bytes] | None:
        """The files of a repository at a revision; None if there is no such one."""
        commits = self.repositories.get(name, [])
        if revision == "main":
            return commits[-1][1] if commits else None
        return next((files for oid, files in commits if oid == revision), None)


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        self.hub.requests.append(f"GET {path}")
        if self.hub.status:
            self._answer({"error": "no"}, self.hub.status)
        elif match := re.fullmatch(r"/large/(\w+)", path):
            self.hub.leaked |= "Authorization" in self.headers
            self._send(self.hub.objects[match[1]])
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            self._info(match[1], match[2] or "main")
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(*match.groups())
        else:
            self._answer({"error": "no such page"}, 404)

    do_HEAD = do_GET

    def _visible(self, name: str) -> bool:
        return name in self.hub.repositories and (name not in self.hub.private or self._authorized())

    def _authorized(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _info(self, name: str, revision: str) -> None:
        files = self.hub.files(name, revision) if self._visible(name) else None
        if files is None:
            code = "RevisionNotFound" if self._visible(name) else "RepoNotFound"
            self._answer({"error": "not found"}, 404, {"X-Error-Code": code})
        else:
            oid = next(oid for oid, each in reversed(self.hub.repositories[name]) if each is files)
            siblings = [{"rfilename": path, "size": len(data), "blobId": "0"} for path, data in files.items()]
            self._answer({"id": name, "modelId": name, "sha": oid, "siblings": siblings, "private": False, "tags": []})

    def _file(self, name: str, revision: str, path: str) -> None:
        files = self.hub.files(name, revision) if self._visible(name) else None
        if files is None or path not in files:
            self._answer({"error": "not found"}, 404, {"X-Error-Code": "EntryNotFound"})
        elif path.endswith(LFS):
            digest = hashlib.sha256(files[path]).hexdigest()
            self.hub.objects[digest] = files[path]
            self._send(b"", 302, {"Location": f"{self.hub.large_files}/large/{digest}"})
        else:
            self._send(files[path])

    def do_POST(self) -> None:
        path = urlparse(self.path).path
        self.hub.requests.append(f"POST {path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.hub.status:
            self._answer({"error": "no"}, self.hub.status)
        elif path == "/api/validate-yaml":
            self.hub.validated.append(json.loads(body)["content"])
            self._answer({"errors": [], "warnings": []})
        elif not self._authorized():
            self._answer({"error": "invalid token"}, 401)
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/.*", path):
            self._answer({"files": [_how_to_upload(file["path"]) for file in json.loads(body)["files"]]})
        elif path.endswith("/info/lfs/objects/batch"):
            objects = [
                each | {"actions": {"upload": {"href": f"{self.hub.large_files}/large/{each['oid']}"}}}
                for each in json.loads(body)["objects"]
            ]
            self._answer({"transfer": "basic", "objects": objects})
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
            self._commit(match[1], [json.loads(line) for line in body.splitlines()])
        else:
            self._answer({"error": "no such page"}, 404)

    def do_PUT(self) -> None:
        digest = self.path.rpartition("/")[2]
        data = self.rfile.read(int(self.headers["Content-Length"]))
        assert hashlib.sha256(data).hexdigest() == digest
        self.hub.objects[digest] = data
        self._send(b"")

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else f"me/{asked['name']}"
        url = f"http://{self.headers['Host']}/{name}"
        if name in self.hub.repositories:
            self._answer({"error": "exists", "url": url}, 409)
            return
        if asked.get("private") or asked.get("visibility") == "private":
            self.hub.private.add(name)
        self.hub.commit(name, {".gitattributes": b"*.safetensors filter=lfs\n"})
        self._answer({"url": url, "name": name})

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        parent, files = lines[0]["value"].get("parentCommit"), dict(self.hub.files(name) or {})
        if parent and parent != self.hub.repositories[name][-1][0]:
            self._answer({"error": "a commit has happened since"}, 412)
            return
        for line in lines[1:]:
            value = line["value"]
            match line["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.hub.objects[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        oid = self.hub.commit(name, files)
        host = self.headers["Host"]
        self._answer({"commitUrl": f"http://{host}/{name}/commit/{oid}", "commitOid": oid, "success": True})

    def _answer(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(value).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, data: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _how_to_upload(path: str) -> dict[str, Any]:
    mode = "lfs" if path.endswith(LFS) else "regular"
    return {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": None}


@contextmanager
def serve(hub: FakeHub) -> Iterator[str]:
    """Serve the hub, and its large files at another address. Yields the first one."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for _ in range(2)]
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    address, hub.large_files = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    try:
        yield address
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()
