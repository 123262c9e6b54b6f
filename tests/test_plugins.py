"""Plugins: parts from outside the package run, are recorded, and never run because a file names them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from importlib import metadata

import numpy as np
import pytest

from children import child, complete, wait_until
from helpers import small_arrays
from mlcl import plugins
from mlcl.cli.main import main
from mlcl.config.parts import REGISTRIES
from mlcl.config.resolve import config_from
from mlcl.datasets import prepare_source
from mlcl.errors import InputError
from mlcl.files import cache_dir
from mlcl.memories import MEMORIES
from mlcl.methods.presets import PRESETS
from mlcl.registry import REGISTRATIONS

MEMORY = '''
"""A memory of ten lines."""
from mlcl.memories import MEMORIES, quotas

@MEMORIES.register("newest", summary="The last rows of every task.")
def update_newest(stored, new, size, rng, *, fraction: float = 1.0):
    """Keep prefixes of old tasks.

    Args:
        fraction: share of the memory that may be filled.
    """
    tasks = (*stored, new.take(range(len(new))[::-1]))
    room = quotas(int(size * fraction), [len(task) for task in tasks])
    return tuple(task.take(range(places)) for task, places in zip(tasks, room))
'''
QUICK = ["--train.epochs", "1", "--train.batch_size", "256", "--memory.size", "40", "--model.width", "2"]


before = 0


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    """Every test starts without plugins and leaves none behind."""
    global before
    before = len(REGISTRATIONS)  # here, not at import: other tests of this process register parts too
    monkeypatch.setattr(plugins, "_loaded", {})
    yield
    REGISTRATIONS.undo_to(before)
    shutil.rmtree(cache_dir() / plugins.TRUSTED, ignore_errors=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """What a run on a store of a hundred rows is given: it trains in no time."""
    folder = tmp_path_factory.mktemp("small")
    rows = dict(
        zip(
            ("x_train", "y_train", "x_test", "y_test"),
            (*small_arrays(n=100), *small_arrays(seed=1)),
            strict=True,
        )
    )
    np.savez(folder / "arrays.npz", **rows)
    prepare_source("arrays", folder / "arrays.npz", out=folder / "store", jobs=1)
    given = {"benchmark": folder / "store", "model": "mlp", "model.hidden": 8, "model.depth": 1}
    given |= {"stream.tasks": 2, "memory.size": 40, "train.epochs": 1, "train.batch_size": 8}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_parts.py"
    path.write_text(MEMORY)
    return path


def command(*arguments, **options):
    """Run the command line in a new process, as users do."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "mlcl", *map(str, arguments)]
    return complete(line, env=env, **options)


@pytest.mark.slow
def test_a_memory_from_a_file_is_listed_run_and_takes_an_option(file, small, tmp_path, capsys):
    assert main(["ls", "memories", "--plugin", str(file)]) == 0
    assert "newest" in capsys.readouterr().out
    out = tmp_path / "run"
    given = ["--memory", "newest", "--memory.fraction", "0.5", "--out", str(out), "--quiet"]
    assert main(["run", "--plugin", str(file), *small, *given]) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["config"]["memory"]["fraction"] == 0.5
    assert sum(result["memory"]) == 20
    record = json.loads((out / "environment.json").read_text())["plugins"]
    assert record == [{"source": str(file), "sha256": plugins.find_plugin(file).sha256}]
    assert f"--plugin {file}" in (out / "config.yaml").read_text().splitlines()[0]


def test_without_the_plugin_its_names_are_unknown(capsys):
    assert main(["run", "--memory", "newest"]) == 2
    assert "unknown memory 'newest'" in capsys.readouterr().err
    assert main(["run", "--memory.fraction", "0.5"]) == 2
    assert "unknown option '--memory.fraction'" in capsys.readouterr().err


