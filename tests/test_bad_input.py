"""Whatever a file or option holds, the answer is a sentence and an exit code, no traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_cases import Doc, layer, pipeline, profile, run, save
from click.testing import Result

CUT = ("--ranks", "2", "--microbatches", "4")


def refused(result: Result, code: int, *words: str) -> None:
    """Expect an exit code, errors (and warnings) on stderr with all the words, nothing else."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert all(line.startswith(("error: ", "warning: ")) for line in result.stderr.splitlines())
    assert "error: " in result.stderr
    for word in words:
        assert word in result.stderr


def broken(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    return str(path)


# Files that are no JSON

TEXT = json.dumps(pipeline())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(TEXT[:100].encode(), ["line 1", "cut off"], id="truncated"),
        pytest.param(TEXT[:-2].encode(), ["the end of the file", "cut off"], id="last bracket"),
        pytest.param(b"", ["an empty file"], id="empty"),
        pytest.param(b" \n\t\n", ["an empty file"], id="blank"),
        pytest.param(b"\x1f\x8b\x08\x00\xff\xfe", ["byte 1", "UTF-8", "compressed"], id="gzip"),
        pytest.param(
            b"\x7fELF\x02\x01\x01\x00\x00", ["byte 7: found byte 0x00", "UTF-8"], id="binary"
        ),
        pytest.param(TEXT.encode("utf-16"), ["byte 0", "UTF-8", "encoding"], id="utf-16"),
        pytest.param(
            TEXT.encode("utf-16-le"),
            ["byte 1: found byte 0x00", "UTF-8"],
            id="utf-16 without a mark",
        ),
        pytest.param(b"[1, 2", ["line 1", "cut off"], id="list"),
        pytest.param(b"schedule: 1F1B\n", ["line 1, column 1", "JSON"], id="yaml"),
    ],
)
def test_not_json(tmp_path: Path, content: bytes, words: list[str]) -> None:
    path = broken(tmp_path, content)
    for command in (["solve", path], ["compare", path], ["check", path], ["simulate", path]):
        refused(run(*command), 2, f"error: {path}: ", *words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param('"ranks": 3', '"ranks": NaN', ["ranks", "NaN", "finite"], id="NaN"),
        pytest.param(
            '"forward_ns": [1', '"forward_ns": [Infinity', ["forward_ns", "Infinity"], id="Infinity"
        ),
        pytest.param(
            '"forward_ns": [1', '"forward_ns": [-Infinity', ["forward_ns", "-Infinity"], id="-Inf"
        ),
        pytest.param('"ranks": 3', '"ranks": 1e999', ["ranks", "1e999", "finite"], id="1e999"),
        pytest.param(
            '"forward_ns": [1', f'"forward_ns": [{2**63}', ["forward_ns[0]", str(2**63)], id="2^63"
        ),
        pytest.param('"ranks": 3', '"ranks": 9' + "9" * 5000, ["ranks"], id="5000 digits"),
        pytest.param('"ranks": 3', '"ranks": 3, "ranks": 4', ["ranks", "twice"], id="same key"),
        pytest.param('"ranks": 3', '"ranks": 3.5', ["ranks", "3.5", "integer"], id="fraction"),
        pytest.param('"ranks": 3', '"ranks": true', ["ranks", "integer"], id="true"),
        pytest.param('"ranks": 3', '"ranks": "3"', ["ranks", '"3"', "integer"], id="text"),
    ],
)
def test_numbers_that_are_none(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in TEXT
    path = broken(tmp_path, TEXT.replace(old, new).encode())
    refused(run("solve", path), 2, f"error: {path}: ", *words)


@pytest.mark.parametrize("bracket", ["[", '{"a":'])
def test_nesting_of_100_000_levels(tmp_path: Path, bracket: str) -> None:
    path = broken(tmp_path, bracket.encode() * 100_000)
    refused(run("solve", path), 2, path, "line 1", "nesting")


def test_a_file_of_2_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    path.touch()
    os.truncate(path, 2 * 2**30)
    refused(run("solve", str(path)), 2, str(path), "2147483648 bytes", "at most 512 MiB")
    refused(run("import", str(path), "--pipeline", str(path)), 2, str(path), "at most 512 MiB")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    path = str(tmp_path / "absent.json")
    refused(run("solve", path), 2, f"error: {path}: found no such file, expected a JSON file\n")
    refused(run("show", str(tmp_path)), 2, f"error: {tmp_path}: found Is a directory")
    under_a_file = save(tmp_path / "p.json", pipeline()) + "/more.json"
    refused(run("check", under_a_file), 2, f"error: {under_a_file}: found Not a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_no_permission(tmp_path: Path) -> None:
    path = Path(save(tmp_path / "p.json", pipeline()))
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    output = str(locked / "s.json")
    refused(run("solve", str(path), "-o", output), 2, f"error: {output}: found Permission denied")
    path.chmod(0)
    refused(run("solve", str(path)), 2, f"error: {path}: found Permission denied")


def test_places_that_cannot_be_written_are_found_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedopt.api.solve", lambda *_, **__: pytest.fail("searched"))
    path = save(tmp_path / "p.json", pipeline())
    output = str(tmp_path / "absent" / "s.json")
    refused(run("solve", path, "-o", output), 2, f"error: {output}: found No such file")
    refused(run("solve", path, "-o", str(tmp_path)), 2, f"error: {tmp_path}: found Is a directory")


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", pipeline())
    assert run("solve", path, "-o", os.devnull).exit_code == 0
    assert not Path(os.devnull).is_file()
    if Path("/dev/full").exists():
        result = run("solve", path, "-o", "/dev/full")
        refused(result, 2, "error: /dev/full: found No space left")


# JSON that is no pipeline


def without(document: Doc, field: str) -> Doc:
    return {key: value for key, value in document.items() if key != field}


PIPELINES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a list": (lambda: [1, 2], ["format: found no format"]),
    "no format": (lambda: without(pipeline(), "format"), ["format: found no format"]),
    "another format": (lambda: pipeline(format="gpx"), ["format: found 'gpx'"]),
    "a later version": (lambda: pipeline(version=2), ["version: found 2"]),
    "missing field": (lambda: without(pipeline(), "forward_ns"), ["forward_ns: found nothing"]),
    "misspelt field": (
        lambda: pipeline(foward_ns=[1, 1, 1]),
        ["foward_ns: found an unknown field", "did you mean 'forward_ns'?"],
    ),
    "no microbatches": (lambda: pipeline(microbatches=0), ["microbatches: found 0"]),
    "negative duration": (
        lambda: pipeline(forward_ns=[1, -5, 1]),
        ["forward_ns[1]: found -5", "greater than or equal to 0"],
    ),
    "missing duration": (
        lambda: pipeline(forward_ns=[1, None, 1]),
        ["forward_ns[1]: found null"],
    ),
    "durations of too few stages": (
        lambda: pipeline(backward_input_ns=[1, 1]),
        ["backward_input_ns: found 2 entries, expected 3, one per stage"],
    ),
    "placement that misses a stage": (
        lambda: pipeline(placement=[[0, 1]]),
        ["placement[0]: found 2 entries, expected 3, a rank for each stage"],
    ),
    "placement beyond the ranks": (
        lambda: pipeline(placement=[[0, 1, 3]]),
        ["placement[0][2]: found 3, expected a rank from 0 to 2"],
    ),
    "more freed than held": (
        lambda: pipeline(released_by_input_bytes=[1, 2, 1]),
        ["released_by_input_bytes[1]: found 2, expected at most the 1"],
    ),
    "too many ops": (
        lambda: pipeline(microbatches=4_000_000),
        ["stages × microbatches: found 36000000 operations"],
    ),
}


@pytest.mark.parametrize("case", PIPELINES)
def test_pipelines(tmp_path: Path, case: str) -> None:
    make, words = PIPELINES[case]
    path = save(tmp_path / "p.json", make())
    refused(run("solve", path), 2, *(f"error: {path}: {words[0]}", *words[1:]))


def test_all_faults_at_once(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", pipeline(placement=[[0, 1]], forward_ns=[1], latency_ns=[]))
    result = run("solve", path)
    refused(result, 2, "placement[0]:", "forward_ns:", "latency_ns:")
    assert len(result.stderr.splitlines()) == 3


def test_many_faults_are_counted(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", pipeline(50, forward_ns=[-1] * 50))
    result = run("solve", path)
    refused(result, 2, "forward_ns[0]: found -1", "So are 49 more of this field.")
    assert len(result.stderr.splitlines()) == 1
    unknown = {f"field{letter}": 1 for letter in "abcdefghijklmnopqrstuvwxyz"}
    result = run("solve", save(tmp_path / "p.json", pipeline(**unknown)))
    refused(result, 2, "6 more faults")
    assert len(result.stderr.splitlines()) == 21


def test_a_wrong_type_is_answered_with_an_example(tmp_path: Path) -> None:
    wrong = layer()
    wrong["times"]["gpu"]["forward_ns"] = 100
    wrong["activation_bytes"] = "1 kB"
    path = save(tmp_path / "p.json", profile(wrong))
    example = 'expected an object such as {"median": 5000000, "basis": "measured"}'
    result = run("solve", path, *CUT)
    refused(
        result,
        2,
        f"layers[0].times.gpu.forward_ns: found 100, {example}",
        f'layers[0].activation_bytes: found "1 kB", {example}',
    )


def test_a_flat_placement_is_one_fault(tmp_path: Path) -> None:
    result = run("solve", save(tmp_path / "p.json", pipeline(placement=[0, 1, 2])))
    refused(result, 2, "placement: found", "rows: [[0, 1, …]]")
    assert len(result.stderr.splitlines()) == 1


def test_what_a_file_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", pipeline(**{"\x1b]0;owned\x07": 1}))
    result = run("solve", path)
    refused(result, 2, r"\x1b]0;owned\x07: found an unknown field")
    assert "\x1b" not in result.stderr


# JSON that is no profile


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param(
            profile(layer(forward_ns=0)),
            ["layers[0].times.gpu.forward_ns: found 0, a layer that takes no time"],
            id="a forward of zero",
        ),
        pytest.param(
            profile(layer(backward_input_ns=0, backward_weight_ns=0)),
            ["layers[0].times.gpu.backward: found 0, a layer that takes no time"],
            id="a backward of zero",
        ),
        pytest.param(
            profile(layer(forward_ns=None)),
            ["layers[0].times.gpu.forward_ns: found nothing"],
            id="no forward",
        ),
        pytest.param(
            profile(layer(backward_weight_ns=None)),
            ["layers[0].times.gpu: found no complete backward"],
            id="half a backward",
        ),
        pytest.param(
            profile(layer(forward_ns=-7)),
            ["layers[0].times.gpu.forward_ns.median: found -7"],
            id="a negative time",
        ),
        pytest.param(
            profile(layer(foward_ns=100)),
            ["layers[0].times.gpu.foward_ns: found an unknown field", "did you mean 'forward_ns'?"],
            id="a misspelt field",
        ),
        pytest.param(
            profile(devices={"h100": {}}),
            ["layers[0].times.gpu: found a device that is not listed"],
            id="an unlisted device",
        ),
        pytest.param(profile(layers=[]), ["layers: found a list of 0"], id="no layers"),
    ],
)
def test_profiles(tmp_path: Path, document: Doc, words: list[str]) -> None:
    path = save(tmp_path / "p.json", document)
    refused(run("solve", path, *CUT), 2, f"error: {path}: ", *words)


