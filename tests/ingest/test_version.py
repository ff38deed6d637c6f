"""What a server says it was built of."""

import json

from ingest.version import build


def test_the_build_is_read_from_its_file_and_null_where_nobody_noted_it(tmp_path):
    file = tmp_path / "build.json"
    assert set(build(file)) == {"gitCommit", "gitBranch", "buildTime"}
    noted = {"gitCommit": "abc", "gitBranch": "main", "buildTime": "2026-01-01T00:00:00Z"}
    file.write_text(json.dumps(noted))
    assert build(file) == noted
    file.write_text('{"gitCommit": 1, "gitBranch": ""}')
    assert build(file) == dict.fromkeys(noted)
    for text in ("[]", "{", "null"):
        file.write_text(text)
        assert set(build(file)) == set(noted)