# A run that stays in the second step of its second task, so that it cannot end before it is killed.
STAYING = """
import sys, time
from mlcl.cli.main import main
from mlcl.training.learner import Learner
learn, calls = Learner.learn, 0
def staying(self, *args):
    global calls
    calls += self.task_index == 1
    if calls == 3:
        time.sleep(6000)
    return learn(self, *args)
Learner.learn = staying
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_run_with_a_plugin_survives_kill_and_resume(file, small, tmp_path):
    """SIGKILL in the middle, then resume in a new process that is given nothing but the folder."""
    out, whole = tmp_path / "killed", tmp_path / "whole"
    given = [*small, "--train.threads", "1", "--memory", "newest", "--quiet"]
    given += ["--plugin", str(file), "--checkpoint.every", "1"]
    assert main(["run", *given, "--out", str(whole)]) == 0
    line = [sys.executable, "-c", STAYING, "run", *given, "--out", str(out)]
    with child(line, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: any(in_second_task(path) for path in out.glob("checkpoints/0*.json")), process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (out / "result.json").exists()
    resumed = command("resume", out, "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    matrices = [json.loads((folder / "result.json").read_text())["matrix"] for folder in (out, whole)]
    assert matrices[0] == matrices[1]


def in_second_task(manifest):
    """Whether a checkpoint was written after a step of the second task; it may be gone already."""
    try:
        position = json.loads(manifest.read_text())["position"]
    except FileNotFoundError:
        return False
    return position["task"] == 1 and position["step"] > 0


@pytest.fixture
def finished(file, small, tmp_path):
    out = tmp_path / "run"
    arguments = ["--plugin", str(file), *small, "--memory", "newest", "--out", str(out), "--quiet"]
    assert main(["run", *arguments]) == 0
    return out


def forget_loaded():
    """Be a new process, as far as plugins go."""
    REGISTRATIONS.undo_to(before)
    plugins._loaded.clear()


def predict(folder, tmp_path, *more):
    rows = tmp_path / "rows.npy"
    np.save(rows, small_arrays(n=3)[0])
    scores = tmp_path / "scores.csv"
    return main(["predict", str(folder), str(rows), "--out", str(scores), "--overwrite", *more])


@pytest.mark.slow
def test_predict_loads_a_plugin_that_was_given_here_before(finished, tmp_path):
    forget_loaded()
    assert predict(finished, tmp_path) == 0
    assert "newest" in MEMORIES.names()


@pytest.mark.slow
def test_a_plugin_that_was_never_given_here_does_not_run(finished, tmp_path, capsys):
    forget_loaded()
    shutil.rmtree(cache_dir() / plugins.TRUSTED)
    assert predict(finished, tmp_path) == 2
    err = capsys.readouterr().err
    assert "was never given on this machine; to run its code, give it with --plugin" in err
    assert err.count("\n") == 1
    assert "newest" not in MEMORIES.names()


@pytest.mark.slow
def test_a_missing_plugin_is_named(finished, file, tmp_path, capsys):
    forget_loaded()
    file.unlink()
    assert predict(finished, tmp_path) == 2
    assert f"made with the plugin {file}, which is missing now" in capsys.readouterr().err


@pytest.mark.slow
def test_a_changed_plugin_is_refused_unless_given(finished, file, tmp_path, capsys):
    forget_loaded()
    file.write_text(MEMORY + "# another line\n")
    assert predict(finished, tmp_path) == 2
    err = capsys.readouterr().err
    assert f"the plugin {file} has changed since {finished} was made (sha256 " in err
    assert "to use it as it is now, give it with --plugin" in err
    assert predict(finished, tmp_path, "--plugin", str(file)) == 0
    assert "warning: the plugin" in capsys.readouterr().err


@pytest.mark.slow
def test_resume_says_that_a_plugin_changed(finished, file, capsys):
    forget_loaded()
    (finished / "result.json").unlink()
    file.write_text(MEMORY + "# another line\n")
    assert main(["resume", str(finished)]) == 2
    assert "has changed since" in capsys.readouterr().err


@pytest.mark.slow
def test_a_plugin_that_moved_is_known_by_its_name(finished, file, tmp_path):
    forget_loaded()
    (tmp_path / "elsewhere").mkdir()
    moved = file.rename(tmp_path / "elsewhere" / file.name)
    assert predict(finished, tmp_path, "--plugin", str(moved)) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "registers nothing; expected parts registered with a decorator"),
        ("\n\n1 / 0\n", r"bad\.py, line 3, cannot be loaded: ZeroDivisionError: division by zero"),
        ("def f(:\n", r"bad\.py, line 1, cannot be loaded: SyntaxError"),
        (
            "import no_such_module\n",
            r"bad\.py, line 1, cannot be loaded: ModuleNotFoundError: No module named",
        ),
        (
            MEMORY.replace('"newest"', '"wru"'),
            r"bad\.py:5: memory 'wru' is registered already, in .*wru\.py:\d+",
        ),
        (MEMORY + MEMORY, r"bad\.py:\d+: memory 'newest' is registered already, in .*bad\.py:5"),
        (
            "from mlcl.methods import PRESETS, Preset\nPRESETS['er'] = Preset('a', 'b')\n",
            r"bad\.py, line 2, .*method 'er' is registered already",
        ),
    ],
)
def test_a_bad_plugin_is_one_sentence_with_file_and_line_and_leaves_nothing(text, words, tmp_path, capsys):
    import re

    before = {part: registry.names() for part, registry in REGISTRIES.items()}, dict(PRESETS)
    (tmp_path / "bad.py").write_text(text)
    assert main(["ls", "--plugin", str(tmp_path / "bad.py")]) == 2
    err = capsys.readouterr().err
    assert re.search(words, err), err
    assert err.count("\n") == 1
    assert ({part: registry.names() for part, registry in REGISTRIES.items()}, dict(PRESETS)) == before


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("absent.py", "absent.py: cannot be read: No such file"),
        ("no.such.module", "plugin 'no.such.module'"),
        ("not a module", "neither FILE.py nor package.module"),
        ("", "--plugin has no value"),
    ],
)
def test_what_is_no_plugin_is_refused(source, words, capsys):
    assert main(["ls", "--plugin", source]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_a_module_is_a_plugin_too(tmp_path, monkeypatch):
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text(MEMORY)
    monkeypatch.syspath_prepend(tmp_path)
    plugin = plugins.load_plugin("my_package.parts")
    assert plugin.record() == {"source": "my_package.parts", "sha256": plugin.sha256}
    assert config_from({"memory": {"kind": "newest", "fraction": 0.25}}).memory.options == {"fraction": 0.25}
    plugins.load_plugin("my_package.parts")  # once is enough
    sys.modules.pop("my_package.parts")


def test_an_entry_point_is_loaded_by_itself(tmp_path, monkeypatch):
    (tmp_path / "announced.py").write_text(MEMORY)
    monkeypatch.syspath_prepend(tmp_path)
    entry = metadata.EntryPoint("mine", "announced", plugins.GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: [entry] if group == plugins.GROUP else [])
    monkeypatch.setattr(plugins, "_entry_points_loaded", False)
    assert config_from({"memory": "newest"}).memory.kind == "newest"
    REGISTRATIONS.undo_to(before)
    plugins._loaded.clear()
    sys.modules.pop("announced")
    (tmp_path / "announced.py").write_text("1 / 0\n")
    monkeypatch.setattr(plugins, "_entry_points_loaded", False)
    with pytest.raises(InputError, match=r"ZeroDivisionError.*entry point 'mine'"):
        config_from({"memory": "wru"})
    sys.modules.pop("announced", None)


def test_every_kind_of_part_can_come_from_a_file(tmp_path):
    path = tmp_path / "all_parts.py"
    path.write_text(
        textwrap.dedent(
            """
            from mlcl.datasets import SOURCES
            from mlcl.losses import LOSSES, MarginLoss
            from mlcl.methods import PRESETS, Preset
            from mlcl.methods.augment import AUGMENTATIONS, random_flip
            from mlcl.methods.labels import LABEL_POLICIES, OwnTask
            from mlcl.methods.regularisers import REGULARISERS, Regulariser
            from mlcl.models import MODELS
            from mlcl.models.mlp import linear

            @LOSSES.register("twice", summary="BCE, twice.")
            def twice(counts, *, times: float = 2.0):
                return MarginLoss(counts, margin=0.0, reweight="none", scale=times)

            @REGULARISERS.register("nothing", summary="No penalty.")
            class Nothing(Regulariser):
                pass

            @LABEL_POLICIES.register("own", summary="As task.")
            class Own(OwnTask):
                pass

            AUGMENTATIONS.register("mirror", summary="As flip.")(lambda: random_flip)
            MODELS.register("straight", summary="As linear.")(lambda shape: linear(shape))
            SOURCES.register("nowhere", summary="Reads nothing.")(lambda root: None)
            PRESETS["mine"] = Preset("All of it.", "me", {
                "loss": {"kind": "twice"}, "regulariser": {"kind": "nothing"}, "labels": {"kind": "own"},
                "augment": {"kind": "mirror"},
            })
            """
        )
    )
    plugin = plugins.load_plugin(path)
    config = config_from({"method": "mine", "loss": {"times": 3.0}, "model": "straight"})
    from mlcl.config.parts import used_plugins

    assert (config.loss.kind, config.loss.options, config.augment.kind) == ("twice", {"times": 3.0}, "mirror")
    assert used_plugins(config) == (plugin,)
    assert used_plugins(config_from({"method": "er"})) == ()


@pytest.mark.slow
def test_processes_that_train_together_have_the_plugin_too(file, small, tmp_path):
    out = tmp_path / "two"
    arguments = ["--plugin", file, *small, "--memory", "newest", "--devices", "2"]
    done = command("run", *arguments, "--out", out, "--quiet")
    assert done.returncode == 0, done.stderr
    assert sum(json.loads((out / "result.json").read_text())["memory"]) == 40


def python(code, folder):
    """Run code in a new process, where no room of the package is imported yet."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    return done.stdout + done.stderr