def test_one_half_of_a_backward_may_be_zero(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", profile(layer("embedding", 1, backward_input_ns=0), layer()))
    assert run("solve", path, *CUT).exit_code == 0


def test_a_stage_of_a_pipeline_may_take_no_time(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", pipeline(forward_ns=[0, 1, 1], backward_weight_ns=[0] * 3))
    assert run("solve", path).exit_code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ranks", "0"], "--ranks: found 0, expected 1 to"),
        (["--ranks", str(2**63)], f"--ranks: found {2**63}"),
        (["--microbatches", "0"], "--microbatches: found 0, expected 1 to"),
        (["--placement", "vv"], "--placement: found 'vv', expected one of linear"),
        (["--chunks", "2"], "--chunks: found 2, expected 1 for linear"),
        (["--layers", "3,2"], "--layers: found a sum of 5, expected 6"),
        (["--layers", "6"], "--layers: found 1 numbers, expected 2, one per stage"),
        (["--memory-limit", "80 pounds"], "--memory-limit: found '80 pounds'"),
        (["--memory-limit", "nanx"], "--memory-limit: found 'nanx'"),
        (["--memory-limit", "80"], "--memory-limit: found 80, expected a size with its unit"),
        (["--split-backward", "0.5"], "--split-backward: found 0.5, expected none"),
        (["--split-backward", "1.5"], "--split-backward: found 1.5"),
        (["--split-backward", "nan"], "--split-backward: found nan"),
        (["--device", "gpv"], "--device: found 'gpv', expected one of gpu. did you mean 'gpu'?"),
        (["--link", "nvlink"], "--link: found 'nvlink'"),
    ],
)
def test_options_that_do_not_fit_the_profile(
    tmp_path: Path, options: list[str], words: str
) -> None:
    path = save(tmp_path / "p.json", profile())
    refused(run("solve", path, *CUT, *options), 2, f"error: {path}: {words}")


