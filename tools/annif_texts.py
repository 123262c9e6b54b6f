"""Suggestions of Annif's backends: run by ``tools/texts.py`` in the environment of Annif, ``.venv-annif``.

``python annif_texts.py FOLDER BACKEND`` reads ``subjects.txt`` (a name per line), ``train.tsv`` (a text, a tab, numbers
of its subjects) and ``texts.txt`` (a text per line), and writes ``scores.npy``, ``[texts, subjects]``, and the seconds
of processor time that training took, ``seconds.txt``.
"""

import sys
import time
from pathlib import Path

import annif
import annif.registry
import numpy as np
from annif.corpus import DocumentFileTSV
from annif.vocab import VocabFileTSV

SETTINGS = {"tfidf": "", "svc": "min_df=2\nngram=2\n", "omikuji": "min_df=2\nngram=2\n"}
TOKENS = ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab")


def main() -> None:
    """Train and suggest."""
    folder, backend = Path(sys.argv[1]).resolve(), sys.argv[2]
    names = (folder / "subjects.txt").read_text().splitlines()
    uris = [f"http://example.org/{k}" for k in range(len(names))]
    (folder / "vocab.tsv").write_text(
        "".join(f"<{uri}>\t{name}\n" for uri, name in zip(uris, names, strict=True))
    )
    with (folder / "documents.tsv").open("w") as file:
        for line in (folder / "train.tsv").read_text().splitlines():
            text, _, numbers = line.partition("\t")
            file.write(f"{text}\t{' '.join(f'<{uris[int(k)]}>' for k in numbers.split())}\n")
    (folder / "projects.cfg").write_text(
        f"[p]\nname=p\nlanguage=en\nbackend={backend}\nanalyzer=snowball(english)\nvocab=v\nlimit={len(names)}\n"
        + SETTINGS[backend]
    )
    registry = annif.registry.AnnifRegistry(str(folder / "projects.cfg"), str(folder / "data"), False)
    project = registry.get_project("p")
    project.vocab.load_vocabulary(VocabFileTSV(str(folder / "vocab.tsv"), "en"))
    began = time.process_time()
    project.train(DocumentFileTSV(str(folder / "documents.tsv"), project.subjects), jobs=1)
    (folder / "seconds.txt").write_text(str(time.process_time() - began))
    texts, found = (folder / "texts.txt").read_text().splitlines(), []
    for start in range(0, len(texts), 256):
        batch = [annif.corpus.Document(text=text) for text in texts[start : start + 256]]
        found.append(project.suggest(batch).array.toarray())
    np.save(folder / "scores.npy", np.concatenate(found).astype(np.float32))


def tokens_folder(folder: Path) -> None:
    """Write the empty files with which NLTK's tokenizer, whose data no registry has, does without them."""
    place = folder / "tokenizers" / "punkt_tab" / "english"
    place.mkdir(parents=True, exist_ok=True)
    for name in TOKENS:
        (place / name).touch()


if __name__ == "__main__":
    tokens_folder(Path(sys.argv[1]) / "nltk")
    import nltk

    nltk.data.path.insert(0, str(Path(sys.argv[1]).resolve() / "nltk"))
    main()