def test_a_plugin_does_not_own_what_it_imports_first(tmp_path):
    (tmp_path / "only.py").write_text("import mlcl.memories, mlcl.losses\n")
    (tmp_path / "bad.py").write_text("import mlcl.memories\n1 / 0\n")
    code = f"""
from mlcl.errors import InputError
from mlcl.plugins import load_plugin
for name in ("only.py", "bad.py"):
    try:
        load_plugin({str(tmp_path)!r} + "/" + name)
    except InputError as error:
        print(error)
from mlcl.memories import MEMORIES
print(MEMORIES.names(), repr(MEMORIES.owner("wru")))
"""
    found = python(code, tmp_path)
    assert "only.py registers nothing" in found
    assert "bad.py, line 2, cannot be loaded: ZeroDivisionError" in found
    assert "'wru'] ''" in found


def test_a_package_that_imports_its_own_plugin_and_a_module_imported_before(tmp_path):
    package = tmp_path / "pkg_a"
    package.mkdir()
    (package / "__init__.py").write_text("from pkg_a import mem\n")
    (package / "mem.py").write_text(MEMORY)
    code = """
import sys
if sys.argv[0] == "x":
    import pkg_a.mem
from mlcl.plugins import load_plugin
from mlcl.memories import MEMORIES
plugin = load_plugin("pkg_a.mem")
print(MEMORIES.owner("newest"), plugin.source)
"""
    assert python(code, tmp_path) == "pkg_a.mem pkg_a.mem\n"
    assert python(code.replace('sys.argv[0] == "x"', "True"), tmp_path) == "pkg_a.mem pkg_a.mem\n"


