"""The command line as a user meets it: results, narration, exit codes, interruptions."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from cli_cases import hard_pipeline, layer, pipeline, profile, run, save
from click.testing import Result

import schedopt
from schedopt.cli import main

CONSTRUCT = ("--solver", "construct")


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    return save(tmp_path / "pipeline.json", pipeline())


@pytest.fixture
def model(tmp_path: Path) -> str:
    return save(tmp_path / "profile.json", profile())


@pytest.fixture
def solved(tmp_path: Path, tiny: str) -> str:
    path = str(tmp_path / "schedule.json")
    assert run("solve", tiny, "-o", path).exit_code == 0
    return path


def document(result: Result) -> Any:
    """Return the one JSON document on stdout."""
    return json.loads(result.stdout)


# Help


def commands() -> list[str]:
    return main.list_commands(click.Context(main))


@pytest.mark.parametrize("name", commands())
def test_help_starts_with_an_example_of_the_command(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Example: schedopt {name}")
    assert max(map(len, result.stdout.splitlines())) <= 81


def test_help_lists_every_command_without_cutting_its_sentence() -> None:
    text = run("--help").stdout
    for name in commands():
        assert re.search(rf"^  {name} +\S.*\.$", text, re.MULTILINE)
    assert "..." not in text.split("Commands:")[1].split("Exit codes")[0]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from schedopt.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'pydantic', 'rich', 'ortools', 'numba', 'pulp', 'torch', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Example: schedopt")
    assert done.stderr.strip() == "[]"


def test_version() -> None:
    assert run("--version").stdout == f"schedopt {schedopt.__version__}\n"


def test_unknown_words_get_a_suggestion(tiny: str) -> None:
    result = run("slove", tiny)
    assert result.exit_code == 2
    assert "'solve'" in result.stderr
    assert "\nerror: " in result.stderr
    assert "Error" not in result.stderr
    result = run("solve", tiny, "--time-limt", "3")
    assert result.exit_code == 2
    assert "--time-limit" in result.stderr


# solve


def test_solve_shows_the_numbers_and_the_picture_and_says_what_is_next(tiny: str) -> None:
    result = run("solve", tiny)
    assert result.exit_code == 0
    for words in ("optimal (proven)", "makespan", "vs 1F1B", "W directly after I", "rank"):
        assert words in result.stdout
    assert "not saved: add -o" in result.stderr
    assert f"next: schedopt solve {tiny} -o schedule.json" in result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_next_command_is_the_same_with_a_file(tmp_path: Path) -> None:
    path = save(tmp_path / "my profile.json", profile())
    typed = ["--ranks", "2", "--microbatches", "4", "--seed", "3"]
    result = run("solve", path, *typed)
    assert f"next: schedopt solve '{path}' {' '.join(typed)} -o schedule.json" in result.stderr
    result = run("solve", "-", *typed, stdin=Path(path).read_text())
    assert "next:" not in result.stderr  # it is read already


def test_layers_are_said_and_stages_listed_on_request(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", profile(layer("embedding", 1), layer(), layer("head", 1)))
    cut = ("--ranks", "2", "--microbatches", "4", "--layers", "3,5")
    plain = run("solve", path, *cut).stdout
    assert re.search(r"layers +3, 5 \(embedding … head\)", plain)
    assert "block.2 … head" not in plain
    assert "block.2 … head" in run("solve", path, *cut, "-v").stdout


def test_1f1b_is_said_to_be_on_the_same_placement(model: str) -> None:
    result = run("solve", model, "--ranks", "2", "--microbatches", "4", "--placement", "v")
    assert "on the same V placement" in result.stdout


def test_what_makes_an_answer_doubtful_is_said_aloud(tmp_path: Path) -> None:
    slow = dict.fromkeys(("forward_ns", "backward_input_ns", "backward_weight_ns"), 10**6)
    blind = layer("head", 1, **slow)
    del blind["activation_bytes"]
    path = save(tmp_path / "p.json", profile(layer(**slow), blind))
    options = ("--ranks", "2", "--microbatches", "2")
    result = run("solve", path, *options)
    assert "warning: memory: activation bytes of head not known" in result.stderr
    assert "nanoseconds" not in result.stderr
    assert "warning" not in run("solve", path, *options, "-q").stderr
    quick = save(tmp_path / "quick.json", profile())
    assert "warning: times: " in run("solve", quick, *options).stderr


def test_solve_saves_a_schedule_that_check_accepts(tiny: str, tmp_path: Path) -> None:
    path = str(tmp_path / "s.json")
    result = run("solve", tiny, "-o", path)
    assert result.exit_code == 0
    assert f"wrote {path}" in result.stderr
    assert "not saved" not in result.stderr
    assert run("check", path, "--against", tiny).exit_code == 0


def test_solve_json_is_the_schedule_and_nothing_else(tiny: str) -> None:
    result = run("solve", tiny, "--json")
    schedule = schedopt.Schedule.parse(document(result), "stdout")
    assert schedopt.check(schedule) == []
    assert result.stdout == schedule.text()
    assert run("solve", tiny, "-o", "-").stdout.startswith('{\n "format": "schedopt/schedule"')


def test_solve_reads_standard_input(tiny: str) -> None:
    result = run("solve", "-", "--json", stdin=Path(tiny).read_text())
    assert document(result)["format"] == "schedopt/schedule"


def test_quiet_says_nothing_but_the_result(tiny: str) -> None:
    result = run("solve", tiny, "-q")
    assert result.stderr == ""
    assert "optimal" in result.stdout


def test_verbose_narrates_the_search(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", hard_pipeline())
    result = run("solve", path, "-v", "--json", *CONSTRUCT)
    assert re.search(r" s  construct +bound .* best .* gap ", result.stderr)
    assert document(result)["status"] == "feasible"


def test_solve_cuts_a_profile(model: str) -> None:
    result = run(
        "solve", model, "--ranks", "2", "--microbatches", "4", "--placement", "v",
        "--layers", "1,2,1,2", "--memory-limit", "2x", "--json",
    )  # fmt: skip
    made = document(result)["pipeline"]
    assert made["placement"] == [[0, 1, 1, 0]]
    assert [len(names) for names in made["layers"]] == [1, 2, 1, 2]
    assert made["memory_limit_bytes"] == [2 * 2 * 3000] * 2


def test_solve_takes_a_placement_from_a_file(model: str, tmp_path: Path) -> None:
    rows = save(tmp_path / "rows.json", [[0, 1, 0]])
    options = ("--ranks", "2", "--microbatches", "2", "--placement", rows)
    assert document(run("solve", model, *options, "--json"))["pipeline"]["placement"] == [[0, 1, 0]]


def test_assumptions_are_told_with_the_schedule_and_beside_json(tmp_path: Path) -> None:
    whole = layer(backward_ns=200, backward_input_ns=None, backward_weight_ns=None)
    path = save(tmp_path / "p.json", profile(whole))
    options = ("--ranks", "2", "--microbatches", "2", "--split-backward", "0.25")
    note = "split assumed, 0.25 of it input gradient"
    assert note in " ".join(run("solve", path, *options).stdout.split())
    assert note in run("solve", path, *options, "--json").stderr


def test_solve_says_when_1f1b_does_not_fit(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", pipeline(memory_limit_bytes=[1, 3, 3]))
    text = " ".join(run("solve", path).stdout.split())
    assert "and does not fit: rank 0 would hold 3 B of 1 B" in text


def test_objective_device_span_is_compared_with_the_same_figure(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", pipeline(4, 8, memory_limit_bytes=[7] * 4))
    result = run("solve", path, "--objective", "device-span")
    assert "24 ns (minimised)" in result.stdout
    assert "takes 30 ns" in result.stdout


def test_equal_seed_and_rounds_give_equal_files(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", pipeline(4, 6, memory_limit_bytes=[2] * 4))
    options = ("solve", path, "--json", "--rounds", "2", "--seed", "5", "--time-limit", "60")
    assert run(*options).stdout == run(*options).stdout


def test_options_of_a_profile_are_refused_for_a_pipeline(tiny: str) -> None:
    result = run("solve", tiny, "--ranks", "2", "--memory-limit", "2x")
    assert result.exit_code == 2
    assert f"error: {tiny}: --ranks: found this option for a pipeline file" in result.stderr
    assert "--memory-limit" in result.stderr


def test_a_profile_needs_ranks_and_microbatches(model: str) -> None:
    result = run("solve", model)
    assert result.exit_code == 2
    assert f"{model}: --ranks: found nothing, expected how many ranks" in result.stderr
    assert f"{model}: --microbatches: found nothing" in result.stderr


def test_a_schedule_is_not_solved_again(solved: str) -> None:
    result = run("solve", solved)
    assert result.exit_code == 2
    assert f"schedopt show {solved}" in result.stderr


def test_limits_without_a_result_are_3(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", hard_pipeline())
    result = run("solve", path, "--solver", "milp", "--time-limit", "0.01")
    assert result.exit_code == 3
    assert "--time-limit" in result.stderr


@pytest.mark.parametrize("limit", ["nan", "inf", "-1", "0", "1e300"])
def test_absurd_time_limits_are_usage_errors(tiny: str, limit: str) -> None:
    assert run("solve", tiny, "--time-limit", limit).exit_code == 2


def test_our_own_bugs_are_70(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("impossible")

    monkeypatch.setattr("schedopt.api.solve", broken)
    result = run("solve", tiny)
    assert result.exit_code == 70
    assert "internal: RuntimeError: impossible" in result.stderr
    assert "report" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in run("solve", tiny, "-v").stderr


# compare


def test_compare_lists_ours_first_and_nothing_that_fits_is_better(model: str) -> None:
    result = run("compare", model, "--ranks", "3", "--microbatches", "6", "--json")
    table = document(result)
    assert (table["format"], table["version"]) == ("schedopt/comparison", 1)
    ours, *others = table["rows"]
    assert ours["name"] == "schedopt"
    assert {"gpipe", "1f1b", "zb-h1", "zb-h2"} == {row["name"] for row in others}
    assert ours["makespan_ns"] <= min(row["makespan_ns"] for row in others if row["fits"])
    for row in table["rows"]:
        gap = row["makespan_ns"] / table["lower_bound_ns"] - 1 if row["fits"] else None
        assert row["gap"] == (pytest.approx(gap) if row["fits"] else None)


def test_compare_shows_a_table_within_80_columns(tiny: str) -> None:
    result = run("compare", tiny)
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines if line]
    assert names.index("schedopt") < names.index("1f1b")
    assert f"next: schedopt solve {tiny} -o schedule.json" in result.stderr


def test_compare_solves_what_was_imported(tiny: str, tmp_path: Path) -> None:
    csv, imported = tmp_path / "s.csv", str(tmp_path / "imported.json")
    rows = [
        ",".join([f"{s}F{j}" for j in range(4)] + [f"{s}{k}{j}" for j in range(4) for k in "IW"])
        for s in range(3)
    ]
    csv.write_text("\n".join(rows) + "\n")
    free = pipeline()
    del free["memory_limit_bytes"]
    target = save(tmp_path / "free.json", free)
    result = run("import", str(csv), "--pipeline", target, "-o", imported)
    assert "minimised" not in result.stdout
    assert "bound" not in result.stdout
    assert "tiny" in result.stdout
    table = document(run("compare", imported, "--json"))
    ours, given, *named = table["rows"]
    assert (ours["name"], given["name"]) == ("schedopt", "imported")
    assert ours["gap"] == 0
    assert given["makespan_ns"] == json.loads(Path(imported).read_text())["makespan_ns"]
    assert given["gap"] > 0
    assert "1f1b" in {row["name"] for row in named}


def test_compare_takes_a_schedule_as_it_is(solved: str) -> None:
    result = run("compare", solved, "--json")
    stated = json.loads(Path(solved).read_text())
    first = document(result)["rows"][0]
    assert (first["name"], first["makespan_ns"]) == ("this schedule", stated["makespan_ns"])
    assert run("compare", solved, "--ranks", "2").exit_code == 2


# check


def test_check_finds_what_was_changed(solved: str, tmp_path: Path) -> None:
    assert run("check", solved).exit_code == 0
    schedule = json.loads(Path(solved).read_text())
    schedule["makespan_ns"] += 1
    path = save(tmp_path / "wrong.json", schedule)
    result = run("check", path)
    assert result.exit_code == 1
    assert f"{path}: makespan_ns: found" in result.stdout
    answer = document(run("check", path, "--json"))
    assert answer["valid"] is False
    assert answer["violations"][0]["place"] == "makespan_ns"


def test_a_schedule_is_laid_beside_the_profile_that_it_was_cut_from(
    model: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "v.json")
    cut = ("--ranks", "2", "--microbatches", "4", "--placement", "v", "--layers", "1,2,2,1")
    assert run("solve", model, *cut, "-o", path).exit_code == 0
    assert run("check", path, "--against", model).exit_code == 0
    slower = save(tmp_path / "slower.json", profile(layer(forward_ns=200)))
    wrong = run("check", path, "--against", slower)
    assert wrong.exit_code == 1
    assert "as in the given pipeline" in wrong.stdout
    run_slower = ("simulate", path, "--jitter", "0", "--json", "--durations")
    figures = document(run(*run_slower, slower))
    assert figures["makespan_ns"] > figures["schedule_makespan_ns"]
    same = document(run(*run_slower, path))
    assert same["makespan_ns"] <= same["schedule_makespan_ns"]
    assert same["device_span_ns"] <= same["makespan_ns"]
    more = save(tmp_path / "more.json", profile(layer(count=7)))
    refused = run("check", path, "--against", more)
    assert refused.exit_code == 2
    assert "layers: found a sum of 6, expected 7" in refused.stderr


def test_check_against_another_pipeline(solved: str, tmp_path: Path) -> None:
    other = save(tmp_path / "other.json", pipeline(forward_ns=[1, 1, 2]))
    result = run("check", solved, "--against", other)
    assert result.exit_code == 1
    assert "as in the given pipeline" in result.stdout
    assert run("check", solved, "--against", solved).exit_code == 0


# simulate


def test_simulate_gives_percentiles_and_a_critical_path(tmp_path: Path) -> None:
    solved = str(tmp_path / "s.json")
    times = dict.fromkeys(("forward_ns", "backward_input_ns", "backward_weight_ns"), [1000] * 3)
    run("solve", save(tmp_path / "p.json", pipeline(**times)), "-o", solved)
    figures = document(run("simulate", solved, "--jitter", "0.2", "--samples", "50", "--json"))
    assert figures["makespan_ns"] == figures["schedule_makespan_ns"]
    assert figures["makespan_ns"] < figures["p50_ns"] <= figures["p95_ns"]
    path = figures["critical_path"]
    assert path[0]["start_ns"] == 0
    assert path[-1]["end_ns"] == figures["makespan_ns"]
    text = run("simulate", solved).stdout
    assert "95th percentile" in text
    assert "critical path" in text
    assert max(map(len, text.splitlines())) <= 80


def test_simulate_with_other_durations(solved: str, tmp_path: Path) -> None:
    slow = save(
        tmp_path / "slow.json",
        pipeline(forward_ns=[2] * 3, backward_input_ns=[2] * 3, backward_weight_ns=[2] * 3),
    )
    result = run("simulate", solved, "--durations", slow, "--jitter", "0")
    assert "+100.00 % on what the schedule states" in result.stdout
    larger = save(tmp_path / "larger.json", pipeline(4))
    result = run("simulate", solved, "--durations", larger)
    assert result.exit_code == 2
    assert solved in result.stderr


def test_simulate_names_who_waits_in_a_deadlock(solved: str, tmp_path: Path) -> None:
    schedule = json.loads(Path(solved).read_text())
    last = max(op["end_ns"] for op in schedule["ops"])
    first = next(op for op in schedule["ops"] if op["kind"] == "F" and op["stage"] == 0)
    first["start_ns"], first["end_ns"] = last + 10, last + 11
    result = run("simulate", save(tmp_path / "stuck.json", schedule))
    assert result.exit_code == 1
    assert "rank 1 waits to run F of microbatch 0 on stage 1" in result.stderr


# show, export, import


def test_show_writes_pictures(solved: str, tmp_path: Path) -> None:
    svg, html = tmp_path / "s.svg", tmp_path / "s.html"
    result = run("show", solved, "--svg", str(svg), "--html", str(html), "--width", "60")
    assert result.exit_code == 0
    assert svg.read_text().startswith("<svg")
    assert "<html" in html.read_text()
    assert max(map(len, result.stdout.splitlines())) <= 60
    assert html.as_uri() in result.stderr


def test_export_to_stdout_and_to_a_file(solved: str, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    result = run("export", solved, "--to", "torch-csv", "-o", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    text = run("export", solved, "--to", "torch-csv").stdout
    assert text == path.read_text()
    assert text.startswith("0F0")
    assert f"_load_csv({str(path)!r})" in result.stderr
    assert run("export", solved, "--to", "torch-csv").stderr == ""
    json.loads(run("export", solved, "--to", "chrome-trace").stdout)
    assert "torch-csv" in run("export", "--list").stdout


def test_export_says_why_a_consumer_cannot_run_it(tmp_path: Path) -> None:
    both = pipeline(2, 2, placement=[[0, 1], [1, 0]], direction=[0, 1])
    path = str(tmp_path / "s.json")
    result = run("solve", save(tmp_path / "p.json", both), "-o", path)
    assert "next: schedopt show" in result.stderr  # no CSV holds two directions
    result = run("export", path, "--to", "torch-csv")
    assert result.exit_code == 2
    assert f"error: {path}: torch-csv: stage 0" in result.stderr


def test_import_gives_back_what_was_exported(solved: str, tiny: str, tmp_path: Path) -> None:
    csv = str(tmp_path / "s.csv")
    run("export", solved, "--to", "torch-csv", "-o", csv)
    again = document(run("import", csv, "--pipeline", tiny, "--json"))
    assert again["makespan_ns"] == json.loads(Path(solved).read_text())["makespan_ns"]
    assert again["method"] == "imported"


def test_import_cuts_a_profile_like_the_csv(model: str, tmp_path: Path) -> None:
    csv = tmp_path / "s.csv"
    csv.write_text("0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n")
    made = document(run("import", str(csv), "--pipeline", model, "--json"))["pipeline"]
    assert made["placement"] == [[0, 1, 1, 0]]
    assert (made["ranks"], made["microbatches"], made["backward"]) == (2, 2, "fused")


def test_import_says_in_what_the_pipeline_differs(tiny: str, tmp_path: Path) -> None:
    csv = tmp_path / "s.csv"
    csv.write_text("1F0,1B0\n0F0,0B0\n")
    result = run("import", str(csv), "--pipeline", tiny)
    assert result.exit_code == 2
    for words in ("rows: found 2", "stages: found 2", "microbatches: found 1", "backward: found B"):
        assert f"error: {csv}: {words}" in result.stderr


def test_import_refuses_backwards_in_both_forms(tmp_path: Path) -> None:
    csv = tmp_path / "s.csv"
    csv.write_text("0F0,0F1,0B0,0I1,0W1\n")
    one = save(tmp_path / "one.json", pipeline(1, 2))
    result = run("import", str(csv), "--pipeline", one)
    assert result.exit_code == 2
    assert "backward: found B beside I and W" in result.stderr


def test_import_of_a_deadlock_is_answered_with_no(tiny: str, tmp_path: Path) -> None:
    csv = tmp_path / "s.csv"
    pair = save(tmp_path / "pair.json", pipeline(2, 1, backward="fused"))
    csv.write_text("0B0,0F0\n1F0,1B0\n")
    result = run("import", str(csv), "--pipeline", pair)
    assert result.exit_code == 1
    assert f"{csv}: the orders deadlock: rank 0 waits to run B of microbatch 0" in result.stderr


# schema, doctor


@pytest.mark.parametrize("kind", ["profile", "pipeline", "schedule"])
def test_schema_describes_the_format(kind: str) -> None:
    result = run("schema", kind)
    assert '\n "type": "object"' in result.stdout
    schema = document(result)
    assert schema["$id"] == f"urn:schedopt:{kind}:1"
    assert schema["properties"]["format"]["const"] == f"schedopt/{kind}"
    assert {"format", "version"} <= set(schema["required"])
    assert schema["additionalProperties"] is False


def test_doctor_finds_what_the_tests_run_on() -> None:
    result = run("doctor", "--json")
    answer = document(result)
    found = {fact["name"]: fact for fact in answer["facts"]}
    assert {"python", "ortools", "pulp", "HiGHS", "CBC", "numba", "torch", "GPUs", "cache"} <= {
        *found
    }
    assert found["ortools"]["ok"]
    assert found["python"]["found"] in run("doctor").stdout  # however long, in one line
    assert result.exit_code == (0 if answer["ok"] else 1)


def test_doctor_says_how_to_get_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("schedopt.doctor.version", absent)
    result = run("doctor")
    assert result.exit_code == 1
    assert "pip install ortools" in result.stdout
    assert 'pip install "torch>=2.12"' in result.stdout


# Streams and signals, in processes of their own


def schedopt_process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "schedopt", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_no_escape_sequence_reaches_a_pipe(solved: str) -> None:
    environment = {
        k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "CLICOLOR_FORCE")
    }
    process = schedopt_process("show", solved, env=environment)
    out, err = process.communicate()
    assert process.returncode == 0
    assert "\x1b" not in out + err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_an_error_and_no_bug(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "schedopt", "schema", "profile"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: standard output: No space left")


def test_completion_knows_commands_and_placements() -> None:
    def complete(words: str, position: int) -> str:
        environment = {
            "_SCHEDOPT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(position)
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", "from schedopt.cli import main; main(prog_name='schedopt')"],
            env=os.environ | environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    assert "plain,compare" in complete("schedopt com", 1)
    assert "plain,bidirectional" in complete("schedopt solve p.json --placement bi", 4)


def test_a_closed_pipe_is_quiet(solved: str) -> None:
    process = schedopt_process("show", solved)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait() == 141
    assert "Error" not in said
    assert "error" not in said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_writes_the_best_first(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    path = save(tmp_path / "p.json", hard_pipeline())
    output = tmp_path / "s.json"
    process = schedopt_process("solve", path, "-v", "--time-limit", "600", "-o", str(output))
    assert process.stderr is not None
    for line in process.stderr:
        if "anneal" in line:
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "interrupted" in err
    assert "Traceback" not in err
    assert "makespan" in out
    assert schedopt.check(schedopt.Schedule.read(output)) == []


def test_interrupted_during_a_proof(tmp_path: Path) -> None:
    path = save(tmp_path / "p.json", hard_pipeline())
    process = schedopt_process(
        "solve", path, "-v", "--time-limit", "600", "--json", "--solver", "cpsat"
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "cp-sat" in line:
            break
    time.sleep(1)  # into the search itself
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["format"] == "schedopt/schedule"


def test_a_closed_standard_output_is_an_error_not_a_traceback() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{shlex.quote(sys.executable)} -m schedopt schema pipeline >&-"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "error: standard output is closed\n"


@pytest.mark.parametrize("wait", [0.15, 0.4, 0.7, 1.0, 1.4])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_at_any_moment_is_an_interruption(wait: float, number: int, code: int) -> None:
    """Also while libraries load; before Python's own handlers stand, the shell says the same."""
    process = subprocess.Popen(
        [sys.executable, "-m", "schedopt", "doctor"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(wait)
    process.send_signal(number)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode in (0, code, -number), said
    assert "internal" not in said
