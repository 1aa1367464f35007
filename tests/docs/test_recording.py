"""Recording a session works as the pages say."""

import json
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks

UPDATE = {"sessionUpdate": "agent_message", "messageId": "m1", "content": [{"type": "text", "text": "Grüße 👋"}]}
MESSAGE = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s-1", "update": UPDATE}}
REQUEST = b'{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s-1","prompt":[]}}\n'
AGENT = f"""
import json, sys
for line in sys.stdin:
    print(json.dumps({{"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {{}}}}))
    print({json.dumps(MESSAGE, ensure_ascii=False)!r}, flush=True)
sys.exit(3)
"""


def test_tee_on_both_sides_records_both_directions(tmp_path: Path) -> None:
    agent, capture = tmp_path / "agent.py", tmp_path / "capture.jsonl"
    agent.write_text(AGENT, encoding="utf-8")
    lines = {
        block.text.strip()
        for page in ("README.md", "docs/recording.md")
        for block in blocks(ROOT / page)
        if block.text.startswith("sh -c")
    }
    (line,) = lines  # both pages show the same one
    line = line.replace("~/capture.jsonl", str(capture)).replace("my-agent --acp", f"{sys.executable} -X utf8 {agent}")

    done = subprocess.run(["sh", "-c", line], input=REQUEST, capture_output=True, timeout=60, check=False)

    assert done.stderr == b""
    assert sorted(capture.read_bytes().splitlines()) == sorted([REQUEST.strip(), *done.stdout.splitlines()])


def test_the_recorder_writes_down_both_directions_and_passes_every_line_on(tmp_path: Path) -> None:
    recorder, agent, capture = tmp_path / "record.py", tmp_path / "agent.py", tmp_path / "capture.jsonl"
    (block,) = (block for block in blocks(ROOT / "docs" / "recording.md") if block.file == "record.py")
    recorder.write_text(block.text, encoding="utf-8")
    agent.write_text(AGENT, encoding="utf-8")
    python = [sys.executable, "-X", "utf8"]
    done = subprocess.run(
        [*python, recorder, capture, *python, agent], input=REQUEST, capture_output=True, timeout=60, check=False
    )

    assert done.stderr == b""
    assert done.returncode == 3
    records = [json.loads(line) for line in capture.read_bytes().splitlines()]
    assert [record["dir"] for record in records] == ["c2a", "a2c", "a2c"]
    assert [record["line"].encode() for record in records] == [REQUEST.strip(), *done.stdout.splitlines()]
    assert json.loads(records[2]["line"]) == MESSAGE
