# Does any text name a place that exists on one machine only, or a package host?
import re

from common import CPP, main

TEXTS = CPP + (".py", ".sh", ".md", ".yaml", ".cmake", ".txt", ".json", "")
MACHINE_PATH = re.compile(r"(?:^|[\s\"'(`=])(/(?:work|farm|opt|home|root|mnt|srv|Users)/[\w.]+)")
PACKAGE_HOST = re.compile(r"\b(pypi\.(?:org|python)|deb\.debian|(?:archive|security)\.ubuntu)\b")


def check(lint):
    for path in lint.files(TEXTS):
        for number, line in enumerate(lint.text(path).splitlines(), 1):
            if match := MACHINE_PATH.search(line):
                lint.report(path, number, f"'{match.group(1)}' is a path of one machine")
            if match := PACKAGE_HOST.search(line):
                lint.report(path, number, f"'{match.group(1)}': package hosts are a setting of the machine, not ours")


if __name__ == "__main__":
    main("words", check)
