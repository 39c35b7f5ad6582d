#!/usr/bin/env python3
"""`lockstep tokenize`, as a user runs it, next to a slow GPT-2 tokenizer that shares nothing with it.

    tokenize_test.py BIN_FOLDER HAS_SENTENCEPIECE
"""
import json
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata


def ranges(category):
    """A regular expression's class for the characters of a general category."""
    codes = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == category]
    runs = []
    for code in codes:
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in runs)


LETTER, NUMBER = ranges("L"), ranges("N")
# Unicode's White_Space, which has fewer characters than Python's \\s.
SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# GPT-2's pattern. Bytes that are not UTF-8 are lone surrogates here, so they are none of the three classes.
PATTERN = re.compile(rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{LETTER}]+| ?[{NUMBER}]+| ?[^{SPACE}{LETTER}{NUMBER}]+"
                     rf"|[{SPACE}]+(?![^{SPACE}])|[{SPACE}]+")


def alphabet():
    """The character that each byte is written as."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("\xa1"), ord("\xac") + 1), *range(ord("\xae"), 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {**{byte: chr(byte) for byte in visible}, **{byte: chr(256 + i) for i, byte in enumerate(hidden)}}


ALPHABET = alphabet()


def written(data):
    return "".join(ALPHABET[byte] for byte in data)


class SlowGpt2:
    """Merges the pair with the lowest rank everywhere, then looks at all pairs again."""

    def __init__(self, vocabulary, merges):
        self.vocabulary = vocabulary
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}

    def word(self, word):
        parts = list(word)
        while True:
            pairs = [pair for pair in zip(parts, parts[1:]) if pair in self.ranks]
            if not pairs:
                return parts
            best = min(pairs, key=self.ranks.get)
            merged, at = [], 0
            while at < len(parts):
                if tuple(parts[at:at + 2]) == best:
                    merged.append(parts[at] + parts[at + 1])
                    at += 2
                else:
                    merged.append(parts[at])
                    at += 1
            parts = merged

    def encode(self, data):
        text = data.decode("utf-8", "surrogateescape")
        words = PATTERN.findall(text)
        assert "".join(words) == text
        return [self.vocabulary[part] for word in words
                for part in self.word(written(word.encode("utf-8", "surrogateescape")))]


def learned_merges(rng, data, count):
    """Merges of pairs that occur, in an order that is partly random."""
    vocabulary = {character: byte for byte, character in ALPHABET.items()}
    slow = SlowGpt2(vocabulary, [])
    words = [slow.word(written(word.encode("utf-8", "surrogateescape")))
             for word in PATTERN.findall(data.decode("utf-8", "surrogateescape"))]
    merges = []
    while len(merges) < count:
        pairs = [pair for word in words for pair in zip(word, word[1:]) if pair not in merges]
        if not pairs:
            break
        merges.append(rng.choice(pairs))
        token = "".join(merges[-1])
        vocabulary.setdefault(token, len(vocabulary))
        slow = SlowGpt2(vocabulary, merges)
        words = [slow.word("".join(word)) for word in words]
    rng.shuffle(merges) if rng.random() < 0.5 else None
    vocabulary["<|endoftext|>"] = len(vocabulary)
    return vocabulary, merges


def some_text(rng, count):
    parts = ["the", " the", "In", " beginning", "'s", "'ll", "\n", "\n\n", "  ", " ", "123", ",", "...", "\t",
             "\u00e9", "\u4e2d\u6587", "\u3000", "\u00bd", "\u0301", "\U0001f600", "_", "\x1c", "\x00"]
    data = b""
    for _ in range(count):
        data += rng.choice(parts).encode() if rng.random() < 0.95 else bytes([rng.randrange(256)])
    return data


def read_pieces(path):
    """The pieces of a table, by docs/formats.md."""
    data = path.read_bytes()
    assert data[:8] == b"LSPIECE1"
    count, size = struct.unpack_from("<II", data, 8)
    ends = struct.unpack_from(f"<{count}I", data, 16)
    text = data[16 + 4 * count:-4]
    assert len(text) == size and ends[-1] == size
    return [text[begin:end] for begin, end in zip((0, *ends), ends)]


def read_tokens(path):
    data = path.read_bytes()
    width, code = {".u16": (2, "H"), ".u32": (4, "I")}[path.suffix]
    return struct.unpack(f"<{len(data) // width}{code}", data)


class Session:
    def __init__(self, bin_folder, folder):
        self.program = str(pathlib.Path(bin_folder).resolve() / "lockstep")
        self.folder = folder

    def run(self, *words):
        return subprocess.run([self.program, "tokenize", *map(str, words)], capture_output=True, text=True,
                              cwd=self.folder)

    def done(self, *words):
        result = self.run(*words)
        assert result.returncode == 0, (words, result)
        return result.stdout

    def refused(self, reason, *words):
        """The command says so and writes nothing."""
        before = sorted(self.folder.rglob("*"))
        result = self.run(*words)
        assert result.returncode == 2 and reason in result.stderr, (words, reason, result)
        assert sorted(self.folder.rglob("*")) == before, words


def write_gpt2(folder, vocabulary, merges):
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges), "utf-8")


def check_gpt2(session):
    tokens = 0
    for seed in range(12):
        rng = random.Random(seed)
        vocabulary, merges = learned_merges(rng, some_text(rng, 150), rng.randrange(0, 120))
        model = session.folder / f"gpt2-{seed}"
        write_gpt2(model, vocabulary, merges)
        data = some_text(rng, 3000)
        text = session.folder / f"text-{seed}"
        text.write_bytes(data)
        session.done("apply", model, text, text, "-o", f"out-{seed}", "--end", "<|endoftext|>")
        ids = read_tokens(session.folder / f"out-{seed}.u16")
        slow = SlowGpt2(vocabulary, merges)
        expected = [*slow.encode(data), vocabulary["<|endoftext|>"]] * 2
        assert list(ids) == expected, seed
        pieces = read_pieces(session.folder / f"out-{seed}.pieces")
        assert b"".join(pieces[each] for each in ids) == data + data, seed
        tokens += len(ids)
    return tokens


def check_threads(session):
    """Several MB, so that there are several chunks."""
    rng = random.Random(1)
    text = session.folder / "long"
    text.write_bytes(some_text(rng, 4000) * 300)
    outputs = set()
    for threads in (1, 2, 7):
        session.done("apply", "gpt2-1", text, "-o", f"threads-{threads}", "--threads", threads)
        outputs.add((session.folder / f"threads-{threads}.u16").read_bytes())
    assert len(outputs) == 1
    pieces = read_pieces(session.folder / "threads-1.pieces")
    ids = read_tokens(session.folder / "threads-1.u16")
    assert b"".join(pieces[each] for each in ids) == text.read_bytes()
    return len(text.read_bytes())


def check_many_pieces(session):
    """Ids above 65,535 need 4 bytes."""
    vocabulary = {character: byte for byte, character in ALPHABET.items()}
    for number in range(256, 70_000):
        vocabulary[f"x{number}x"] = number
    write_gpt2(session.folder / "many", vocabulary, [])
    session.done("apply", "many", "text-0", "-o", "many", "--end", "x69999x")
    ids = read_tokens(session.folder / "many.u32")
    assert ids[-1] == 69_999 and len(ids) == (session.folder / "text-0").stat().st_size + 1
    assert not (session.folder / "many.u16").exists()


def check_refusals(session):
    folder = session.folder
    (folder / "empty").write_bytes(b"")
    session.refused("out-0.pieces exists, and is never overwritten", "apply", "gpt2-0", "text-0", "-o", "out-0")
    (folder / "half.u16").write_bytes(b"theirs")
    session.refused("half.u16 exists, and is never overwritten", "apply", "gpt2-0", "text-0", "-o", "half")
    session.refused("none: no such file or folder", "apply", "gpt2-0", "none", "-o", "x")
    session.refused("--end: gpt2-0 has no piece </s>", "apply", "gpt2-0", "text-0", "-o", "x", "--end", "</s>")
    session.refused("the text is empty", "apply", "gpt2-0", "empty", "-o", "x")
    session.refused("--threads", "apply", "gpt2-0", "text-0", "-o", "x", "--threads", "0")
    session.refused("--output is required", "apply", "gpt2-0", "text-0")
    session.refused("A subcommand is required")
    (folder / "bad").mkdir()
    session.refused("bad/vocab.json: No such file", "apply", "bad", "text-0", "-o", "x")
    (folder / "bad/vocab.json").write_text((folder / "gpt2-0/vocab.json").read_text())
    (folder / "bad/merges.txt").write_text("#version: 0.2\na\n")
    session.refused("bad: merges.txt: line 2: found", "apply", "bad", "text-0", "-o", "x")


def check_interrupt(session):
    """The text is a pipe that stays open, so the program is in the middle of its work."""
    before = sorted(session.folder.rglob("*"))
    child = subprocess.Popen([session.program, "tokenize", "apply", "gpt2-0", "/dev/stdin", "-o", "cut"],
                             stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=session.folder)
    child.stdin.write(b"word " * 1_000_000)
    child.stdin.flush()
    while not list(session.folder.glob(".unfinished-cut.u16-*")):
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    try:
        child.stdin.write(b"word " * 4_000_000)
    except BrokenPipeError:
        pass
    _, text = child.communicate()
    assert child.returncode == 130, (child.returncode, text)
    assert sorted(session.folder.rglob("*")) == before


def check_sentencepiece(session):
    rng = random.Random(2)
    data = b"".join(some_text(rng, 12) + b"\n" for _ in range(3000))
    (session.folder / "corpus").write_bytes(data)
    for kind in ("bpe", "unigram"):
        model = f"{kind}.model"
        session.done("train", "corpus", "-o", model, "--vocabulary", 420, "--kind", kind)
        session.refused(f"{model} exists", "train", "corpus", "-o", model, "--vocabulary", 420)
        session.done("apply", model, "corpus", "-o", kind, "--end", "</s>")
        ids = read_tokens(session.folder / f"{kind}.u16")
        pieces = read_pieces(session.folder / f"{kind}.pieces")
        assert len(pieces) == 420
        assert b"".join(pieces[each] for each in ids) == data, kind
        assert len(ids) < 0.8 * len(data), (kind, len(ids))
        session.done("apply", model, "corpus", "-o", f"{kind}-one", "--end", "</s>", "--threads", 1)
        assert read_tokens(session.folder / f"{kind}-one.u16") == ids
    session.refused("sentencepiece: ", "train", "corpus", "-o", "x", "--vocabulary", "500000")
    session.refused("the text is empty", "train", "empty", "-o", "x")
    session.refused("sentencepiece: ", "apply", "corpus", "corpus", "-o", "x")


def main(bin_folder, has_sentencepiece):
    with tempfile.TemporaryDirectory() as place:
        session = Session(bin_folder, pathlib.Path(place))
        tokens = check_gpt2(session)
        size = check_threads(session)
        check_many_pieces(session)
        check_refusals(session)
        check_interrupt(session)
        if has_sentencepiece == "ON":
            check_sentencepiece(session)
        else:
            result = session.run("train", "text-0", "-o", "x")
            assert result.returncode == 1 and "libsentencepiece-dev" in result.stderr, result
    print(f"{tokens} tokens as the slow tokenizer has them; {size} bytes come back, with any number of threads")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
