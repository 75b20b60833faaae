# What do all lints share? The list of files to look at, and the way findings are reported.
"""Each lint is `python3 scripts/lint/NAME.py [ROOT]`: it prints `file:line: message` lines, exit code 1 if any."""

import pathlib
import subprocess
import sys

CPP = (".cpp", ".hpp", ".cu")
IGNORED_FOLDERS = {".git", ".venv", "build", "runs", "__pycache__"}


class Lint:
    """Collects the findings of one lint over the tree at `root`."""

    def __init__(self, name, root):
        self.name = name
        self.root = pathlib.Path(root).resolve()
        self.findings = []
        self.num_files = 0

    def files(self, suffixes, *folders):
        """Files git knows or could add (all files if there is no git), by suffix, below `folders` (default: all)."""
        for path in sorted(self._all_files()):
            if path.suffix in suffixes and (not folders or path.parts[0] in folders):
                self.num_files += 1
                yield path

    def _all_files(self):
        if (self.root / ".git").exists():
            command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
            listed = subprocess.run(command, cwd=self.root, capture_output=True, check=True).stdout.decode()
            names = (pathlib.Path(name) for name in listed.split("\0") if name)
            return [name for name in names if (self.root / name).is_file()]
        found = (path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file())
        return [path for path in found if not IGNORED_FOLDERS & set(path.parts)]

    def text(self, path):
        """Content of a file; bytes that are not UTF-8 become U+FFFD, so that todo.py can report them."""
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    def report(self, path, line, message):
        """Adds one finding."""
        self.findings.append(f"{path}:{line}: {message} [{self.name}]")

    def finish(self):
        """Prints the findings; returns the exit code. A lint that saw no file has failed: it looked in a wrong place."""
        for finding in self.findings:
            print(finding)
        if not self.num_files:
            print(f"{self.name}: no file to look at below {self.root}")
        return 1 if self.findings or not self.num_files else 0


def main(name, check):
    """Runs check(lint) on the tree named on the command line (default: this project)."""
    default = pathlib.Path(__file__).resolve().parents[2]
    lint = Lint(name, sys.argv[1] if len(sys.argv) > 1 else default)
    check(lint)
    sys.exit(lint.finish())
