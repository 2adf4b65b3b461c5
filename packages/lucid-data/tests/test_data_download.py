import hashlib
import io
import json
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lucid_data import download_coco, download_manifest, fetch, unpack
from lucid_data.unpack import UnpackLimits


class Server:
    """A loopback server of named byte strings that can break off and can ignore ranges."""

    def __init__(self):
        self.files, self.requests = {}, []
        self.stop_after = None
        self.ranges = True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append((self.path, self.headers.get("Range")))
                data = outer.files.get(self.path.lstrip("/"))
                if data is None:
                    self.send_error(404)
                    return
                start = 0
                if outer.ranges and self.headers.get("Range"):
                    start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(data) - start))
                self.end_headers()
                end = len(data) if outer.stop_after is None else outer.stop_after
                self.wfile.write(data[start:end])

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


def zipped(**files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/"), data)
    return out.getvalue()


def digest(data):
    return hashlib.sha256(data).hexdigest()


DATA = bytes(range(256)) * 40


def test_a_file_arrives_whole_and_is_verified(server, tmp_path):
    server.files["a.bin"] = DATA
    got = fetch(f"{server.url}/a.bin", tmp_path / "deep" / "a.bin", sha256=digest(DATA).upper())
    assert got.path.read_bytes() == DATA
    assert (got.sha256, got.verified) == (digest(DATA), True)
    assert sorted(p.name for p in got.path.parent.iterdir()) == ["a.bin"]
    assert not fetch(f"{server.url}/a.bin", tmp_path / "b.bin").verified


def test_a_broken_transfer_goes_on_where_it_stopped(server, tmp_path):
    server.files["a.bin"] = DATA
    server.stop_after = 3000
    with pytest.raises(OSError, match="3000 of 10240"):
        fetch(f"{server.url}/a.bin", tmp_path / "a.bin")
    assert not (tmp_path / "a.bin").exists()
    server.stop_after = None
    fetch(f"{server.url}/a.bin", tmp_path / "a.bin", sha256=digest(DATA))
    assert server.requests[-1] == ("/a.bin", "bytes=3000-")


def test_a_server_without_ranges_is_asked_for_everything(server, tmp_path):
    server.files["a.bin"] = DATA
    server.stop_after = 3000
    with pytest.raises(OSError, match="ended"):
        fetch(f"{server.url}/a.bin", tmp_path / "a.bin")
    server.stop_after, server.ranges = None, False
    assert fetch(f"{server.url}/a.bin", tmp_path / "a.bin").path.read_bytes() == DATA


def test_only_the_same_address_is_resumed(server, tmp_path):
    server.files |= {"a.bin": DATA, "b.bin": DATA[::-1]}
    server.stop_after = 3000
    with pytest.raises(OSError, match="ended"):
        fetch(f"{server.url}/a.bin", tmp_path / "x")
    server.stop_after = None
    assert fetch(f"{server.url}/b.bin", tmp_path / "x").path.read_bytes() == DATA[::-1]


def test_a_wrong_digest_removes_the_file(server, tmp_path):
    server.files["a.bin"] = DATA
    with pytest.raises(ValueError, match="expected 000"):
        fetch(f"{server.url}/a.bin", tmp_path / "a.bin", sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_other_addresses_are_refused(server, tmp_path):
    with pytest.raises(ValueError, match="not an http"):
        fetch("file:///etc/passwd", tmp_path / "a")
    with pytest.raises(OSError, match="cannot download"):
        fetch(f"{server.url}/nowhere", tmp_path / "a")


def test_coco_is_fetched_unpacked_and_skipped_when_there(server, tmp_path):
    server.files |= {
        "zips/val2017.zip": zipped(val2017__1="picture"),
        "annotations/annotations_trainval2017.zip": zipped(annotations__instances_val2017="{}"),
    }
    expected = {"VAL2017.zip": digest(server.files["zips/val2017.zip"])}
    got = download_coco(tmp_path, host=server.url, sha256=expected)
    assert [d.verified for d in got] == [True, False]
    assert (tmp_path / "val2017" / "1").read_text() == "picture"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["annotations", "val2017"]
    assert download_coco(tmp_path, host="http://127.0.0.1:9") == []
    assert (
        len(download_coco(tmp_path, host=server.url, force=True, annotations=False, keep_archives=True)) == 1
    )
    assert (tmp_path / "val2017.zip").is_file()
    with pytest.raises(ValueError, match="train, val, test"):
        download_coco(tmp_path, ["minival"])


def test_a_manifest_is_followed_once(server, tmp_path):
    archive = zipped(images__a="x")
    server.files |= {"set.zip": archive, "names.txt": b"cat"}
    manifest = {
        "files": [
            {"url": f"{server.url}/set.zip", "sha256": digest(archive), "unpack": True},
            {"url": f"{server.url}/names.txt", "sha256": digest(b"cat"), "path": "meta/names.txt"},
        ]
    }
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(manifest))
    assert len(download_manifest(path, tmp_path / "root")) == 2
    assert (tmp_path / "root" / "images" / "a").read_text() == "x"
    asked = len(server.requests)
    assert download_manifest(manifest, tmp_path / "root") == []
    assert len(server.requests) == asked
    (tmp_path / "root" / "meta" / "names.txt").write_text("dog")
    assert [d.path.name for d in download_manifest(manifest, tmp_path / "root")] == ["names.txt"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"sha256": "0" * 64}, "needs a 'url'"),
        ({"url": "http://x/a"}, "needs a 'sha256'"),
        ({"url": "http://x/a", "sha256": "0" * 64, "path": "../a"}, "leaves the folder"),
        ({"url": "http://x/a", "sha256": "0" * 64, "path": "/a"}, "leaves the folder"),
        ({"url": "http://x/%2e%2e", "sha256": "0" * 64}, "leaves the folder"),
        ("run me", "needs a 'url'"),
    ],
)
def test_a_defective_manifest_is_named_before_anything_is_fetched(tmp_path, entry, words):
    with pytest.raises(ValueError, match=words):
        download_manifest({"files": [entry]}, tmp_path)