@pytest.mark.parametrize("rows", [[], [0, 1], [["0"]], {"placement": [[0, 1]]}, [[True]]])
def test_a_placement_file_holds_rows_of_ranks(tmp_path: Path, rows: object) -> None:
    path, placement = save(tmp_path / "p.json", profile()), save(tmp_path / "rows.json", rows)
    result = run("solve", path, *CUT, "--placement", placement)
    refused(result, 2, f"error: {placement}: ", "rows of ranks")


# The answer is no


def test_more_ranks_than_layers(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", profile())
    options = ("--ranks", "8", "--microbatches", "2")
    refused(run("solve", path, *options), 1, path, "8 stages", "6", "--allow-empty")
    assert run("solve", path, *options, "--allow-empty").exit_code == 0


def test_memory_below_one_microbatch_of_a_pipeline(tmp_path: Path) -> None:
    path = save(
        tmp_path / "p.json", pipeline(activation_bytes=[1, 5, 1], memory_limit_bytes=[4] * 3)
    )
    refused(run("solve", path), 1, path, "rank 1", "5 bytes", "4 bytes", "raise")


@pytest.mark.parametrize(("limit", "mend"), [("2999", "3000 bytes"), ("0.1x", "0.5x")])
def test_memory_below_one_microbatch_of_a_profile(tmp_path: Path, limit: str, mend: str) -> None:
    path = save(tmp_path / "p.json", profile())
    result = run("solve", path, *CUT, "--memory-limit", limit)
    refused(result, 1, path, "rank 0 needs", "one microbatch", f"A limit of {mend} would do")
    enough = mend.removesuffix(" bytes")
    assert run("solve", path, *CUT, "--memory-limit", enough).exit_code == 0


# A CSV that is none


def test_what_a_csv_lacks_is_one_fault(tmp_path: Path) -> None:
    csv = tmp_path / "s.csv"
    csv.write_text("0F0,0F1,0F2,0F3,0B3\n")
    target = save(tmp_path / "p.json", pipeline(1, 4, backward="fused"))
    result = run("import", str(csv), "--pipeline", target)
    refused(result, 2, f"error: {csv}: actions: found no 0B0, 0B1, 0B2: 3 missing, expected every")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b"\xff\xfe0\x00", "byte 0"),
        (b"0F0,0B0,hello\n", "row 1, column 3: found 'hello'"),
        (b"0F0,0F0,0B0\n", "row 1, column 2: found 0F0 again"),
        (b"0F0,0B0\n\n", "row 2: found no computation"),
        (b"1F0,1B0\n", "stage 0: found no computation"),
        (b"0F0,0B0,0F7\n", "row 1, column 3: found 0F7, expected more than one action"),
        (b"0F0,0B0,9B0\n", "row 1, column 3: found 9B0, expected more than one action"),
    ],
)
def test_csv(tmp_path: Path, content: bytes, words: str) -> None:
    csv = tmp_path / "s.csv"
    csv.write_bytes(content)
    target = save(tmp_path / "p.json", pipeline(1, 1, backward="fused"))
    refused(run("import", str(csv), "--pipeline", target), 2, f"error: {csv}: ", words)
