# How many test cases passed, and which files took longest to compile? Reads the logs of CTest and Ninja.
"""scripts/test.sh calls it: `count LastTest.log` prints "PASSED FAILED"; `slowest .ninja_log` prints ten lines."""

import pathlib
import re
import sys

TEST = re.compile(r"^\d+/\d+ Testing: ", re.MULTILINE)
ALL_PASSED = re.compile(r"All tests passed \([\d,]+ assertions? in ([\d,]+) test cases?\)")  # Catch2
SOME_FAILED = re.compile(r"^test cases:\s*\d+ \|(.*)$", re.MULTILINE)  # Catch2
RAN = re.compile(r"^Ran (\d+) tests? in", re.MULTILINE)  # Python's unittest
BAD = re.compile(r"\b(?:failures|errors|unexpected successes)=(\d+)")


def last(pattern, text):
    """The last match: a test may print the summary of a program that it started itself."""
    matches = list(pattern.finditer(text))
    return matches[-1] if matches else None


def count_program(output):
    """(passed, failed) test cases that one test program says it ran."""
    if match := last(ALL_PASSED, output):
        return int(match.group(1).replace(",", "")), 0
    if match := last(SOME_FAILED, output):
        passed = re.search(r"(\d+) passed", match.group(1))
        failed = re.search(r"(\d+) failed\b(?! as expected)", match.group(1))
        return int(passed.group(1)) if passed else 0, int(failed.group(1)) if failed else 0
    if match := last(RAN, output):
        bad = sum(int(number) for number in BAD.findall(output[match.end():]))
        return int(match.group(1)) - bad, bad
    return 0, 0


def count(log):
    """(passed, failed) over all programs of a CTest log; one that crashed or ran nothing is one failure."""
    total_passed = total_failed = 0
    for output in TEST.split(log)[1:]:
        passed, failed = count_program(output)
        succeeded = re.search(r"^Test Passed\.$", output, re.MULTILINE) is not None
        if (not succeeded and failed == 0) or (succeeded and passed == 0):
            failed += 1
        total_passed += passed
        total_failed += failed
    return total_passed, total_failed


def slowest(log, num_lines=10):
    """[(seconds, file)] of the outputs that took longest in a .ninja_log."""
    seconds = {}
    for line in log.splitlines():
        if not line.startswith("#"):
            start, end, _, output = line.split("\t")[:4]
            seconds[output] = (int(end) - int(start)) / 1000
    return sorted(((time, output) for output, time in seconds.items() if output.endswith(".o")), reverse=True)[:num_lines]


def main():
    command, name = sys.argv[1:]
    path = pathlib.Path(name)
    log = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    if command == "count":
        passed, failed = count(log)
        print(passed, failed if passed + failed else 1)
    else:
        for seconds, output in slowest(log):
            print(f"{seconds:6.1f} s  {output}")


if __name__ == "__main__":
    main()