def tarred(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_tar_and_zip_spread_their_files(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(tarred((tarfile.TarInfo("x/a.txt"), b"tar")))
    (tmp_path / "a.zip").write_bytes(zipped(y__b="zip"))
    assert unpack(tmp_path / "a.tar.gz", tmp_path / "out") == [tmp_path / "out" / "x" / "a.txt"]
    unpack(tmp_path / "a.zip", tmp_path / "out")
    assert (tmp_path / "out" / "y" / "b").read_text() == "zip"


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "..\\evil", "C:\\evil", "C:evil"])
def test_a_name_that_leads_out_is_refused_before_anything_is_written(tmp_path, name):
    (tmp_path / "a.zip").write_bytes(zipped(good="x", **{name: "evil"}))
    (tmp_path / "a.tar").write_bytes(
        tarred((tarfile.TarInfo("good"), b"x"), (tarfile.TarInfo(name), b"evil"))
    )
    for archive in ("a.zip", "a.tar"):
        with pytest.raises(ValueError, match="leads out"):
            unpack(tmp_path / archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    (tmp_path / "a.tar").write_bytes(
        tarred((link("a", "/etc", kind), b""), (tarfile.TarInfo("a/passwd"), b"x"))
    )
    with pytest.raises(ValueError, match="link or a device"):
        unpack(tmp_path / "a.tar", tmp_path / "out")


def test_a_link_in_a_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("a")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc")
    with pytest.raises(ValueError, match="link or a device"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_nothing_is_written_through_a_link_that_is_there(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "a").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "a.zip").write_bytes(zipped(a__b="x"))
    with pytest.raises(ValueError, match="symbolic link"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_bombs_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(8 << 20))
    with pytest.raises(ValueError, match="would grow to 8388608 bytes"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    (tmp_path / "b.zip").write_bytes(zipped(a="1", b="2", c="3"))
    with pytest.raises(ValueError, match="3 members, more than 2"):
        unpack(tmp_path / "b.zip", tmp_path / "out", UnpackLimits(entries=2))


def test_a_bomb_that_lies_about_its_size_is_stopped(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(8 << 20))
    data = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(
        data.replace((8 << 20).to_bytes(4, "little"), (100).to_bytes(4, "little"))
    )
    with pytest.raises(ValueError, match=r"grows beyond|not a sound"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_what_is_no_archive_is_named(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="not a sound"):
        unpack(tmp_path / "a.zip", tmp_path)
