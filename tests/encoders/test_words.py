"""Words against scikit-learn's vectorisers, and the sums of document frequencies."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer

from mlcl.encoders import Words, from_bytes, to_bytes
from mlcl.encoders.words import tokens
from mlcl.errors import InputError

STEMS = [f"{a}{b}" for a in "kpst" for b in ("an", "ero", "ix")]


def some_texts(n: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    chosen = [rng.zipf(1.4, rng.integers(0, 30)) for _ in range(n)]
    return [" ".join(f"{STEMS[k % 12].title()}{k // 12 or ''}, x" for k in row if k < 400) for row in chosen]


@pytest.mark.parametrize("pairs", [False, True])
def test_without_a_vocabulary_it_is_the_hashing_vectorizer_with_tfidf(pairs):
    texts, others = some_texts(200), some_texts(50, seed=1)
    mine = Words.fit(texts, words=0, hashed=64, pairs=pairs)
    hashing = HashingVectorizer(n_features=64, ngram_range=(1, 1 + pairs), norm=None, alternate_sign=True)
    idf = TfidfTransformer(norm=None).fit(hashing.transform(texts))
    # Times in a text count 1 + log(times): there each word of a text is put in once, and its sign is summed.
    once = [" ".join(dict.fromkeys(tokens(text))) for text in others]
    single = [text for text in once if max(Counter(tokens(text, pairs)).values(), default=0) == 1]
    theirs = idf.transform(hashing.transform(single)).toarray()
    theirs /= np.maximum(np.linalg.norm(theirs, axis=1, keepdims=True), 1e-300)
    assert np.allclose(mine.weights, idf.idf_)
    assert len(single) > 10
    assert np.allclose(mine.encode(single).toarray(), theirs, atol=1e-6)


@pytest.mark.parametrize("pairs", [False, True])
def test_with_all_words_it_is_the_count_vectorizer_with_sublinear_tfidf(pairs):
    texts, others = some_texts(150), some_texts(60, seed=2)
    counts = CountVectorizer(ngram_range=(1, 1 + pairs))
    theirs = TfidfTransformer(sublinear_tf=True).fit(counts.fit_transform(texts))
    mine = Words.fit(texts, words=100_000, hashed=0, pairs=pairs)
    assert mine.vocabulary == tuple(sorted(counts.vocabulary_))
    expected = theirs.transform(counts.transform(others)).toarray()
    assert np.allclose(mine.encode(others).toarray(), expected, atol=1e-6)


def test_characters_are_those_of_char_wb():
    texts = ["the cats sat", "a catty thing"]
    counts = CountVectorizer(analyzer="char_wb", ngram_range=(3, 3), token_pattern=None)
    counts.fit(["the cats sat", "catty thing"])
    mine = Words.fit(texts, words=1000, hashed=0, characters=3)
    assert {word[1:] for word in mine.vocabulary if word[0] == "#"} == set(counts.vocabulary_)


def test_the_vocabulary_is_the_words_in_most_texts():
    texts = some_texts(300)
    found = Counter(word for text in texts for word in set(tokens(text)))
    mine = Words.fit(texts, words=20, hashed=8)
    least = min(found[word] for word in mine.vocabulary)
    assert len(mine.vocabulary) == 20
    assert all(found[word] <= least for word in found if word not in mine.vocabulary)
    assert mine.frequencies[:20].tolist() == [found[word] for word in mine.vocabulary]


def brute(words: Words, text: str, hash_of) -> np.ndarray:
    """One row from its definition."""
    row = np.zeros(words.width)
    for word, times in Counter(tokens(text, words.pairs, words.characters)).items():
        if word in words.vocabulary:
            row[words.vocabulary.index(word)] += 1 + math.log(times)
        elif words.hashed:
            number = hash_of(word)
            row[len(words.vocabulary) + abs(number) % words.hashed] += math.copysign(
                1 + math.log(times), number
            )
    row *= np.log((1 + words.documents) / (1 + words.frequencies)) + 1
    return row / (np.linalg.norm(row) or 1)


def murmur(word: str) -> int:
    """MurmurHash3, 32 bits, signed, from its definition."""
    data, h = word.encode(), 0

    def rot(x: int, r: int) -> int:
        return ((x << r) | (x >> (32 - r))) & 0xFFFFFFFF

    for start in range(0, len(data) - len(data) % 4, 4):
        k = rot(int.from_bytes(data[start : start + 4], "little") * 0xCC9E2D51 & 0xFFFFFFFF, 15)
        h = (rot(h ^ (k * 0x1B873593 & 0xFFFFFFFF), 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    rest = data[len(data) - len(data) % 4 :]
    if rest:
        k = rot(int.from_bytes(rest, "little") * 0xCC9E2D51 & 0xFFFFFFFF, 15)
        h ^= k * 0x1B873593 & 0xFFFFFFFF
    h ^= len(data)
    h = (h ^ (h >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - 2**32 if h >= 2**31 else h


@pytest.mark.parametrize("options", [{}, {"pairs": True}, {"characters": 3}, {"words": 0}, {"hashed": 0}])
def test_a_row_is_what_its_definition_says(options):
    texts = [*some_texts(40), "東京都の天気 is fine, naïve café NAÏVE", "", "?!"]
    mine = Words.fit(texts[:30], **({"words": 15, "hashed": 7} | options))
    expected = np.stack([brute(mine, text, murmur) for text in texts])
    assert np.allclose(mine.encode(texts).toarray(), expected, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=12), st.integers(0, 12))
def test_frequencies_grow_merge_and_forget(texts, cut):
    start = Words.fit(some_texts(20), words=10, hashed=6, characters=3)
    whole = start.add(texts)
    parts = start.add(texts[:cut])
    nothing = start.forget(some_texts(20))
    assert nothing.documents == 0
    assert not nothing.frequencies.any()
    for other in (parts.add(texts[cut:]), parts.merge(nothing.add(texts[cut:]))):
        assert other.documents == whole.documents
        assert (other.frequencies == whole.frequencies).all()
    assert (whole.forget(texts).frequencies == start.frequencies).all()
    assert np.isfinite(whole.encode(texts).data).all()


def test_what_was_not_counted_is_not_forgotten():
    words = Words.fit(["red", "green"], words=2, hashed=0)
    with pytest.raises(InputError, match="cannot all have been counted"):
        words.forget(["red", "red"])
    with pytest.raises(InputError, match="cannot all have been counted"):
        words.forget(["", "", ""])
    with pytest.raises(InputError, match="other words or settings"):
        words.merge(Words.fit(["blue"], words=2, hashed=0))


def test_a_word_that_becomes_frequent_later_keeps_its_hashed_dimension():
    first = Words.fit(["red green"] * 3, words=2, hashed=4)
    later = first.add(["covid"] * 50)
    assert later.vocabulary == first.vocabulary
    column = np.flatnonzero(first.encode(["covid"]).toarray()[0]).tolist()
    assert column == np.flatnonzero(later.encode(["covid"]).toarray()[0]).tolist()
    assert column[0] >= 2


def test_the_words_of_a_text_sum_to_its_row():
    texts = [*some_texts(30, seed=3), "東京 café", "", "zz yy xx ww vv uu tt"]
    mine = Words.fit(texts[:10], words=12, hashed=3, pairs=True, characters=4)
    for text in texts:
        row = np.zeros(mine.width)
        for _, k, value in mine.named(text):
            row[k] += value
        assert np.allclose(row, mine.encode([text]).toarray()[0], atol=1e-6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\uff26\uff55\uff4c\uff4c \ufb01ne", ["full", "fine"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("日", ["日"]),
        ("abc日本語x9", ["abc", "日本", "本語", "x9"]),
        ("ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("a b c", []),
        ("<script>alert(1)</script>\x1b[2J", ["script", "alert", "script", "2j"]),
    ],
)
def test_words_of_many_scripts(text, expected):
    assert list(tokens(text)) == expected


def test_it_is_saved_and_restored():
    texts = some_texts(50)
    mine = Words.fit(texts, words=30, hashed=5, pairs=True, characters=3)
    again = from_bytes(to_bytes(mine))
    assert isinstance(again, Words)
    assert (again.encode(texts) != mine.encode(texts)).nnz == 0
    assert again.state()[0] == mine.state()[0]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"words": -1}, "words is -1"),
        ({"words": 0, "hashed": 0}, "are 0 together"),
        ({"words": 2**23}, "together; expected 1 to"),
        ({"pairs": 3}, "pairs is 3"),
        ({"characters": 1.5}, "characters is 1.5"),
    ],
)
def test_bad_settings(options, reason):
    with pytest.raises(InputError, match=reason):
        Words.fit(["red"], **options)


def test_long_and_strange_texts():
    words = Words.fit(["red green"], words=2, hashed=8)
    found = words.encode(["red " * 250_000, "\ud800red", "\0\0", "x" * 1_000_000])
    assert found.shape == (4, 10)
    assert np.isfinite(found.data).all()
    with pytest.raises(InputError, match="text 2 has 40,000,000 characters"):
        words.encode(["red", "x" * 40_000_000])
    with pytest.raises(InputError, match="texts is one text"):
        words.encode("red")
