"""A tagger of texts, from a table to tags: learnt, used, updated behind a gate, and explained."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

import mlcl
from mlcl.cli.main import main
from mlcl.datasets import load_dataset
from mlcl.encoders import Words, from_bytes, join, to_bytes
from mlcl.errors import InputError
from mlcl.taggers.export import export
from mlcl.taggers.why import closest, why

WORDS = {
    "web": ["server", "http", "proxy", "browser"],
    "game": ["play", "arcade", "puzzle", "score"],
    "sound": ["audio", "mixer", "music", "tune"],
    "maths": ["algebra", "matrix", "proof", "solver"],
}
OTHER = [f"word{k}" for k in range(60)]


def write_table(path, *, rows=300, seed=0, labels=("web", "game", "sound")):
    """Texts in which the words of their tags are likely."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["id", "title", "description", "tags"])
        for k in range(rows):
            tags = [label for label in labels if rng.random() < 0.35]
            own = [rng.choice(WORDS[label]) for label in tags for _ in range(2)]
            out.writerow(
                [f"{seed}-{k}", *(" ".join([*own, *rng.choice(OTHER, 6)]) for _ in range(2)), "|".join(tags)]
            )
    return path


@pytest.fixture
def tagger(tmp_path, monkeypatch):
    monkeypatch.setenv("MLCL_HOME", str(tmp_path / "home"))
    table = write_table(tmp_path / "first.csv")
    assert (
        main(
            [
                "learn",
                str(table),
                "--encoder",
                "words,words=40,hashed=16",
                "--out",
                str(tmp_path / "t"),
                "--quiet",
            ]
        )
        == 0
    )
    return tmp_path / "t"


QUESTIONS = [
    "an http server and proxy",
    "arcade puzzle to play",
    "an audio mixer for music",
    "<b>\x1b[2J",
]


def test_it_tags_texts(tagger):
    found = mlcl.load(tagger)
    values = found.predict_proba(QUESTIONS)
    assert found.classes == ("game", "sound", "web")
    assert values[:3].argmax(1).tolist() == [2, 0, 1]
    assert (values[[0, 1, 2], [2, 0, 1]] > 0.6).all()
    assert np.allclose(values, found.predict_proba(np.array(QUESTIONS)))
    assert np.allclose(values, found.predict_proba(found.text_encoder.encode(QUESTIONS).toarray()), atol=1e-6)
    assert found.predict(QUESTIONS).tolist() == (values > found.thresholds.values).astype(int).tolist()
    with pytest.raises(InputError, match="text 2 is a NoneType"):
        found.predict_proba(["a", None])


def test_the_encoder_has_seen_training_rows_alone(tagger):
    found = mlcl.load(tagger)
    encoder = from_bytes((tagger / "encoder.safetensors").read_bytes())
    assert isinstance(encoder, Words)
    assert encoder.documents == len(load_dataset(found.config.data).train) == 270


def test_files_and_standard_input_are_tagged(tagger, tmp_path, capsys, monkeypatch):
    expected = [["1", "web"], ["2", "game"], ["3", "sound"]]
    (tmp_path / "q.txt").write_text("\n".join(QUESTIONS[:3]))
    (tmp_path / "q.jsonl").write_text(
        "\n".join(json.dumps({"id": f"q{k}", "text": q}) for k, q in enumerate(QUESTIONS))
    )
    capsys.readouterr()
    assert main(["predict", str(tagger), str(tmp_path / "q.txt"), "--tags"]) == 0
    assert [line.partition(",")[0].split() for line in capsys.readouterr().out.splitlines()] == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(QUESTIONS[:3]).encode())))
    assert main(["predict", str(tagger), "-", "--tags"]) == 0
    assert [line.partition(",")[0].split() for line in capsys.readouterr().out.splitlines()] == expected
    assert main(["predict", str(tagger), str(tmp_path / "q.jsonl"), "--out", str(tmp_path / "o.csv")]) == 0
    rows = list(csv.reader((tmp_path / "o.csv").open()))
    assert [row[0] for row in rows] == ["id", "q0", "q1", "q2", "q3"]
    assert np.allclose(
        np.array(rows[1:])[:, 1:].astype(float), mlcl.load(tagger).predict_proba(QUESTIONS), atol=1e-5
    )


def test_other_verbs_take_tables_of_texts(tagger, tmp_path, capsys):
    same = write_table(tmp_path / "same.csv", rows=200, seed=8)
    other = write_table(tmp_path / "moved.csv", rows=200, seed=9, labels=("maths",))
    capsys.readouterr()
    assert main(["drift", str(tagger), str(same)]) == 0
    assert main(["drift", str(tagger), str(other)]) == 0
    assert main(["card", str(tagger), "--out", str(tmp_path / "card.md")]) == 0
    assert main(["report", str(tagger), "--out", str(tmp_path / "page.html")]) == 0
    with pytest.warns(UserWarning, match="takes the vectors of its encoder"):
        export(tagger, tmp_path / "m.pt2")


def test_it_learns_new_labels_and_keeps_its_encoder(tagger, tmp_path, capsys):
    more = write_table(tmp_path / "more.csv", rows=200, seed=1, labels=("web", "maths"))
    gate = write_table(tmp_path / "gate.csv", rows=150, seed=2)
    assert (
        main(["update", str(tagger), "--data", str(more), "--gate", str(gate), "--allow", "5", "--quiet"])
        == 0
    )
    found = mlcl.load(tagger)
    assert found.classes == ("game", "sound", "web", "maths")
    assert found.predict_proba(["solver for matrix algebra"])[0].argmax() == 3
    assert found.encoder == (tagger / "encoder.safetensors").read_bytes()
    assert json.loads((tagger / "versions/2/gate.json").read_text())["rows"] == 150
    assert found.update(write_table(tmp_path / "again.csv", rows=60, seed=3)).classes == found.classes
    assert main(["check", str(tagger)]) == 0
    assert main(["rollback", str(tagger)]) == 0