def test_a_record_that_names_another_source_runs_nothing(finished, tmp_path, capsys, monkeypatch):
    """The SHA-256 of a trusted plugin beside the name of another module: not even its parent package is imported."""
    forget_loaded()
    evil = tmp_path / "evil_package"
    evil.mkdir()
    (evil / "__init__.py").write_text("raise SystemExit('evil code ran')\n")
    (evil / "m.py").write_text(MEMORY)
    monkeypatch.syspath_prepend(tmp_path)
    path = finished / "environment.json"
    record = json.loads(path.read_text())
    record["plugins"][0]["source"] = "evil_package.m"
    path.write_text(json.dumps(record))
    assert predict(finished, tmp_path) == 2
    assert "was never given on this machine" in capsys.readouterr().err
    assert "evil_package" not in sys.modules


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise SystemExit(0)\n", r"bad\.py, line 1, cannot be loaded: SystemExit"),
        (
            "from mlcl.models import MODELS\nMODELS.register_family('timm', members=dict, summary='')(lambda n: n)\n",
            "model 'timm:NAME' is registered already",
        ),
        ("from mlcl.methods import PRESETS\nPRESETS.update(er=None)\n", "method 'er' is registered already"),
        (
            "from mlcl.methods import PRESETS\nPRESETS |= {'mine': None}\n1 / 0\n",
            "line 3, .*ZeroDivisionError",
        ),
        (
            "from mlcl.memories import MEMORIES\nMEMORIES.register('x', summary='')(3)\n",
            "memory 'x' is 3; expected a function or a class",
        ),
        (
            MEMORY.replace("fraction: float = 1.0", "fraction: float"),
            "memory 'newest' has the option 'fraction' without a default",
        ),
    ],
)
def test_more_ways_to_be_bad(text, words, tmp_path, capsys):
    import re

    (tmp_path / "bad.py").write_text(text)
    assert main(["ls", "--plugin", str(tmp_path / "bad.py")]) == 2
    err = capsys.readouterr().err
    assert re.search(words, err), err
    assert err.count("\n") == 1
    assert {"timm", "torchvision"} <= set(REGISTRIES["model"].families())
    assert PRESETS["er"] is not None
    assert "mine" not in PRESETS


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("fraction: float = 1.0", "weight: float = 1.0", "the option 'weight'.*a setting of every memory"),
        ("fraction: float = 1.0", "seed: int = 0", "the option 'seed'.*a setting of every memory"),
        ("fraction: float = 1.0", "fraction: object = None", "the option 'fraction' of type"),
        ("    tasks =", "    1 / 0\n    tasks =", r"memory 'newest' of the plugin .* ZeroDivisionError"),
    ],
)
def test_parts_that_cannot_be_set_are_one_sentence(old, new, words, tmp_path, capsys):
    import re

    path = tmp_path / "odd.py"
    path.write_text(MEMORY.replace(old, new).replace("size * fraction", "size"))
    assert main(["run", "--plugin", str(path), "--memory", "newest", "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert re.search(words, err), err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_value_is_checked_by_the_part_that_takes_it(tmp_path, capsys):
    """Another part may take an option of the same name and another type."""
    path = tmp_path / "two.py"
    other = MEMORY.replace('"newest"', '"oldest"').replace("fraction: float = 1.0", "fraction: str = 'x'")
    path.write_text(
        MEMORY + other.replace("size * fraction", "size").replace("update_newest", "update_oldest")
    )
    given = ["run", "--plugin", str(path), *QUICK, "--memory", "newest", "--memory.fraction", "half"]
    assert main([*given, "--out", str(tmp_path / "run")]) == 2
    assert "memory.fraction is 'half'; expected float" in capsys.readouterr().err


def test_a_copy_of_a_loaded_file_is_the_same_plugin(file, tmp_path):
    copied = tmp_path / "copy.py"
    copied.write_text(file.read_text())
    link = tmp_path / "link.py"
    link.symlink_to(file)
    assert (
        main(["ls", "memories", "--plugin", str(file), "--plugin", str(copied), "--plugin", str(link)]) == 0
    )
    digest = plugins.find_plugin(file).sha256
    assert all(plugins._trust_file(digest, str(path)).is_file() for path in (file, copied))


def test_a_resume_with_a_changed_plugin_records_it(finished, file, tmp_path, capsys):
    forget_loaded()
    (finished / "result.json").unlink()
    file.write_text(MEMORY + "# another line\n")
    assert main(["resume", str(finished), "--plugin", str(file), "--quiet"]) == 0
    assert capsys.readouterr().err.count("has changed since") == 1
    record = json.loads((finished / "environment.json").read_text())
    assert (
        record["plugins"][0]["sha256"]
        == plugins.find_plugin(file).sha256
        != record["plugins_before"][0]["sha256"]
    )
    forget_loaded()
    assert predict(finished, tmp_path) == 0
