"""A Hugging Face Hub on this machine: one repository of files, and what was put into it."""

import base64
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator

import pytest

NAME, COMMIT = "org/name", "0123456789" * 4


class Hub(http.server.ThreadingHTTPServer):
    """Answers what `snapshot_download` and `upload_folder` ask.

    Attributes:
        files: of the repository, by name.
        pushed: what was put into it.
        is_private: what it was made as.
        asked: paths of all requests.
    """

    def __init__(self):
        super().__init__(("localhost", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.pushed: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.is_private = False
        self.address = f"http://localhost:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request."""

    server: Hub

    def log_message(self, *_):
        pass

    def answer(self, content: bytes, code: int = 200, **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def answer_json(self, content, code: int = 200, **headers: str) -> None:
        self.answer(json.dumps(content).encode(), code, Content_Type="application/json", **headers)

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        hashes = {name: hashlib.sha1(x).hexdigest() for name, x in self.server.files.items()}
        sizes = {name: len(x) for name, x in self.server.files.items()}
        if NAME not in path:
            self.answer_json({}, 404, X_Error_Code="RepoNotFound")
        elif "/tree/" in path:
            rows = [dict(type="file", path=x, size=sizes[x], oid=hashes[x]) for x in sizes]
            self.answer_json(rows)
        elif path.startswith("/api/models/"):
            siblings = [dict(rfilename=name) for name in sizes]
            self.answer_json(dict(id=NAME, sha=COMMIT, siblings=siblings, private=False, tags=[]))
        elif (name := path.rpartition("/")[2]) in sizes:
            etag = f'"{hashes[name]}"'
            self.answer(self.server.files[name], ETag=etag, X_Repo_Commit=COMMIT)
        else:
            self.answer_json({}, 404)

    do_HEAD = do_GET

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(self.path)
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            self.server.is_private = asked.get("private") or asked.get("visibility") == "private"
            self.answer_json(dict(url=f"{self.server.address}/{NAME}"))
        elif "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            rows = [dict(path=x, uploadMode="regular", shouldIgnore=False) for x in names]
            self.answer_json(dict(files=rows))
        elif self.path == "/api/validate-yaml":  # of a card
            self.answer_json(dict(errors=[], warnings=[]))
        else:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.server.pushed[line["value"]["path"]] = content
            self.answer_json(
                dict(commitUrl=f"{self.server.address}/{NAME}/commit/{COMMIT}", commitOid=COMMIT)
            )


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[Hub]:
    """The Hub that `huggingface_hub` talks to."""
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.setenv("HF_TOKEN", "hf_none")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        yield server
        server.shutdown()