def test_other_vectors_and_other_taggers_are_refused(tagger, tmp_path, capsys):
    table = write_table(tmp_path / "other.csv", seed=5)
    spec = ["--encoder", "words,words=50,hashed=6"]
    assert (
        main(
            ["data", "prepare", "table", "--root", str(table), *spec, "--out", str(tmp_path / "s"), "--quiet"]
        )
        == 0
    )
    assert main(["update", str(tagger), "--data", str(tmp_path / "s")]) == 2
    assert "that another encoder made" in capsys.readouterr().err
    np.savez(
        tmp_path / "v.npz", x_train=np.eye(9), y_train=np.eye(9, 3), x_test=np.eye(9), y_test=np.eye(9, 3)
    )
    assert (
        main(["learn", str(tmp_path / "v.npz"), "--out", str(tmp_path / "v"), "--held_out", "0", "--quiet"])
        == 0
    )
    capsys.readouterr()
    assert main(["update", str(tmp_path / "v"), "--data", str(table)]) == 2
    assert "takes no texts" in capsys.readouterr().err
    with pytest.raises(InputError, match="takes no texts"):
        mlcl.load(tmp_path / "v").predict_proba(["a"])


def test_options_of_texts_are_of_texts_alone(tmp_path, capsys):
    np.savez(
        tmp_path / "v.npz", x_train=np.eye(9), y_train=np.eye(9, 3), x_test=np.eye(9), y_test=np.eye(9, 3)
    )
    assert main(["learn", str(tmp_path / "v.npz"), "--encoder", "words", "--out", str(tmp_path / "v")]) == 2
    assert "has no option --encoder" in capsys.readouterr().err


def test_contributions_add_up_to_the_log_odds(tagger, capsys):
    found = mlcl.load(tagger)
    text = "The HTTP server, a proxy server; unknown words & <b>arcade</b> \x1b[2J"
    values = found.calibration.lines.log_odds(found.logits_of_texts([text, ""]))
    for k, label in enumerate(found.classes):
        told = why(found, text, label)
        assert told.log_odds == pytest.approx(values[0, k], abs=1e-4)
        assert told.base == pytest.approx(values[1, k], abs=1e-4)
        assert told.base + sum(value for _, value in told.contributions) == pytest.approx(told.log_odds)
        assert told.probability == pytest.approx(found.predict_proba([text])[0, k], abs=1e-4)
    by_name = dict(why(found, text, "web").contributions)
    assert {"http", "server", "proxy", "arcade"} < set(by_name)
    assert min(by_name["server"], by_name["http"]) > 0.3
    capsys.readouterr()
    assert main(["why", str(tagger), "--text", QUESTIONS[0], "--top", "3"]) == 0
    assert capsys.readouterr().out.startswith("web: probability")
    capsys.readouterr()
    table = tagger.parent / "first.csv"
    rows = list(csv.DictReader(table.open(newline="")))
    query = rows[17]["title"] + " " + rows[17]["description"]
    assert main(["why", str(tagger), "--text", query, "--top", "0", "--data", str(table)]) == 0
    shown = capsys.readouterr().out.split("closest rows:\n")[1].splitlines()
    encoded = [
        found.text_encoder.encode([f"{row['title']}\n{row['description']}"]).toarray()[0] for row in rows
    ]
    cosines = np.array(encoded) @ found.text_encoder.encode([query]).toarray()[0]
    order = np.argsort(-cosines)[:5]
    tags = [", ".join(rows[k]["tags"].split("|")) or "no label" for k in order]
    assert [float(line.split()[0]) for line in shown] == pytest.approx(cosines[order], abs=6e-4)
    assert shown[0].split()[1] == "0-17:"
    assert sorted(shown[0].partition(": ")[2].split(", ")) == sorted(tags[0].split(", "))
    with pytest.raises(InputError, match="expected vectors of 56 numbers"):
        closest(found, query, "digits")
    assert main(["why", str(tagger), "--text", text, "--label", "wep"]) == 2
    assert "has no label 'wep'. Did you mean 'web'?" in capsys.readouterr().err


def test_contributions_of_several_encoders_add_up(tagger):
    found = mlcl.load(tagger)
    whole = found.text_encoder
    assert isinstance(whole, Words)
    words = Words.fit(QUESTIONS, words=20, hashed=10, pairs=True)
    both = join(words, Words.fit(QUESTIONS, words=0, hashed=whole.width - words.width), weights=[0.7, 2.0])
    told = why(replace(found, encoder=to_bytes(both)), QUESTIONS[0], "web")
    row = both.encode([QUESTIONS[0]]).toarray()
    assert told.log_odds == pytest.approx(found.calibration.lines.log_odds(found.logits(row))[0, 2], abs=1e-4)


def test_a_network_has_no_contributions(tmp_path, monkeypatch):
    monkeypatch.setenv("MLCL_HOME", str(tmp_path / "home"))
    table = write_table(tmp_path / "first.csv")
    spec = ["--encoder", "words,words=20,hashed=4", "--method", "er", "--out", str(tmp_path / "t"), "--quiet"]
    assert main(["learn", str(table), *spec]) == 0
    found = mlcl.load(tmp_path / "t")
    assert found.predict_proba(QUESTIONS).shape == (4, 3)
    with pytest.raises(InputError, match="no linear tagger"):
        why(found, "a server", "web")
